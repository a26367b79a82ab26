"""A comparison from where it is to its end: what `compare` and `resume` have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from motet.cli.failures import RunFailedError, RunStoppedError, one_line, wants_traceback
from motet.cli.live import watching
from motet.cli.progress import Progress, progress
from motet.cli.request import requested
from motet.cli.terminal import say, warn, write_json_line
from motet.comparing.comparison import Comparison
from motet.comparing.conditions import Contest
from motet.comparing.contest import Nowhere, Records, conduct, searched
from motet.comparing.contestdir import ContestDirectory
from motet.comparing.rows import Row
from motet.config.comparing import ComparisonPlan, plan_from_dict
from motet.data import Federation
from motet.folder import check_free
from motet.tracking import sinks
from motet.watching import Watcher


@dataclass(frozen=True, kw_only=True)
class Job:
    """A comparison, and where its results go."""

    plan: ComparisonPlan
    contest: Contest
    directory: ContestDirectory | None
    as_json: bool
    quiet: bool
    also: Sequence[Watcher] = ()  # who hears of it besides the user

    @property
    def kept(self) -> Records:
        """Where results are kept."""
        return self.directory or Nowhere()


def begin(config: Path | None, flags: Mapping[str, Any]) -> None:
    """Run a comparison that the command line asks for."""
    plan, federation = _planned(config, flags)
    contest, plan = plan.contest(federation), plan.resolved(federation)
    also = sinks(tensorboard=flags["tensorboard"], mlflow=flags["mlflow"], warn=warn)
    directory = None
    if flags["out"] is not None:
        tables, overwrite = plan.to_dict(), flags["overwrite"]
        directory = ContestDirectory.create(flags["out"], tables, federation, overwrite=overwrite)
    output = {"as_json": flags["as_json"], "quiet": flags["quiet"], "also": also}
    finish(Job(plan=plan, contest=contest, directory=directory, **output))


def _planned(config: Path | None, flags: Mapping[str, Any]) -> tuple[ComparisonPlan, Federation]:
    methods = None if flags["methods"] is None else [m.strip() for m in flags["methods"].split(",")]
    tables = requested(config, {**flags, "methods": methods}, flags["settings"] or [])
    plan = plan_from_dict(tables)
    if flags["out"] is not None:
        check_free(flags["out"], overwrite=flags["overwrite"])
    federation = plan.federation()
    if methods == ["all"]:
        plan = _suited(plan, federation, quiet=flags["quiet"])
    return plan, federation


def go_on(path: Path, *, tensorboard: Path | None, mlflow: str | None, **output: bool) -> None:
    """Run the methods of a comparison that have not finished."""
    directory = ContestDirectory.open(path)
    try:
        done = directory.finished().values()
        also = sinks(tensorboard=tensorboard, mlflow=mlflow, before=done, warn=warn)
        plan = plan_from_dict(directory.tables())
        federation = plan.federation()
        directory.verify(federation)
        contest = plan.contest(federation)
    except BaseException:
        directory.close()
        raise
    finish(Job(plan=plan, contest=contest, directory=directory, also=also, **output))


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
        if set(job.kept.finished()) != set(job.contest.pairs()):
            job.contest.warm_up()
        comparison = _run(job, _search(job))
    except KeyboardInterrupt:
        raise RunStoppedError(f"stopped; {_how_to_go_on(job)}") from None
    except Exception as error:
        why = f"the comparison failed: {one_line(error)}; {_how_to_go_on(job)}"
        raise RunFailedError(why) from error
    if job.directory is not None:
        job.directory.conclude(comparison)
    return comparison


def _search(job: Job) -> Contest:
    if job.contest.search is None:
        return job.contest
    left = len(job.contest.trial_contest().entries) - len(job.kept.tried())
    with progress("try", left, quiet=job.quiet) as shown:
        contest = searched(job.contest, job.kept, _Tries(shown))
    if job.directory is not None:
        job.directory.keep_tuned(job.plan.after_search(contest).to_dict())
    return contest


def _run(job: Job, contest: Contest) -> Comparison:
    with watching(
        contest.entries,
        contest.seeds,
        contest.rules.rounds,
        quiet=job.quiet,
        as_json=job.as_json,
        finished=job.kept.finished(),
        also=job.also,
    ) as view:
        return conduct(contest, job.kept, view)


class _Tries(Watcher):
    """Counts the tries of a search."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown

    def finished(self, label: str, seed: int, row: Row) -> None:
        found = row.evaluation
        note = f"{label}, validation {found.metric} {found.mean:.3f}"
        self.shown.step(note, worth_a_line=True)

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.shown.step(f"{label} failed: {reason}", worth_a_line=True)


def _show(job: Job, comparison: Comparison) -> None:
    if job.as_json:
        write_json_line({"event": "result", **comparison.to_dict()})
    elif comparison.rows:
        typer.echo(comparison.table())
    for warning in dict.fromkeys(w for row in comparison.rows for w in row.warnings):
        warn(warning)
    if job.directory is not None and not job.quiet:
        say(f"\nKept in {job.directory.path}")


def _suited(plan: ComparisonPlan, federation: Federation, *, quiet: bool) -> ComparisonPlan:
    suited, left_out = plan.suited(federation)
    for label, reason in ({} if quiet else left_out).items():
        say(f"left out {label}: {reason}")
    return suited


def _how_to_go_on(job: Job) -> str:
    if job.directory is None:
        return "nothing was kept, because no directory was named with --out."
    done, all_runs = len(job.kept.finished()), len(job.contest.pairs())
    return (
        f"{done} of {all_runs} runs have finished. Go on with `motet resume {job.directory.path}`."
    )
