"""The round loop. Runs, comparisons, resumed runs and deployments add observers to it.

An observer scores, records, saves, counts a budget or waits for clients. A `Watcher` is for people
and programs that follow whole runs (`observers.py`); a `RoundObserver` is part of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the loop is used by the module that defines these
    from motet._engine.federation import Round, Run


class RoundObserver:
    """Takes part in the rounds of a run; override what is needed."""

    def is_done(self) -> bool:
        """Return whether to stop before the next round."""
        return False

    def before_round(self) -> None:
        """Prepare the next round, or its next attempt."""

    def after_round(self, done: Round) -> None:
        """Use the result of a round; observers are called in their order."""

    def handles(self, error: Exception) -> bool:
        """Return whether to go on after an error in a round; by default the loop raises it."""
        del error
        return False


class CommitStates(RoundObserver):
    """Makes private states durable after every round."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def after_round(self, done: Round) -> None:
        """Commit the store."""
        self.run.setting.store.commit()


def play_rounds(run: Run, observers: Sequence[RoundObserver]) -> Iterator[Round]:
    """Run the rounds that are left, and yield each after its observers have seen it.

    A round that fails with an error which an observer handles is run again, unless the observer is
    done by then.
    """
    while run.rounds_done < run.setting.rounds and not any(one.is_done() for one in observers):
        for observer in observers:
            observer.before_round()
        try:
            done = run.advance()
        except Exception as error:
            if not any(observer.handles(error) for observer in observers):
                raise
            continue
        for observer in observers:
            observer.after_round(done)
        yield done
