"""Pages, scripts and service files of a deployment, from templates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def write_page(path: Path, template: str, *, program: bool = False, **values: Any) -> None:
    """Fill a template in; a name that it does not get is an error, not an empty place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_templates().get_template(f"{template}.jinja").render(values), encoding="utf-8")
    if program:
        path.chmod(0o755)


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
