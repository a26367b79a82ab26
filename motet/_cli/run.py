"""`motet run`: one method on one federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet._cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet.config import Experiment


@options.takes_rows_of("run")
def command(config: options.Config = None, *, explain_plan: bool, **given: Any) -> None:
    """Run one method and record the run in a directory.

    motet run --method fedper --data digits --partition pathological --clients 20 --classes 2
    """
    from motet._cli.request import requested, require_training
    from motet.config import experiment_from_dict

    asked = experiment_from_dict(requested(config, given, given["settings"] or []))
    require_training(asked.run, [asked.method])
    if explain_plan:
        _explain(asked, as_json=given["as_json"])
    else:
        _run(asked, **given)


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
    from motet._cli.run_driver import drive
    from motet._cli.terminal import warn
    from motet._runs.recorded_run import begin_in
    from motet._runs.run_dir import RunDirectory
    from motet.tracking import sinks

    if out is None:
        directory = RunDirectory.claim_next(Path("runs"), asked.method.name)
    else:
        directory = RunDirectory.claim(out, overwrite=overwrite)
    with directory.giving_up():
        also = sinks(tensorboard=tensorboard, mlflow=mlflow, warn=warn)
        recorded = begin_in(directory, asked)
    drive(recorded, as_json=as_json, quiet=quiet, also=also)


def _explain(asked: Experiment, *, as_json: bool) -> None:
    from dataclasses import asdict

    from motet._cli.terminal import show, write_json

    run = asked.start(asked.federation())
    plan = run.backend.plan
    if as_json:
        write_json({"backend": run.backend.name, "plan": plan and asdict(plan)})
    else:
        show(f"{run.backend.name}: {plan or 'one client after another'}")
        for way, spent in plan.timings if plan else ():
            show(f"  {spent:10.3f} ms per client, a few steps: {way}")
