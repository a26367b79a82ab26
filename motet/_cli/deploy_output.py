"""Output of `motet deploy`: new deployments, the progress of trials, the status of federations."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any

from motet._cli.failures import RunFailedError, RunStoppedError, one_line
from motet._cli.stopping import SIGNALS, StoppedError
from motet._cli.terminal import say, show, write_json
from motet._core.text import plural, size
from motet._core.visible_text import visible
from motet._verdict.text_tables import aligned
from motet.deploy import _results as results
from motet.deploy._statistics import Progress
from motet.deploy._status import Status
from motet.deploy._trial import Event, Stage, Trial
from motet.deploy._writing import Draft
from motet.errors import MotetError


def show_draft(draft: Draft, directory: Path, *, as_json: bool, quiet: bool) -> None:
    """Say what was written, and what comes next."""
    deployment, wire = draft.deployment, draft.wire
    up, down = (sum(tensor.size for tensor in tensors) for tensors in (wire.up, wire.down))
    if as_json:
        sites = list(deployment.sites)
        write_json(
            {"directory": str(directory), "sites": sites, "bytes_up": up, "bytes_down": down}
        )
    elif not quiet:
        show(
            f"{deployment.experiment}: {plural(len(deployment.sites), 'site')}; each sends "
            f"{size(up)} and receives {size(down)} per round.\n{_about_nothing(up, down)}\n"
            f"  motet deploy trial {quote(str(directory))}    try it on this machine\n"
            f"  {directory}/README.md    and then"
        )


def _about_nothing(up: int, down: int) -> str:
    """Say when a federation shares nothing: it costs a deployment, and no site gains from it."""
    if up and down:
        return ""
    missing = "sends nothing" if not up else "receives nothing"
    return (
        f"A site {missing}: with this method and this network, no site learns from another. Share "
        "a larger part of the network, or choose another method.\n"
    )


def run_trial(trial: Trial, *, as_json: bool, quiet: bool) -> None:
    """Run a trial and show its result; its processes are always ended."""
    with _stoppable(), closing(trial.events()) as events:
        try:
            for event in events:
                if not quiet:
                    say(_line(event))
        except KeyboardInterrupt as stop:
            raise RunStoppedError("stopped; all programs of the trial are ended.", stop) from None
        except MotetError as error:
            raise RunFailedError(f"the trial failed: {one_line(error)}.") from error
    _show_result(trial, as_json=as_json, quiet=quiet)


def show_status(status: Status, *, as_json: bool) -> None:
    """Say how a federation is."""
    if as_json:
        write_json(status.to_dict())
        return
    state = "answers" if status.reachable else "does not answer"
    run = "none" if status.run is None else f"{status.number}, {status.run}"
    show(f"{status.of}: the SuperLink {state}; run: {run}")
    if status.queue:
        show(f"waiting: {', '.join(map(str, status.queue))}")
    rows = [
        (visible(name), visible(site.state), site.last_contact or "-", _days(site.key_days))
        for name, site in status.sites.items()
    ]
    show(aligned(("site", "state", "last contact (UTC)", "age of its key"), rows))
    of = "" if status.rounds is None else f" of {status.rounds}"
    show(f"last round: {status.round or 'none'}{of if status.round else ''}")
    if status.scores is not None:
        show(_scores(status.scores))
    for name, certificate in status.certificates.items():
        left = _days(max(0, certificate.days))
        show(f"certificate of the {name}: valid until {certificate.expires}, {left} left")
    if status.last_error is not None:
        show(f"last error in the log: {visible(status.last_error)}")
    for trouble in status.troubles:
        show(f"trouble: {visible(trouble)}")


def _days(count: int | None) -> str:
    return "-" if count is None else plural(count, "day")


def show_check(found: Mapping[str, int], *, as_json: bool) -> None:
    """Say what a site holds."""
    if as_json:
        write_json(found)
        return
    counts = ", ".join(f"{number} {split}" for split, number in found.items())
    show(f"The data fit the experiment: {counts} examples.")


def show_agreement(found: Progress, deployment: Path) -> None:
    """Say whether the experiment has the statistics of its sites, or what is missing."""
    sites = f"{plural(len(found.sites), 'site')}: {', '.join(found.sites[:10])}"
    if found.asked:
        show(
            f"Medians of {plural(found.asked, 'input')} need another question to {sites}.\n"
            f"Give each site {deployment / 'questions.json'}, for its folder; run "
            "`motet deploy statistics .` there and\n`motet deploy agree` here again, with the new "
            "files."
        )
        return
    show(f"The experiment now has the statistics of {sites}.")
    for column, texts in found.categories.items():
        show(f'New categories of "{column}": {", ".join(texts[:10])}.')
    show("Give each site its new experiment.toml, experiment.sha256 and README.md.")


def _show_result(trial: Trial, *, as_json: bool, quiet: bool) -> None:
    final = [e for e in results.evaluations(trial.out) if e.split == "test"]
    cost = results.costs(trial.out)
    if as_json:
        scores = [{**e.summary(), "scores": [row._asdict() for row in e.rows]} for e in final]
        write_json({"directory": str(trial.out), "cost": cost, "results": scores})
        return
    for evaluation in final:
        show(_scores(evaluation.summary()))
    show(f"Sent {size(cost['bytes_up'])} up and {size(cost['bytes_down'])} down.")
    if not quiet:
        say(f"\nKept in {trial.out}")


def _line(event: Event) -> str:
    if isinstance(event, Stage):
        return event.what
    line = event.line
    heard = f"{len(line['replied'])} of {plural(len(line['cohort']), 'site')} replied"
    sent = f"{size(line['bytes_up'])} up, {size(line['bytes_down'])} down"
    about = f"round {line['round']} of {event.total}: {heard}, {sent}, {line['seconds']:.0f} s"
    troubles = [f"  {visible(site)} was lost" for site in line["lost"]]
    refused = line["rejected"].items()
    troubles += [f"  {visible(site)} was rejected: {visible(why)}" for site, why in refused]
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

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise StoppedError(number)

    previous = {kind: signal.signal(kind, stop) for kind in SIGNALS}
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
