"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

WHAT, DATA, TRAINING, RUN, OUTPUT = "What to run", "Data", "Training", "Run", "Output"


def _option(
    *names: str, panel: str, what: str, metavar: str | None = None
) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(
        *names, help=what, metavar=metavar, rich_help_panel=panel, show_default=False
    )
    return made


Config: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml", help="Start from this file; flags win over it.", show_default=False
    ),
]
Set: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--set",
        panel=WHAT,
        metavar="SECTION.KEY=VALUE",
        what="Any key of a config, such as method.optimizer.momentum=0.9; may be repeated.",
    ),
]
Model: TypeAlias = Annotated[
    str | None, _option("--model", panel=WHAT, what="Reference network; default: suits the data.")
]

Data: TypeAlias = Annotated[
    str | None,
    _option("--data", panel=DATA, what="Data set by name (see `motet data`); default: digits."),
]
Table: TypeAlias = Annotated[
    str | None, _option("--table", panel=DATA, metavar="FILE", what="A .csv or .parquet file.")
]
ClientColumn: TypeAlias = Annotated[
    str | None,
    _option("--client-column", panel=DATA, metavar="NAME", what="Its column of clients."),
]
Target: TypeAlias = Annotated[
    str | None, _option("--target", panel=DATA, metavar="NAME", what="Its column to predict.")
]
Folder: TypeAlias = Annotated[
    str | None,
    _option("--folder", panel=DATA, metavar="DIR", what="A folder of arrays per client."),
]
Partition: TypeAlias = Annotated[
    str | None,
    _option(
        "--partition",
        panel=DATA,
        what="iid, pathological, dirichlet, two-level-dirichlet, latent, quantity-skew, natural.",
    ),
]
Clients: TypeAlias = Annotated[
    int | None, _option("--clients", panel=DATA, what="Number of clients.")
]
Classes: TypeAlias = Annotated[
    int | None, _option("--classes", panel=DATA, what="Classes per client (pathological).")
]
Alpha: TypeAlias = Annotated[
    float | None, _option("--alpha", panel=DATA, what="Concentration (dirichlet, quantity-skew).")
]

Rate: TypeAlias = Annotated[
    float | None, _option("--lr", panel=TRAINING, what="Learning rate of the local optimizer.")
]
Epochs: TypeAlias = Annotated[
    int | None, _option("--epochs", panel=TRAINING, what="Local epochs per round.")
]
Steps: TypeAlias = Annotated[
    int | None, _option("--steps", panel=TRAINING, what="Local steps per round, instead.")
]
BatchSize: TypeAlias = Annotated[
    str | None,
    _option(
        "--batch-size", panel=TRAINING, metavar="INTEGER", what='Examples per step; "none": all.'
    ),
]

Rounds: TypeAlias = Annotated[
    int | None, _option("--rounds", panel=RUN, what="Rounds; default: 50.")
]
Cohort: TypeAlias = Annotated[
    str | None,
    _option(
        "--cohort",
        panel=RUN,
        metavar="NUMBER",
        what="Clients per round: a fraction (0.2) or a count (4); default: all.",
    ),
]
Backend: TypeAlias = Annotated[
    str | None, _option("--backend", panel=RUN, what="auto, serial or vectorized.")
]
Seed: TypeAlias = Annotated[
    int | None, _option("--seed", panel=RUN, what="Of the run, and of the split; default: 0.")
]

Out: TypeAlias = Annotated[
    Path | None, _option("--out", panel=OUTPUT, metavar="DIR", what="Directory for the results.")
]
Overwrite: TypeAlias = Annotated[
    bool, _option("--overwrite", panel=OUTPUT, what="Replace the run that DIR holds.")
]
Json: TypeAlias = Annotated[
    bool, _option("--json", panel=OUTPUT, what="One JSON document on stdout, and nothing else.")
]
Quiet: TypeAlias = Annotated[
    bool, _option("--quiet", panel=OUTPUT, what="Only the result: no progress, no remarks.")
]
