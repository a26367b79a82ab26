"""Runs a comparison to its end: shared by `motet compare` and `motet resume`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet._cli.failures import RunFailedError, RunStoppedError, one_line, wants_traceback
from motet._cli.live import watching
from motet._cli.progress import Progress, progress
from motet._cli.request import requested, require_training
from motet._cli.terminal import say, show, warn, write_json_line
from motet._compare.compare import run_comparison, tuned_spec
from motet._compare.comparison import Comparison
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.config import ComparisonPlan, plan_from_dict
from motet._compare.leaving_out import check_leaving_out, with_contributions
from motet._compare.records import NoRecords, Records
from motet._core.text import listed
from motet._engine.observers import Watcher
from motet._engine.results import Row
from motet.data import Federation
from motet.data._remarks import remarks
from motet.tracking import sinks


@dataclass(frozen=True, kw_only=True)
class Job:
    """A comparison, and where its results go."""

    plan: ComparisonPlan
    spec: ComparisonSpec
    directory: ComparisonDirectory | None
    as_json: bool
    quiet: bool
    also: Sequence[Watcher] = ()  # who hears of it besides the user

    @property
    def kept(self) -> Records:
        """Where results are kept."""
        return self.directory or NoRecords()


def begin(config: Path | None, flags: Mapping[str, Any]) -> None:
    """Run a comparison that the command line asks for."""
    methods = None if flags["methods"] is None else [m.strip() for m in flags["methods"].split(",")]
    tables = requested(config, {**flags, "methods": methods}, flags["settings"] or [])
    plan, out = plan_from_dict(tables), flags["out"]
    require_training(plan.run, plan.entries.values())
    directory = None
    if out is not None:
        directory = ComparisonDirectory.claim(out, overwrite=flags["overwrite"])
    with directory.giving_up() if directory is not None else nullcontext():
        job = _prepared(plan, flags, directory, everything=_is_open(tables))
    finish(job)


def _prepared(
    plan: ComparisonPlan,
    flags: Mapping[str, Any],
    directory: ComparisonDirectory | None,
    *,
    everything: bool,
) -> Job:
    federation = plan.federation()
    if everything:
        plan = _suited(plan, federation, quiet=flags["quiet"])
    spec, plan = plan.spec(federation), plan.resolved(federation)
    if plan.leave_one_out:
        check_leaving_out(spec)
    also = sinks(tensorboard=flags["tensorboard"], mlflow=flags["mlflow"], warn=warn)
    if directory is not None:
        directory.start(plan.to_dict(), federation)
    output = {"as_json": flags["as_json"], "quiet": flags["quiet"], "also": also}
    return Job(plan=plan, spec=spec, directory=directory, **output)


def go_on(
    directory: ComparisonDirectory, *, tensorboard: Path | None, mlflow: str | None, **output: bool
) -> None:
    """Run the methods of a comparison that have not finished."""
    with directory.giving_up():
        done = directory.finished().values()
        also = sinks(tensorboard=tensorboard, mlflow=mlflow, before=done, warn=warn)
        plan = plan_from_dict(directory.tables())
        federation = plan.federation()
        directory.verify(federation)
        spec = plan.spec(federation)
    finish(Job(plan=plan, spec=spec, directory=directory, also=also, **output))


def finish(job: Job) -> None:
    """Do what is left to do, and show the result."""
    if wants_traceback():  # a method that fails does not end the command with one
        logging.basicConfig()
        logging.getLogger("motet").setLevel(logging.DEBUG)
    with job.directory or nullcontext():
        comparison = _compared(job)
    _show(job, comparison)
    if not any(label in comparison.labels for label in job.plan.entries):
        raise RunFailedError(f"every method failed: {comparison.failures[-1].reason}.")


def _compared(job: Job) -> Comparison:
    try:
        if set(job.kept.finished()) != set(job.spec.pairs()):
            job.spec.warm_up()
        spec = _search(job)
        comparison = _run(job, spec)
        if job.plan.leave_one_out:
            comparison = _left_out(job, spec, comparison)
        if job.directory is not None:
            job.directory.conclude(comparison)
    except KeyboardInterrupt as stop:
        raise RunStoppedError(f"stopped; {_how_to_go_on(job)}", stop) from None
    except Exception as error:
        why = f"the comparison failed: {one_line(error)}; {_how_to_go_on(job)}"
        raise RunFailedError(why) from error
    return comparison


def _search(job: Job) -> ComparisonSpec:
    if job.spec.search is None:
        return job.spec
    left = len(job.spec.trial_spec().entries) - len(job.kept.tried())
    with progress("try", left, quiet=job.quiet) as shown:
        spec = tuned_spec(job.spec, job.kept, _Tries(shown))
    if job.directory is not None:
        job.directory.keep_tuned(job.plan.after_search(spec).to_dict())
    return spec


def _left_out(job: Job, spec: ComparisonSpec, comparison: Comparison) -> Comparison:
    clients = len(spec.data.clients)
    with progress("left out", clients, quiet=job.quiet) as shown:
        return with_contributions(spec, comparison, job.kept, shown.step)


def _run(job: Job, spec: ComparisonSpec) -> Comparison:
    with watching(
        spec.entries,
        spec.seeds,
        spec.rules.rounds,
        quiet=job.quiet,
        as_json=job.as_json,
        finished=job.kept.finished(),
        also=job.also,
    ) as view:
        return run_comparison(spec, job.kept, view)


class _Tries(Watcher):
    """Counts the tries of a search."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown

    def finished(self, label: str, seed: int, row: Row) -> None:
        found = row.evaluation
        mark = f" ({len(found.diverged)} clients diverged)" if found.diverged else ""
        note = f"{label}, validation {found.metric} {found.mean:.3f}{mark}"
        self.shown.step(note, worth_a_line=True)

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.shown.step(f"{label} failed: {reason}", worth_a_line=True)


