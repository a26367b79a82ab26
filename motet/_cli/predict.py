"""`motet predict`: raw rows of a file to predictions, by an exported model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from motet._cli import options
from motet._core.option_table import DATA

Export = Annotated[
    Path,
    typer.Argument(
        metavar="EXPORT",
        help="A model of `motet export`, or the directory of `motet export --all`.",
        show_default=False,
    ),
]
Site = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Client whose model is used; default: the site that each row names.",
        show_default=False,
        rich_help_panel=options.WHAT,
    ),
]

MissingTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        metavar="TEXT",
        help="A text that means a missing value, besides those of training; may be repeated.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse rows with missing, unknown or unusual values instead of repairing them.",
        rich_help_panel=DATA,
    ),
]


@options.takes_rows_of("predict")
def command(
    model: Export,
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="A .csv, .tsv, .csv.gz, .parquet or .xlsx file with the columns of training.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A .csv, .tsv or .parquet file; default: CSV on the standard output.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    site: Site = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column of the rows to write beside the predictions; may be repeated.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    na: MissingTexts = None,
    strict: Strict = False,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> None:
    """Predict raw rows: probabilities and a label for each, or a value.

    motet predict models/north rows.csv -o predictions.csv
    """
    from motet._cli.terminal import say, show, warn, write_json
    from motet._core.text import plural
    from motet._core.visible_text import visible
    from motet._export.batch import predict_file
    from motet._export.rows import check_output, csv_text, write_table

    if out is not None:
        check_output(out)
    given = {name: value for name, value in reading.items() if value is not None}
    found = predict_file(
        model, rows, site=site, keep=keep or (), na=na or (), strict=strict, **given
    )
    if out is not None:
        write_table(found.table, out)
    if not quiet and not as_json:
        for remark in found.remarks:
            warn(remark)
    if as_json:
        written = {"out": str(out), "rows": len(found.table), "remarks": list(found.remarks)}
        if out is None:
            written = {"predictions": found.to_list(), "remarks": list(found.remarks)}
        write_json(written)
    elif out is None:
        show(csv_text(found.table).rstrip("\n"))
    else:
        show(visible(str(out)))
        if not quiet:
            say(f"{plural(len(found.table), 'row')} predicted.")
