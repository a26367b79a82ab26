"""A run that writes everything down as it goes, and can go on after any interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from motet.checks import check_scorable
from motet.config import Experiment, experiment_from_dict
from motet.data import Federation
from motet.evaluate import Evaluation
from motet.federation import Round, Run
from motet.folder import check_free
from motet.rundir import RunDirectory


class Step(NamedTuple):
    """A round that is on record, with a look at the validation data if one was due."""

    round: Round
    validation: Evaluation | None


@dataclass(frozen=True)
class Session:
    """A run and the directory that holds it."""

    experiment: Experiment  # complete
    run: Run
    directory: RunDirectory

    def rounds(self) -> Iterator[Step]:
        """Run what is left, a round at a time. Between two rounds the caller may save and stop."""
        while self.run.finished < self.experiment.run.rounds:
            done = self.run.advance()
            validation = self._validated(done)
            self.directory.record(done, validation)
            if self._is_due(done.number, self.experiment.run.checkpoint_every):
                self.save()
            yield Step(done, validation)

    def conclude(self) -> list[Evaluation]:
        """Score the last round on the test data, the headline first, and save everything."""
        points = self.experiment.run.points
        final = [self.run.evaluate(split="test", point=point) for point in points]
        for evaluation in final:
            self.directory.add_scores(evaluation)
        self.save()
        return final

    def save(self) -> None:
        """Save the state between two rounds, so that the run can be resumed from here."""
        self.directory.save(self.run)

    def _validated(self, done: Round) -> Evaluation | None:
        every = self.experiment.run.evaluate_every
        assert every is not None
        due = self._is_due(done.number, every)
        return done.evaluate("val") if due and _has(self.run.setting.federation, "val") else None

    def _is_due(self, number: int, every: int) -> bool:
        return number % every == 0 or number == self.experiment.run.rounds


def begin(experiment: Experiment, out: Path, *, overwrite: bool = False) -> Session:
    """Start an experiment in a new run directory, after everything has been checked."""
    check_free(out, overwrite=overwrite)
    federation = experiment.federation()
    check_scorable(federation)
    complete = experiment.resolved(federation)
    run = complete.start(federation)
    directory = RunDirectory.create(out, complete.to_dict(), federation, overwrite=overwrite)
    return Session(complete, run, directory)


def resume(path: Path) -> Session:
    """Take up a run where its last checkpoint left it, or from the start if there is none."""
    directory = RunDirectory.open(path)
    try:
        experiment = experiment_from_dict(directory.tables())
        federation = experiment.federation()
        directory.verify(federation)
        run = experiment.start(federation)
        directory.restore(run)
    except BaseException:
        directory.close()
        raise
    return Session(experiment.resolved(federation), run, directory)


def _has(federation: Federation, split: str) -> bool:
    return any(federation.size(client, split) for client in federation.clients)
