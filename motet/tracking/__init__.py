"""Runs in the places where teams look at their runs: TensorBoard and MLflow.

Neither is loaded before its sink is made; both come with the extra `motet[tracking]`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from motet.tracking.mlflow_sink import MLflowSink
from motet.tracking.tensorboard_sink import TensorBoardSink
from motet.tracking.tolerant import Tolerant
from motet.watching import Watcher

if TYPE_CHECKING:  # loads torch
    from motet.comparing.comparison import Row

__all__ = ["MLflowSink", "TensorBoardSink", "Tolerant", "sinks"]


def sinks(
    *,
    tensorboard: str | Path | None = None,
    mlflow: str | None = None,
    before: Iterable[Row] = (),
    warn: Callable[[str], None] = warnings.warn,
) -> list[Watcher]:
    """Make the sinks that were asked for, none of which can stop a run.

    Args:
        tensorboard: Directory for event files.
        mlflow: Tracking URI, such as "sqlite:///mlflow.db" or "http://host:5000".
        before: Rows that finished earlier, for the shares of clients harmed.
        warn: Hears, once per sink, that it gave up.
    """
    rows, made = tuple(before), list[Watcher]()
    if tensorboard is not None:
        made.append(Tolerant(TensorBoardSink(tensorboard, before=rows), "TensorBoard", warn))
    if mlflow is not None:
        made.append(Tolerant(MLflowSink(mlflow, before=rows), "MLflow", warn))
    return made
