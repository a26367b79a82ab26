"""`motet run`: one method on one federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli import options
from motet.cli.experiment import experiment

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet.config import Experiment


@options.with_options(experiment)
def command(
    config: options.Config = None,
    *,
    method: Annotated[
        str | None,
        typer.Option(help="Method by name (see `motet methods`).", rich_help_panel=options.WHAT),
    ] = None,
    store: options.Store = None,
    explain_plan: Annotated[
        bool,
        typer.Option(
            "--explain-plan",
            help="Say how the run would be carried out, and stop.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    **others: Any,
) -> None:
    """Run one method, and keep everything about the run in a directory.

    motet run --method fedper --data digits --partition pathological --clients 20 --classes 2
    """
    from motet.cli.request import requested
    from motet.config import experiment_from_dict

    flags = {"method": method, "store": store, **others}
    asked = experiment_from_dict(requested(config, flags, others["settings"] or []))
    if explain_plan:
        _explain(asked, as_json=others["as_json"])
    else:
        _run(asked, **others)


def _run(
    asked: Experiment,
    *,
    out: Path | None,
    overwrite: bool,
    tensorboard: Path | None,
    mlflow: str | None,
    as_json: bool,
    quiet: bool,
    **_: Any,
) -> None:
    from motet.cli.drive import drive
    from motet.cli.terminal import warn
    from motet.folder import next_free
    from motet.session import begin
    from motet.tracking import sinks

    where = out or next_free(Path("runs"), asked.method.name)
    also = sinks(tensorboard=tensorboard, mlflow=mlflow, warn=warn)
    session = begin(asked, where, overwrite=overwrite)
    drive(session, as_json=as_json, quiet=quiet, also=also)


def _explain(asked: Experiment, *, as_json: bool) -> None:
    from dataclasses import asdict

    from motet.cli.terminal import write_json

    run = asked.start(asked.federation())
    plan = getattr(run.backend, "plan", None)
    if as_json:
        write_json({"backend": run.backend.name, "plan": plan and asdict(plan)})
    else:
        typer.echo(f"{run.backend.name}: {plan or 'one client after another'}")
