"""Arguments that commands of `motet deploy` share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Directory: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="The deployment.", show_default=False)
]
Here: TypeAlias = Annotated[Path, typer.Argument(metavar="[DIR]", help="The deployment.")]
SiteFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SITE", help="A site's folder.", show_default=False)
]
LogLevel: TypeAlias = Annotated[
    str, typer.Option("--log-level", help="Least level to log: debug, info, warning or error.")
]
JsonLog: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Write the log as one JSON object per line.")
]


@contextmanager
def private_files() -> Iterator[None]:
    """Let whatever a command writes be for its own account alone, from creation."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
