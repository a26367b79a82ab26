"""`motet report`: one page about comparisons and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet._cli import options


def command(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Output directory of `motet compare` or `motet run`.", metavar="DIR..."
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
            help="Replace a file that is not a report.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one self-contained page: results, clients, curves, costs, data and methods.

    motet report runs/comparison -o report.html
    """
    from motet._cli.terminal import say, write_json
    from motet._core.corrupt_files import reading
    from motet.report import page, read_all, unchanged, write_page

    path = out or (directories[0] if len(directories) == 1 else Path()) / "report.html"
    _check_free(path, overwrite=overwrite)
    # Numbers of the wrong kind show when they are drawn.
    with reading(" ".join(map(str, directories)), "run or comparison"):
        with unchanged(directories):
            comparisons = read_all(directories)
            text = page(comparisons)
        write_page(text, path)
    size = path.stat().st_size
    if as_json:
        write_json({"report": str(path), "bytes": size, "parts": len(comparisons)})
    elif not quiet:
        say(f"Written to {path} ({size / 1e6:.1f} MB). Open it in a browser; it needs no network.")


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file that Motet did not write."""
    from motet._runs.leftovers import GENERATOR
    from motet.errors import RequestError

    if path.is_dir():
        raise RequestError(f"-o expects a file; {path} is a directory. Try {path / 'report.html'}.")
    if path.exists() and not path.is_file():  # a pipe or a device: reading it may take forever
        raise RequestError(f"-o expects a file; {path} is a pipe or a device.")
    if overwrite or not path.exists():
        return
    with path.open("rb") as file:
        if GENERATOR.encode() not in file.read(1000):
            raise RequestError(
                f"{path} exists and is not a Motet report. Choose another file with -o, or add "
                "--overwrite to replace it."
            )