def _show(job: Job, comparison: Comparison) -> None:
    if job.as_json:
        write_json_line({"event": "result", **comparison.to_dict()})
    elif comparison.rows:
        show(comparison.table())
    _warn(job, comparison)
    if job.directory is not None and not job.quiet:
        say(f"\nKept in {job.directory.path}")


def _warn(job: Job, comparison: Comparison) -> None:
    """Show warnings: those about the data once, others with the method that they are about."""
    about_data = remarks(job.spec.data)
    said = dict.fromkeys((row.label, text) for row in comparison.rows for text in row.warnings)
    for text in dict.fromkeys(text for _, text in said if text in about_data):
        warn(text)
    for text in dict.fromkeys(text for _, text in said if text not in about_data):
        labels = [label for label, other in said if other == text]
        everywhere = len(labels) == len(comparison.labels) > 1
        warn(text if everywhere else f"{listed(labels)}: {text}")


def _is_open(tables: Mapping[str, Any]) -> bool:
    """Tell whether no method was named: those that cannot run are then left out."""
    named = tables.get("compare", {}).get("methods")
    return named in (None, "all", ["all"])


def _suited(plan: ComparisonPlan, federation: Federation, *, quiet: bool) -> ComparisonPlan:
    suited, left_out = plan.suited(federation)
    for label, reason in ({} if quiet else left_out).items():
        say(f"left out {label}: {reason}")
    return suited


def _how_to_go_on(job: Job) -> str:
    if job.directory is None:
        return "nothing was kept, because no directory was named with --out."
    done = f"{len(job.kept.finished())} of {len(job.spec.pairs())} runs have finished"
    if job.plan.leave_one_out:
        runs = len(job.spec.data.clients) * len(job.spec.seeds)
        done += f", and {len(job.kept.left_out())} of {runs} without one client"
    return f"{done}. Go on with `motet resume {job.directory.path}`."
