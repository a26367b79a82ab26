"""`motet resume`: continues a run or a comparison that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet._cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet._runs.output_dir import OutputDir


def command(
    directory: Annotated[Path, typer.Argument(help="The directory of the run.", metavar="DIR")],
    *,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the run; a different seed is refused.",
            rich_help_panel=options.RUN,
            show_default=False,
        ),
    ] = None,
    tensorboard: options.TensorBoard = None,
    mlflow: options.MLflow = None,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Continue after an interruption, with the same numbers as an uninterrupted run."""
    from motet._cli.compare_driver import go_on
    from motet._cli.run_driver import drive
    from motet._cli.stopping import noting
    from motet._cli.terminal import say, warn
    from motet._compare.comparison_dir import ComparisonDirectory
    from motet._runs.output_dir import OutputDir
    from motet._runs.recorded_run import resume_in
    from motet._runs.run_dir import RunDirectory
    from motet.tracking import sinks

    standing = f"what {directory} holds is unchanged. Go on with `motet resume {directory}`."
    with noting(standing), OutputDir.open(directory) as folder:
        if _is_comparison(folder, seed):
            comparison = ComparisonDirectory.taking_over(folder)
            go_on(comparison, tensorboard=tensorboard, mlflow=mlflow, as_json=as_json, quiet=quiet)
            return
        also = sinks(tensorboard=tensorboard, mlflow=mlflow, warn=warn)
        recorded = resume_in(RunDirectory.taking_over(folder))
    if not quiet:
        done, total = recorded.run.rounds_done, recorded.experiment.run.rounds
        say("It has finished; scoring it again." if done == total else f"From round {done + 1}.")
    drive(recorded, as_json=as_json, quiet=quiet, also=also)


def _is_comparison(folder: OutputDir, seed: int | None) -> bool:
    """Tell what the directory holds, and refuse another seed than it has."""
    from motet.errors import RequestError

    tables = folder.tables()
    known = tables.get("run", {}).get("seed", 0)
    if seed not in (None, known):
        raise RequestError(f"the run in {folder.path} has seed {known}, and keeps it; got {seed}.")
    return "compare" in tables
