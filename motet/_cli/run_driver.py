"""Drives a recorded run to its end: shared by `motet run` and `motet resume`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from motet._cli.failures import RunFailedError, RunStoppedError, one_line
from motet._cli.interrupt import Interrupt
from motet._cli.live import View, watching
from motet._cli.stopping import StoppedError
from motet._cli.terminal import say, warn, write_json_line
from motet._compare.budget import Spent
from motet._compare.shared_training import cost_of, look_at
from motet._engine.divergence import TOTAL
from motet._engine.evaluation import Evaluation
from motet._engine.observers import Watcher
from motet._engine.results import Cost, Row
from motet._runs.recorded_run import RecordedRun


def drive(
    recorded: RecordedRun, *, as_json: bool, quiet: bool, also: Sequence[Watcher] = ()
) -> None:
    """Run what is left, and show the result; `also` are told what happens, too."""
    known = recorded.run.warnings
    label, seed, rounds = _identity(recorded)
    with recorded.directory:
        try:
            for warning in known:
                warn(warning)
            with watching([label], [seed], rounds, quiet=quiet, as_json=as_json, also=also) as view:
                final, cost = _finished(recorded, view)
        except KeyboardInterrupt as stop:
            raise _stopped(recorded, stop) from None
        except Exception as error:
            why = one_line(error)
            raise RunFailedError(
                f"the run failed {_round(recorded)}: {why}; {_how_to_resume(recorded)}."
            ) from error
    for warning in recorded.run.warnings[len(known) :]:  # new since the run started
        warn(warning)
    _show(recorded, final, asdict(cost), as_json=as_json)
    if not (as_json or quiet):
        say(f"\nKept in {recorded.directory.path}")
    if recorded.run.divergence.is_total(final[0]):
        raise RunFailedError(f"{TOTAL}; what is left is kept in {recorded.directory.path}.")


def _finished(recorded: RecordedRun, view: View) -> tuple[list[Evaluation], Cost]:
    label, seed, _ = _identity(recorded)
    try:
        return _finish(recorded, view)
    except Exception as error:
        view.failed(label, seed, one_line(error))
        raise


def _finish(recorded: RecordedRun, view: View) -> tuple[list[Evaluation], Cost]:
    label, seed, rounds = _identity(recorded)
    spent = _spent(recorded)
    view.began(label, seed, rounds)
    with Interrupt("Stopping after this round, and saving it.", view.tell) as interrupt:
        for done, validation in recorded.rounds():
            spent = spent.after(done)
            look = None if validation is None else look_at(validation, spent)
            view.round_done(label, seed, done, look)
            if interrupt.asked and done.number < rounds:
                recorded.save()
                raise StoppedError(interrupt.asked)
        final = recorded.conclude()
    looks = sum(line.get("look_gradients", 0.0) for line in recorded.directory.rounds())
    cost = replace(cost_of(recorded.run, spent), look_gradients=looks)
    view.finished(label, seed, Row(label=label, seed=seed, evaluation=final[0], cost=cost))
    return final, cost


def _identity(recorded: RecordedRun) -> tuple[str, int, int]:
    experiment = recorded.experiment
    return experiment.method.name, experiment.run.seed, experiment.run.rounds


def _spent(recorded: RecordedRun) -> Spent:
    """Add up the rounds on record: a resumed run has some behind it."""
    lines = recorded.directory.rounds()
    names = ("bytes_up", "bytes_down", "gradients", "seconds")
    return Spent(len(lines), **{name: sum(line[name] for line in lines) for name in names})


def _show(
    recorded: RecordedRun, final: list[Evaluation], cost: dict[str, Any], *, as_json: bool
) -> None:
    if as_json:
        write_json_line({"event": "result", **_result(recorded, final, cost)})
        return
    from motet._cli.run_summary import show_result

    show_result(recorded, final, cost)


def _result(recorded: RecordedRun, final: list[Evaluation], cost: dict[str, Any]) -> dict[str, Any]:
    return {
        "directory": str(recorded.directory.path),
        "experiment": recorded.experiment.to_dict(),
        "warnings": list(recorded.run.warnings),
        "divergence": recorded.run.divergence.to_dict(final[0]),
        "cost": cost,
        "results": [
            {**one.summary(), "scores": [score._asdict() for score in one.rows]} for one in final
        ],
    }


def _stopped(recorded: RecordedRun, stop: KeyboardInterrupt) -> RunStoppedError:
    saved, finished = recorded.directory.checkpoint.saved, recorded.run.rounds_done
    kept = "" if saved == finished else f"round {saved} is saved; " if saved else "none is saved; "
    return RunStoppedError(f"stopped {_round(recorded)}; {kept}{_how_to_resume(recorded)}.", stop)


def _round(recorded: RecordedRun) -> str:
    return f"after round {recorded.run.rounds_done} of {recorded.experiment.run.rounds}"


def _how_to_resume(recorded: RecordedRun) -> str:
    return f"continue with `motet resume {recorded.directory.path}`"
