"""Motet: personalized federated learning.

One federation, and every client ends with the model that is best for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet import data, models, testing
    from motet.evaluate import Evaluation
    from motet.federation import Round, Run, rounds, run
    from motet.fitting import fit
    from motet.keys import Key
    from motet.method import Method
    from motet.methods.fedavg import FedAvg
    from motet.methods.fedavg_ft import FedAvgFT
    from motet.methods.fedper import FedPer
    from motet.methods.local import Local
    from motet.optim import Adam, Sgd
    from motet.reduce import Gather, Mean
    from motet.selectors import Blocks
    from motet.task import Task

__version__ = "0.1.0"

# Loaded on first use, so that `motet --help` need not wait for torch.
_HOMES = {
    "Adam": "motet.optim",
    "Blocks": "motet.selectors",
    "Evaluation": "motet.evaluate",
    "FedAvg": "motet.methods.fedavg",
    "FedAvgFT": "motet.methods.fedavg_ft",
    "FedPer": "motet.methods.fedper",
    "Gather": "motet.reduce",
    "Key": "motet.keys",
    "Local": "motet.methods.local",
    "Mean": "motet.reduce",
    "Method": "motet.method",
    "Round": "motet.federation",
    "Run": "motet.federation",
    "Sgd": "motet.optim",
    "Task": "motet.task",
    "data": "motet.data",
    "fit": "motet.fitting",
    "models": "motet.models",
    "rounds": "motet.federation",
    "run": "motet.federation",
    "testing": "motet.testing",
}

__all__ = [
    "Adam",
    "Blocks",
    "Evaluation",
    "FedAvg",
    "FedAvgFT",
    "FedPer",
    "Gather",
    "Key",
    "Local",
    "Mean",
    "Method",
    "Round",
    "Run",
    "Sgd",
    "Task",
    "data",
    "fit",
    "models",
    "rounds",
    "run",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if _HOMES[name] == f"motet.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
