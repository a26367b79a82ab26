"""Experiment tracking with TensorBoard and MLflow.

Each is imported only when its sink is created; both come with the extra `motet[tracking]`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from motet._engine.observers import Several, Watcher
from motet.tracking._mlflow_sink import MLflowSink
from motet.tracking._tensorboard_sink import TensorBoardSink
from motet.tracking._tolerant import Tolerant

if TYPE_CHECKING:  # loads torch
    from motet._engine.results import Row

__all__ = ["MLflowSink", "Several", "TensorBoardSink", "Tolerant", "Watcher", "sinks"]


def sinks(
    *,
    tensorboard: str | Path | None = None,
    mlflow: str | None = None,
    before: Iterable[Row] = (),
    warn: Callable[[str], None] = warnings.warn,
) -> list[Watcher]:
    """Create the requested sinks; errors in them never stop a run.

    Args:
        tensorboard: Directory for event files.
        mlflow: Tracking URI, such as "sqlite:///mlflow.db" or "http://host:5000".
        before: Rows that finished earlier, needed for the shares of harmed clients.
        warn: Called once per sink that fails.

    Returns:
        A watcher for each that was asked for.

    Example:
        >>> sinks()
        []
    """
    rows, made = tuple(before), list[Watcher]()
    if tensorboard is not None:
        made.append(Tolerant(TensorBoardSink(tensorboard, before=rows), "TensorBoard", warn))
    if mlflow is not None:
        made.append(Tolerant(MLflowSink(mlflow, before=rows), "MLflow", warn))
    return made
