"""A run as its directory holds it, to look at: nothing in the directory changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from motet.checkpoint import Checkpoint, disk_store, read_meta
from motet.config import Experiment, experiment_from_dict
from motet.errors import StateError
from motet.federation import Run
from motet.folder import CHECKPOINT, Folder


class SavedRun(NamedTuple):
    """An experiment with every default, and its run after the last round that was saved."""

    experiment: Experiment
    run: Run


@contextmanager
def saved_run(path: Path) -> Iterator[SavedRun]:
    """Open the run in a directory for reading; nobody else may work on it meanwhile."""
    with Folder.open(path) as folder:
        tables = folder.tables()
        if "compare" in tables:
            raise StateError(
                f"{path} holds a comparison, which keeps scores and no models; run the method that "
                "you chose with `motet run --out DIR`."
            )
        experiment = experiment_from_dict(tables)
        read_meta(path / CHECKPOINT)  # refuses a run of which nothing was saved yet
        federation = experiment.federation()
        folder.verify(federation)
        store = disk_store(path / CHECKPOINT, read_only=True)
        try:
            run = experiment.start(federation, store)
            Checkpoint(run, path / CHECKPOINT).restore()
            yield SavedRun(experiment.resolved(federation), run)
        finally:
            store.close()
