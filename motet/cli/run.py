"""`motet run`: one method on one federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet.config import Experiment


def command(
    config: options.Config = None,
    *,
    method: Annotated[
        str | None,
        typer.Option(help="Method by name (see `motet methods`).", rich_help_panel=options.WHAT),
    ] = None,
    model: options.Model = None,
    settings: options.Set = None,
    data: options.Data = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    classes: options.Classes = None,
    alpha: options.Alpha = None,
    table: options.Table = None,
    client_column: options.ClientColumn = None,
    target: options.Target = None,
    folder: options.Folder = None,
    lr: options.Rate = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    rounds: options.Rounds = None,
    cohort: options.Cohort = None,
    backend: options.Backend = None,
    store: options.Store = None,
    seed: options.Seed = None,
    out: options.Out = None,
    overwrite: options.Overwrite = False,
    tensorboard: options.TensorBoard = None,
    mlflow: options.MLflow = None,
    explain_plan: Annotated[
        bool,
        typer.Option(
            "--explain-plan",
            help="Say how the run would be carried out, and stop.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Run one method, and keep everything about the run in a directory.

    motet run --method fedper --data digits --partition pathological --clients 20 --classes 2
    """
    flags = {name: value for name, value in locals().items() if name not in ("config", "settings")}
    from motet.cli.drive import drive
    from motet.cli.request import requested
    from motet.cli.terminal import warn
    from motet.config import experiment_from_dict
    from motet.folder import next_free
    from motet.session import begin
    from motet.tracking import sinks

    experiment = experiment_from_dict(requested(config, flags, settings or []))
    if explain_plan:
        return _explain(experiment, as_json=as_json)
    where = out or next_free(Path("runs"), experiment.method.name)
    also = sinks(tensorboard=tensorboard, mlflow=mlflow, warn=warn)
    session = begin(experiment, where, overwrite=overwrite)
    drive(session, as_json=as_json, quiet=quiet, also=also)
    return None


def _explain(experiment: Experiment, *, as_json: bool) -> None:
    from dataclasses import asdict

    from motet.cli.terminal import write_json

    run = experiment.start(experiment.federation())
    plan = getattr(run.backend, "plan", None)
    if as_json:
        write_json({"backend": run.backend.name, "plan": plan and asdict(plan)})
    else:
        typer.echo(f"{run.backend.name}: {plan or 'one client after another'}")
