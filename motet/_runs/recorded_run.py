"""Runs that are recorded in a directory and can be resumed after any interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from motet._core.points import Point
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Round, Run
from motet._engine.looks import Looks, is_due
from motet._engine.preflight import check_scorable
from motet._engine.records import json_text
from motet._engine.round_loop import RoundObserver, play_rounds
from motet._engine.stores.memory import Store
from motet._runs.checkpoint import disk_store
from motet._runs.leftovers import CHECKPOINT, PRIVACY
from motet._runs.run_dir import RunDirectory
from motet.config import Experiment, experiment_from_dict
from motet.data import Federation
from motet.data._raw import SPLITS
from motet.privacy._ledger import spending


class Step(NamedTuple):
    """A round that is on record, with a look at the validation data if one was due."""

    round: Round
    validation: Evaluation | None


@dataclass(frozen=True)
class RecordedRun:
    """A run and the directory that holds it."""

    experiment: Experiment  # complete
    run: Run
    directory: RunDirectory

    def rounds(self) -> Iterator[Step]:
        """Run what is left, a round at a time. Between two rounds the caller may save and stop."""
        recorder = _Recorder(self)
        for done in play_rounds(self.run, [recorder]):
            yield Step(done, recorder.validation)

    def conclude(self) -> list[Evaluation]:
        """Score the last round on the test data, the headline first, and save everything."""
        final = [self.run.evaluate(split="test", point=point) for point in self._points]
        self._warn_of_damage()
        total = len(self.run.setting.federation.clients)
        self._warn(*self.run.divergence.sentences(total, final[0]), *final[0].undefined_sentences())
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
            self._warn(f'what client "{client}" kept was lost, and it starts afresh: {why}')

    def _warn(self, *remarks: str) -> None:
        self.run.warnings += tuple(text for text in remarks if text not in self.run.warnings)

    @property
    def _points(self) -> tuple[Point, ...]:
        return self.experiment.run.scored(self.experiment.method)


class _Recorder(RoundObserver):
    """Scores validation data when that is due, writes every round down, and saves."""

    def __init__(self, recorded: RecordedRun) -> None:
        self.recorded = recorded
        self.validation: Evaluation | None = None  # after the last round
        self.point = recorded._points[0]
        self.looks = Looks(recorded.run, self.point)
        self.has_validation = _has(recorded.run.setting.federation, "val")

    def after_round(self, done: Round) -> None:
        """Score, record and save."""
        plan, recorded = self.recorded.experiment.run, self.recorded
        assert plan.evaluate_every is not None
        looks = self.has_validation and is_due(done.number, plan.evaluate_every, plan.rounds)
        self.validation = done.evaluate("val", self.point) if looks else None
        recorded._warn_of_damage()
        spent = self.looks.gradients() if looks else 0.0
        recorded.directory.record(done, self.validation, look_gradients=spent)
        if is_due(done.number, plan.checkpoint_every, plan.rounds):
            recorded.save()


def begin(experiment: Experiment, out: Path, *, overwrite: bool = False) -> RecordedRun:
    """Start an experiment in a new run directory, after everything has been checked."""
    return begin_in(RunDirectory.claim(out, overwrite=overwrite), experiment)


def begin_in(directory: RunDirectory, experiment: Experiment) -> RecordedRun:
    """Start an experiment in a directory that was claimed for it."""
    with directory.giving_up():
        federation = experiment.federation()
        check_scorable(federation)
        complete = experiment.resolved(federation)
        run = complete.start(federation, _store(complete, directory.path))
        complete = complete.planned(run)
        if experiment.run.evaluate_every is None:
            every = Looks(run, complete.run.scored(complete.method)[0]).interval()
            complete = replace(complete, run=replace(complete.run, evaluate_every=every))
        directory.start(complete.to_dict(), federation)
        directory.attach(run)
        directory.checkpoint.require_new()
        return RecordedRun(complete, run, directory)


def resume(path: Path) -> RecordedRun:
    """Take up a run where its last checkpoint left it, or from the start if there is none."""
    return resume_in(RunDirectory.open(path))


def resume_in(directory: RunDirectory) -> RecordedRun:
    """Take up the run of a directory that is open."""
    with directory.giving_up():
        experiment = experiment_from_dict(directory.tables())
        federation = experiment.federation()
        directory.verify(federation)
        run = experiment.start(federation, _store(experiment, directory.path))
        directory.restore(run)
        recorded = RecordedRun(experiment.resolved(federation), run, directory)
        recorded._warn_of_damage()
        return recorded


def _store(experiment: Experiment, path: Path) -> Store | None:
    """Make the store that the experiment asks for; no file is touched before it is used."""
    return disk_store(path / CHECKPOINT) if experiment.run.store == "disk" else None


def _has(federation: Federation, split: str) -> bool:
    return bool(federation.rows.sizes[:, SPLITS.index(split)].any())
