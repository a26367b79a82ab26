"""`motet init`: a commented config for the data at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from motet._cli import options

File = Annotated[
    Path,
    typer.Argument(metavar="CONFIG.toml", help="The file to write.", show_default=False),
]


@options.takes_rows_of("init")
def command(
    file: File = Path("experiment.toml"),
    *,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Look at your data and write a commented config that runs as it is.

    motet init study.toml --table patients.csv --client-column hospital --target ill
    """
    from motet._cli.request import requested
    from motet._cli.terminal import say, write_json
    from motet._cli.writing_config import drafted
    from motet.errors import RequestError

    if file.exists() and not overwrite:
        raise RequestError(f"{file} exists; name another file, or replace it with --overwrite.")
    draft = drafted(requested(None, given, given["settings"] or []), file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(draft.text, encoding="utf-8")
    if as_json:
        write_json({"config": str(file), "tables": draft.tables, "remarks": list(draft.remarks)})
        return
    if quiet:
        return
    for remark in draft.remarks:
        say(f"- {remark}")
    say(f"Wrote {file}. Read it, then:\n  motet compare {file} --out runs/{file.stem}")
