"""A session from where it is to its end: what `motet run` and `motet resume` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from motet.cli.failures import RunFailedError, RunStoppedError, one_line
from motet.cli.interrupt import Interrupt
from motet.cli.live import View, watching
from motet.cli.terminal import say, warn, write_json_line
from motet.comparing.budget import Spent
from motet.comparing.comparison import Cost, Row
from motet.comparing.contestants import cost_of, look_at
from motet.evaluate import Evaluation
from motet.session import Session
from motet.watching import Watcher


def drive(session: Session, *, as_json: bool, quiet: bool, also: Sequence[Watcher] = ()) -> None:
    """Run what is left, and show the result; `also` are told what happens, too."""
    known = session.run.warnings
    for warning in known:
        warn(warning)
    label, seed, rounds = _identity(session)
    with session.directory:
        try:
            with watching([label], [seed], rounds, quiet=quiet, as_json=as_json, also=also) as view:
                final, cost = _finished(session, view)
        except KeyboardInterrupt:
            raise _stopped(session) from None
        except Exception as error:
            why = one_line(error)
            raise RunFailedError(
                f"the run failed {_round(session)}: {why}; {_how_to_resume(session)}."
            ) from error
    for warning in session.run.warnings[len(known) :]:  # those that came up on the way
        warn(warning)
    _show(session, final, asdict(cost), as_json=as_json)
    if not (as_json or quiet):
        say(f"\nKept in {session.directory.path}")


def _finished(session: Session, view: View) -> tuple[list[Evaluation], Cost]:
    label, seed, _ = _identity(session)
    try:
        return _finish(session, view)
    except Exception as error:
        view.failed(label, seed, one_line(error))
        raise


def _finish(session: Session, view: View) -> tuple[list[Evaluation], Cost]:
    label, seed, rounds = _identity(session)
    spent = _spent(session)
    view.began(label, seed, rounds)
    with Interrupt("Stopping after this round, and saving it.", view.tell) as interrupt:
        for done, validation in session.rounds():
            spent = spent.after(done)
            look = None if validation is None else look_at(validation, spent)
            view.round_done(label, seed, done, look)
            if interrupt.asked and done.number < rounds:
                session.save()
                raise KeyboardInterrupt
        final = session.conclude()
    cost = cost_of(session.run, spent)
    view.finished(label, seed, Row(label=label, seed=seed, evaluation=final[0], cost=cost))
    return final, cost


def _identity(session: Session) -> tuple[str, int, int]:
    experiment = session.experiment
    return experiment.method.name, experiment.run.seed, experiment.run.rounds


def _spent(session: Session) -> Spent:
    """Add up the rounds on record: a resumed run has some behind it."""
    lines = session.directory.rounds()
    names = ("bytes_up", "bytes_down", "gradients", "seconds")
    return Spent(len(lines), **{name: sum(line[name] for line in lines) for name in names})


def _show(
    session: Session, final: list[Evaluation], cost: dict[str, Any], *, as_json: bool
) -> None:
    if as_json:
        write_json_line({"event": "result", **_result(session, final, cost)})
        return
    from motet.cli.showing import show_result

    show_result(session, final, cost)


def _result(session: Session, final: list[Evaluation], cost: dict[str, Any]) -> dict[str, Any]:
    return {
        "directory": str(session.directory.path),
        "experiment": session.experiment.to_dict(),
        "warnings": list(session.run.warnings),
        "cost": cost,
        "results": [
            {**one.summary(), "scores": [score._asdict() for score in one.rows]} for one in final
        ],
    }


def _stopped(session: Session) -> RunStoppedError:
    return RunStoppedError(f"stopped {_round(session)}; {_how_to_resume(session)}.")


def _round(session: Session) -> str:
    return f"after round {session.run.finished} of {session.experiment.run.rounds}"


def _how_to_resume(session: Session) -> str:
    return f"go on with `motet resume {session.directory.path}`"
