"""`motet resume`: go on with a run or a comparison that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli import options


def command(
    directory: Annotated[Path, typer.Argument(help="The directory of the run.", metavar="DIR")],
    *,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The seed that the run has; another one is refused.",
            rich_help_panel=options.RUN,
            show_default=False,
        ),
    ] = None,
    tensorboard: options.TensorBoard = None,
    mlflow: options.MLflow = None,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on after any interruption, to the same numbers as a run that never stopped."""
    from motet.cli.contesting import go_on
    from motet.cli.drive import drive
    from motet.cli.terminal import say, warn
    from motet.errors import RequestError
    from motet.folder import Folder
    from motet.session import resume
    from motet.tracking import sinks

    with Folder.open(directory) as folder:
        tables = folder.tables()
    known = tables.get("run", {}).get("seed", 0)
    if seed not in (None, known):
        raise RequestError(f"the run in {directory} has seed {known}, and keeps it; got {seed}.")
    if "compare" in tables:
        go_on(directory, tensorboard=tensorboard, mlflow=mlflow, as_json=as_json, quiet=quiet)
        return
    also = sinks(tensorboard=tensorboard, mlflow=mlflow, warn=warn)
    session = resume(directory)
    if not quiet:
        done, total = session.run.finished, session.experiment.run.rounds
        say("It has finished; scoring it again." if done == total else f"From round {done + 1}.")
    drive(session, as_json=as_json, quiet=quiet, also=also)
