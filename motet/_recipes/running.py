"""Run a recipe: what has not finished, one training and seed at a time, from where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from motet._core.directory_lock import DirectoryLock
from motet._engine.evaluation import Evaluation
from motet._recipes.preparing import prepared
from motet._recipes.recipe import Recipe, Tables, merged
from motet._recipes.records import PointScores, Records, Result
from motet._runs.leftovers import CONFIG
from motet._runs.recorded_run import RecordedRun, begin, resume
from motet.config import Experiment, experiment_from_dict
from motet.errors import CapabilityError

RUNNING = "running"  # the folder of the run under way


class Stopped(Exception):  # noqa: N818  # a wish, not an error
    """The caller asked to stop, and the run under way is saved."""


def require_available(recipe: Recipe) -> None:
    """Refuse a recipe whose data or settings are not available."""
    if recipe.unavailable is not None:
        raise CapabilityError(f'"{recipe.name}" cannot be run: {recipe.unavailable}')


@contextmanager
def open_records(recipe: Recipe, scale: str, out: Path) -> Iterator[Records]:
    """Hold the directory of the results, for one process."""
    lock = DirectoryLock.take(out, make=True)
    try:
        yield Records.open(out, recipe, scale)
    finally:
        lock.close()


def runs_left(recipe: Recipe, scale: str, records: Records) -> list[tuple[str, int]]:
    """List the trainings and seeds that have not finished."""
    wanted = [(name, seed) for name in recipe.trained(scale) for seed in recipe.seeds(scale)]
    return [key for key in wanted if key not in records.runs]


def run_left(
    recipe: Recipe, scale: str, records: Records, stop: Callable[[], object] = lambda: False
) -> Iterator[Result]:
    """Run what has not finished, and yield every result when it is on disk.

    Raises:
        Stopped: `stop` said so after a round.
    """
    require_available(recipe)
    folder = records.path.parent
    data = None if recipe.prepare is None else prepared(recipe.prepare, folder / "data")
    for training, seed in runs_left(recipe, scale, records):
        tables = training_tables(recipe, scale, training, seed, data)
        path = folder / RUNNING / f"{training}-{seed}"
        records.add(finished(path, training, experiment_from_dict(tables), stop))
        shutil.rmtree(path)
        yield records.runs[training, seed]
    shutil.rmtree(folder / RUNNING, ignore_errors=True)


def training_tables(
    recipe: Recipe, scale: str, training: str, seed: int, data: Path | None
) -> Tables:
    """Return the config of one run."""
    points = dict.fromkeys(cell.point for cell in recipe.cells if cell.training == training)
    named = [point for point in points if point is not None]
    only_named = bool(named) and None not in points
    tables = recipe.tables(training, scale)
    own = {"seed": seed, "evaluate_every": tables.get("run", {}).get("rounds", 1)}
    tables = merged({"run": own}, tables)
    tables["run"] = {**tables["run"], "seed": seed}
    if named:
        reported = experiment_from_dict(_with_data(tables, data)).method.reported
        tables["run"]["points"] = named if only_named else list(dict.fromkeys([reported, *named]))
    return _with_data(tables, data)


def _with_data(tables: Tables, data: Path | None) -> Tables:
    return tables if data is None else merged(tables, {"data": {"table": str(data)}})


def finished(
    path: Path, training: str, experiment: Experiment, stop: Callable[[], object]
) -> Result:
    """Begin a run, or go on with it, to its end."""
    is_begun = (path / CONFIG).exists()
    recorded = resume(path) if is_begun else begin(experiment, path, overwrite=True)
    with recorded.directory:
        for done in recorded.rounds():
            if stop() and done.round.number < experiment.run.rounds:
                recorded.save()
                raise Stopped
        return _result(recorded, training, recorded.conclude())


def _result(recorded: RecordedRun, training: str, final: list[Evaluation]) -> Result:
    scores = {evaluation.point: PointScores.of(evaluation) for evaluation in final}
    return Result(
        training=training,
        seed=recorded.experiment.run.seed,
        reported=recorded.experiment.method.reported,
        rounds=recorded.run.rounds_done,
        split=recorded.run.setting.federation.hash,
        seconds=sum(line["seconds"] for line in recorded.directory.rounds()),
        scores=scores,
    )
