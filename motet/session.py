"""A run that writes everything down as it goes, and can go on after any interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from motet.checkpoint import disk_store
from motet.checks import check_scorable
from motet.config import Experiment, experiment_from_dict
from motet.data import Federation
from motet.data.raw import SPLITS
from motet.evaluate import Evaluation
from motet.federation import Round, Run
from motet.folder import CHECKPOINT, PRIVACY, check_free
from motet.privacy.ledger import spending
from motet.records import json_text
from motet.rundir import RunDirectory
from motet.store import Store


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
            self._warn_of_damage()
            self.directory.record(done, validation)
            if self._is_due(done.number, self.experiment.run.checkpoint_every):
                self.save()
            yield Step(done, validation)

    def conclude(self) -> list[Evaluation]:
        """Score the last round on the test data, the headline first, and save everything."""
        points = self.experiment.run.points
        final = [self.run.evaluate(split="test", point=point) for point in points]
        self._warn_of_damage()
        self.directory.conclude(final)
        spent = spending(self.run)
        if spent:
            self.directory.replace(PRIVACY, json_text(spent, indent=2).encode())
        return final

    def save(self) -> None:
        """Save the state between two rounds, so that the run can be resumed from here."""
        self.directory.save()

    def _warn_of_damage(self) -> None:
        for client, why in self.directory.checkpoint.states.damaged.items():
            lost = f'what client "{client}" kept was lost, and it starts afresh: {why}'
            if lost not in self.run.warnings:
                self.run.warnings += (lost,)

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
    run = complete.start(federation, _store(complete, out))
    complete = complete.planned(run)
    directory = RunDirectory.create(out, complete.to_dict(), federation, overwrite=overwrite)
    directory.attach(run)
    return Session(complete, run, directory)


def resume(path: Path) -> Session:
    """Take up a run where its last checkpoint left it, or from the start if there is none."""
    directory = RunDirectory.open(path)
    try:
        experiment = experiment_from_dict(directory.tables())
        federation = experiment.federation()
        directory.verify(federation)
        run = experiment.start(federation, _store(experiment, path))
        directory.restore(run)
        session = Session(experiment.resolved(federation), run, directory)
        session._warn_of_damage()
    except BaseException:
        directory.close()
        raise
    return session


def _store(experiment: Experiment, path: Path) -> Store | None:
    """Make the store that the experiment asks for; no file is touched before it is used."""
    return disk_store(path / CHECKPOINT) if experiment.run.store == "disk" else None


def _has(federation: Federation, split: str) -> bool:
    return bool(federation.rows.sizes[:, SPLITS.index(split)].any())
