"""A session from where it is to its end: what `motet run` and `motet resume` have in common."""

from __future__ import annotations

from typing import Any

from motet.cli.failures import RunFailedError, RunStoppedError, one_line
from motet.cli.interrupt import Interrupt
from motet.cli.progress import progress, validation_note
from motet.cli.terminal import say, warn, write_json
from motet.evaluate import Evaluation
from motet.session import Session


def drive(session: Session, *, as_json: bool, quiet: bool) -> None:
    """Run what is left, and show the result."""
    for warning in session.run.warnings:
        warn(warning)
    with session.directory:
        try:
            final = _finish(session, quiet=quiet)
        except KeyboardInterrupt:
            raise _stopped(session) from None
        except Exception as error:
            why = one_line(error)
            raise RunFailedError(
                f"the run failed {_round(session)}: {why}; {_how_to_resume(session)}."
            ) from error
        result = _result(session, final)
    if as_json:
        write_json(result)
        return
    from motet.cli.showing import show_result

    show_result(session, final, result["cost"])
    if not quiet:
        say(f"\nKept in {session.directory.path}")


def _finish(session: Session, *, quiet: bool) -> list[Evaluation]:
    total, done = session.experiment.run.rounds, session.run.finished
    promise = "Stopping after this round, and saving it."
    with (
        Interrupt(promise) as interrupt,
        progress("round", total, done=done, quiet=quiet) as shown,
    ):
        for step in session.rounds():
            shown.step(validation_note(step.validation), worth_a_line=step.validation is not None)
            if interrupt.asked and step.round.number < total:
                session.save()
                raise KeyboardInterrupt
        return session.conclude()


def _result(session: Session, final: list[Evaluation]) -> dict[str, Any]:
    rounds = session.directory.rounds()
    names = ("bytes_up", "bytes_down", "gradients", "seconds")
    return {
        "directory": str(session.directory.path),
        "experiment": session.experiment.to_dict(),
        "warnings": list(session.run.warnings),
        "cost": {name: sum(line[name] for line in rounds) for name in names},
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
