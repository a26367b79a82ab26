"""The origin of a deployment: a run directory, or a config file."""

from __future__ import annotations

from pathlib import Path

from motet._core.real_paths import did_you_mean
from motet._runs.leftovers import CONFIG
from motet.config import Experiment, load_experiment
from motet.errors import RequestError


def experiment_of(run: Path) -> Experiment:
    r"""Read the experiment of a run directory or a config file.

    Args:
        run: A run directory, or a config file.

    Returns:
        The experiment.

    Raises:
        RequestError: There is neither at this path.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     config = Path(folder) / "exp.toml"
        ...     _ = config.write_text('[method]\nname = "fedper"\n')
        ...     experiment_of(config).method.name
        'fedper'
    """
    if not run.exists():
        raise RequestError(f"there is no run directory or config file at {run}.{did_you_mean(run)}")
    if run.is_file():
        return load_experiment(run)
    if not (run / CONFIG).is_file():
        raise RequestError(f"{run} has no {CONFIG}; expected a directory made by `motet run`.")
    return load_experiment(run / CONFIG)
