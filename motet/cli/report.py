"""`motet report`: one page about comparisons and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli import options


def command(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="What `motet compare --out` or `motet run --out` made.", metavar="DIR..."
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The page; default: report.html in DIR, or here if there are several.",
            metavar="FILE",
            rich_help_panel=options.OUTPUT,
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a file that is no report.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one self-contained page: results, clients, curves, costs, data and methods.

    motet report runs/comparison -o report.html
    """
    from motet.cli.terminal import say, write_json
    from motet.malformed import reading
    from motet.report import read_all, write

    path = out or (directories[0] if len(directories) == 1 else Path()) / "report.html"
    _check_free(path, overwrite=overwrite)
    # Numbers of the wrong kind show when they are drawn.
    with reading(" ".join(map(str, directories)), "run or comparison"):
        comparisons = read_all(directories)
        write(comparisons, path)
    size = path.stat().st_size
    if as_json:
        write_json({"report": str(path), "bytes": size, "parts": len(comparisons)})
    elif not quiet:
        say(f"Written to {path} ({size / 1e6:.1f} MB). Open it in a browser; it needs no network.")


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace what somebody else wrote."""
    from motet.errors import RequestError
    from motet.report.writing import GENERATOR

    if path.is_dir():
        raise RequestError(f"-o expects a file; {path} is a directory. Try {path / 'report.html'}.")
    if overwrite or not path.exists():
        return
    with path.open("rb") as file:
        if GENERATOR.encode() not in file.read(1000):
            raise RequestError(
                f"{path} is no report of Motet, and would be lost. Name another file with -o, or "
                "add --overwrite."
            )
