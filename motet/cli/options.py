"""The options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

WHAT, DATA, TRAINING, RUN, OUTPUT = "What to run", "Data", "Training", "Run", "Output"
COMPARISON = "Comparison"
Command = TypeVar("Command", bound=Callable[..., None])


def with_options(shared: Callable[..., None]) -> Callable[[Command], Command]:
    """Give a command the options of another function, too; they arrive as keywords.

    Typer reads a command's signature, and has no other way to name a group of options once.
    """

    def add(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        others = inspect.signature(shared, eval_str=True).parameters.values()
        vars(command)["__signature__"] = own.replace(parameters=[*named, *others])
        return command

    return add


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

Methods: TypeAlias = Annotated[
    str | None,
    _option(
        "--methods",
        panel=WHAT,
        metavar="NAME,NAME,...",
        what="Names, comma-separated, or all. local, fedavg and fedavg-ft are added.",
    ),
]
Seeds: TypeAlias = Annotated[
    int | None,
    _option(
        "--seeds",
        panel=COMPARISON,
        what="Runs of each method, with seeds SEED, SEED + 1, ...; default: 1.",
    ),
]
Choose: TypeAlias = Annotated[
    str | None,
    _option(
        "--choose",
        panel=COMPARISON,
        metavar="last|validation",
        what="By which round a run is judged; default: last.",
    ),
]
EvaluateEvery: TypeAlias = Annotated[
    int | None,
    _option(
        "--evaluate-every",
        panel=COMPARISON,
        metavar="ROUNDS",
        what="Between two looks at the validation data; default: about 20 looks.",
    ),
]
Tune: TypeAlias = Annotated[
    int | None,
    _option(
        "--tune",
        panel=COMPARISON,
        metavar="TRIALS",
        what="Search hyperparameters on validation data, with so many tries per method.",
    ),
]
TuneKind: TypeAlias = Annotated[
    str | None,
    _option(
        "--tune-kind",
        panel=COMPARISON,
        metavar="random|grid",
        what="How they are searched; default: random.",
    ),
]
BudgetGradients: TypeAlias = Annotated[
    float | None,
    _option(
        "--budget-gradients",
        panel=COMPARISON,
        metavar="NUMBER",
        what="End a run when it has taken so many single-example gradients.",
    ),
]
BudgetBytes: TypeAlias = Annotated[
    int | None,
    _option(
        "--budget-bytes",
        panel=COMPARISON,
        metavar="NUMBER",
        what="End a run when so many bytes have been sent, up and down.",
    ),
]
BudgetSeconds: TypeAlias = Annotated[
    float | None,
    _option(
        "--budget-seconds",
        panel=COMPARISON,
        metavar="NUMBER",
        what="End a run after so many seconds of training.",
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
    str | None, _option("--backend", panel=RUN, what="auto, serial, vectorized or ray.")
]
Store: TypeAlias = Annotated[
    str | None,
    _option("--store", panel=RUN, what="Where private states live: memory (default) or disk."),
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
JsonLines: TypeAlias = Annotated[
    bool, _option("--json", panel=OUTPUT, what="JSON lines on stdout: progress, then the result.")
]
TensorBoard: TypeAlias = Annotated[
    Path | None,
    _option("--tensorboard", panel=OUTPUT, metavar="DIR", what="Write TensorBoard event files."),
]
MLflow: TypeAlias = Annotated[
    str | None,
    _option("--mlflow", panel=OUTPUT, metavar="URI", what="Log to MLflow: sqlite:///mlflow.db."),
]
Quiet: TypeAlias = Annotated[
    bool, _option("--quiet", panel=OUTPUT, what="Only the result: no progress, no remarks.")
]
