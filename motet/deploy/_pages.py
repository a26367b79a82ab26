"""Templates of the pages, scripts and service files of a deployment."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def write_page(path: Path, template: str, *, program: bool = False, **values: Any) -> None:
    """Render a template to a file; a missing value is an error, not an empty string."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _templates().get_template(f"{template}.jinja").render(values)
    path.unlink(missing_ok=True)  # an existing file would keep its mode
    mode = 0o777 if program else 0o666  # less what the umask takes
    with open(path, "w", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, mode)) as file:
        file.write(text)


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("motet.deploy"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown and shell; nothing here is HTML
    )
