"""Where a deployment comes from: a run that was tried, or the config of one."""

from __future__ import annotations

from pathlib import Path

from motet.config import Experiment, load_experiment
from motet.errors import RequestError
from motet.folder import CONFIG


def experiment_of(run: Path) -> Experiment:
    """Read the experiment of a run directory or a config file."""
    if not run.exists():
        raise RequestError(f"there is no run directory and no config file at {run}.")
    if run.is_file():
        return load_experiment(run)
    if not (run / CONFIG).is_file():
        raise RequestError(f"{run} holds no {CONFIG}; expected a directory made by `motet run`.")
    return load_experiment(run / CONFIG)
