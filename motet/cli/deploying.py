"""What `motet deploy` shows: a new deployment, a trial as it goes, how a federation is."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from motet.cli.failures import RunFailedError, RunStoppedError, one_line
from motet.cli.terminal import say, write_json
from motet.deploy import results
from motet.deploy.status import Status
from motet.deploy.trial import Event, Stage, Trial
from motet.deploy.writing import Draft
from motet.errors import MotetError
from motet.judging.phrases import plural, size
from motet.judging.tables import aligned


def show_draft(draft: Draft, directory: Path, *, as_json: bool, quiet: bool) -> None:
    """Say what was written, and what comes next."""
    deployment, crossing = draft.deployment, draft.crossing
    up, down = (sum(line.size for line in lines) for lines in (crossing.up, crossing.down))
    if as_json:
        sites = list(deployment.sites)
        write_json(
            {"directory": str(directory), "sites": sites, "bytes_up": up, "bytes_down": down}
        )
    elif not quiet:
        typer.echo(
            f"{deployment.experiment}: {plural(len(deployment.sites), 'site')}; each sends "
            f"{size(up)} and receives {size(down)} per round.\n\n"
            f"  motet deploy trial {directory}    try it on this machine\n"
            f"  {directory}/README.md    and then"
        )


def run_trial(trial: Trial, *, as_json: bool, quiet: bool) -> None:
    """Run a trial to its end, and show what came of it; its programs end in any case."""
    with _stoppable(), closing(trial.events()) as events:
        try:
            for event in events:
                if not quiet:
                    say(_line(event))
        except KeyboardInterrupt:
            raise RunStoppedError("stopped; all programs of the trial are ended.") from None
        except MotetError as error:
            raise RunFailedError(f"the trial failed: {one_line(error)}.") from error
    _show_result(trial, as_json=as_json, quiet=quiet)


def show_status(status: Status, *, as_json: bool) -> None:
    """Say how a federation is."""
    if as_json:
        write_json(vars(status))
        return
    state = "answers" if status.reachable else "does not answer"
    typer.echo(f"{status.of}: the SuperLink {state}; run: {status.run or 'none'}")
    typer.echo(aligned(("site", "state"), list(status.sites.items())))
    typer.echo(f"last round: {status.round or 'none'}")
    if status.scores is not None:
        typer.echo(_scores(status.scores))
    if status.trouble is not None:
        typer.echo(f"last trouble: {status.trouble}")


def show_check(found: Mapping[str, int], *, as_json: bool) -> None:
    """Say what a site holds."""
    if as_json:
        write_json(found)
        return
    counts = ", ".join(f"{number} {split}" for split, number in found.items())
    typer.echo(f"The data fit the experiment: {counts} examples.")


def _show_result(trial: Trial, *, as_json: bool, quiet: bool) -> None:
    final = [e for e in results.evaluations(trial.out) if e.split == "test"]
    cost = results.costs(trial.out)
    if as_json:
        scores = [{**e.summary(), "scores": [row._asdict() for row in e.rows]} for e in final]
        write_json({"directory": str(trial.out), "cost": cost, "results": scores})
        return
    for evaluation in final:
        typer.echo(_scores(evaluation.summary()))
    typer.echo(f"Sent {size(cost['bytes_up'])} up and {size(cost['bytes_down'])} down.")
    if not quiet:
        say(f"\nKept in {trial.out}")


def _line(event: Event) -> str:
    if isinstance(event, Stage):
        return event.what
    line = event.line
    heard = f"{len(line['replied'])} of {plural(len(line['cohort']), 'site')} replied"
    sent = f"{size(line['bytes_up'])} up, {size(line['bytes_down'])} down"
    about = f"round {line['round']} of {event.total}: {heard}, {sent}, {line['seconds']:.0f} s"
    troubles = [f"  {site} was lost" for site in line["lost"]]
    troubles += [f"  {site} was rejected: {why}" for site, why in line["rejected"].items()]
    scores = [f"  {_scores(line['validation'])}"] if "validation" in line else []
    return "\n".join([about, *troubles, *scores])


def _scores(summary: Mapping[str, Any]) -> str:
    where = "{metric} on {split}, {point}, round {round}".format(**summary)
    numbers = "mean {mean:.3f}, worst {worst:.3f}".format(**summary)
    return f"{where}: {numbers}, {plural(summary['clients'], 'site')}"


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let Ctrl-C (or SIGTERM) stop the trial once; a second one does not stop the cleaning up."""
    asked = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt

    kinds = (signal.SIGINT, signal.SIGTERM)
    previous = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
