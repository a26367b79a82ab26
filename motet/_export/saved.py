"""Read-only access to a run in its output directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from motet._engine.federation import Run
from motet._runs.checkpoint import Checkpoint, disk_store, read_meta
from motet._runs.leftovers import CHECKPOINT
from motet._runs.output_dir import OutputDir
from motet.config import Experiment, experiment_from_dict
from motet.errors import StateError


class SavedRun(NamedTuple):
    """An experiment with every default filled in, and its run after the last saved round."""

    experiment: Experiment
    run: Run


@contextmanager
def saved_run(path: Path) -> Iterator[SavedRun]:
    """Open the run in a directory for reading; the directory is locked meanwhile."""
    with OutputDir.open(path) as folder:
        tables = folder.tables()
        if "compare" in tables:
            raise StateError(
                f"{path} holds a comparison, which saves scores but not models; run the method of "
                "your choice with `motet run --out DIR`."
            )
        experiment = experiment_from_dict(tables)
        read_meta(path / CHECKPOINT)  # raises if nothing has been saved yet
        federation = experiment.federation()
        folder.verify(federation)
        store = disk_store(path / CHECKPOINT, read_only=True)
        try:
            run = experiment.start(federation, store)
            Checkpoint(run, path / CHECKPOINT, folder.history).restore()
            yield SavedRun(experiment.resolved(federation), run)
        finally:
            store.close()
