"""Motet: personalized federated learning.

One federation, and every client ends with the model that is best for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet import data, models, report, testing
    from motet.comparing.budget import Budget
    from motet.comparing.comparison import Comparison
    from motet.comparing.contest import compare
    from motet.comparing.tuning import Search
    from motet.evaluate import Evaluation
    from motet.execution.planning import ExecutionPlan
    from motet.exporting.export import export
    from motet.exporting.predictors import load_predictor
    from motet.faults import Faults
    from motet.federation import Round, Run, rounds, run
    from motet.fitting import fit
    from motet.judging.verdict import Verdict
    from motet.keys import Key
    from motet.method import Method
    from motet.methods.apfl import APFL
    from motet.methods.cfl import CFL
    from motet.methods.ditto import Ditto
    from motet.methods.dynamic_routing import DynamicRouting
    from motet.methods.fedadagrad import FedAdagrad
    from motet.methods.fedadam import FedAdam
    from motet.methods.fedala import FedALA
    from motet.methods.fedalt import FedAlt
    from motet.methods.fedamp import FedAMP, HeurFedAMP
    from motet.methods.fedavg import FedAvg
    from motet.methods.fedavg_ft import FedAvgFT
    from motet.methods.fedavg_shared import FedAvgShared
    from motet.methods.fedavgm import FedAvgM
    from motet.methods.fedbabu import FedBABU
    from motet.methods.fedbn import FedBN
    from motet.methods.feddyn import FedDyn
    from motet.methods.fedem import FedEM
    from motet.methods.fedfomo import FedFomo
    from motet.methods.fedper import FedPer
    from motet.methods.fedproto import FedProto
    from motet.methods.fedprox import FedProx
    from motet.methods.fedrecon import FedRecon
    from motet.methods.fedrep import FedRep
    from motet.methods.fedrod import FedRoD
    from motet.methods.fedsim import FedSim
    from motet.methods.fedyogi import FedYogi
    from motet.methods.flow import Flow
    from motet.methods.ifca import IFCA
    from motet.methods.knn_per import KNNPer
    from motet.methods.l2gd import L2GD
    from motet.methods.lg_fedavg import LGFedAvg
    from motet.methods.local import Local
    from motet.methods.mocha import Mocha
    from motet.methods.mocha_deep import MochaDeep
    from motet.methods.moon import Moon
    from motet.methods.mr_mtl import MRMTL
    from motet.methods.per_fedavg import PerFedAvg
    from motet.methods.pfedhn import PFedHN
    from motet.methods.pfedme import PFedMe
    from motet.methods.residual import ResidualFL
    from motet.methods.scaffold import Scaffold
    from motet.optim import Adagrad, Adam, Sgd, Yogi
    from motet.privacy.optimizer import Private
    from motet.privacy.uploads import PrivateMean
    from motet.reduce import Gather, Mean
    from motet.robust import ClippedMean, Krum, Median, TrimmedMean
    from motet.schedules import Exponential, Linear
    from motet.selectors import Blocks
    from motet.stores.disk import DiskStore
    from motet.studies import Study
    from motet.task import Task

__version__ = "0.1.0"

# Loaded on first use, so that `motet --help` need not wait for torch.
_HOMES = {
    "APFL": "motet.methods.apfl",
    "Adagrad": "motet.optim",
    "Adam": "motet.optim",
    "Blocks": "motet.selectors",
    "Budget": "motet.comparing.budget",
    "CFL": "motet.methods.cfl",
    "ClippedMean": "motet.robust",
    "Comparison": "motet.comparing.comparison",
    "DiskStore": "motet.stores.disk",
    "Ditto": "motet.methods.ditto",
    "DynamicRouting": "motet.methods.dynamic_routing",
    "Evaluation": "motet.evaluate",
    "ExecutionPlan": "motet.execution.planning",
    "Exponential": "motet.schedules",
    "Faults": "motet.faults",
    "FedALA": "motet.methods.fedala",
    "FedAMP": "motet.methods.fedamp",
    "FedAdagrad": "motet.methods.fedadagrad",
    "FedAdam": "motet.methods.fedadam",
    "FedAlt": "motet.methods.fedalt",
    "FedAvg": "motet.methods.fedavg",
    "FedAvgFT": "motet.methods.fedavg_ft",
    "FedAvgM": "motet.methods.fedavgm",
    "FedAvgShared": "motet.methods.fedavg_shared",
    "FedBABU": "motet.methods.fedbabu",
    "FedBN": "motet.methods.fedbn",
    "FedDyn": "motet.methods.feddyn",
    "FedEM": "motet.methods.fedem",
    "FedFomo": "motet.methods.fedfomo",
    "FedPer": "motet.methods.fedper",
    "FedProto": "motet.methods.fedproto",
    "FedProx": "motet.methods.fedprox",
    "FedRecon": "motet.methods.fedrecon",
    "FedRep": "motet.methods.fedrep",
    "FedRoD": "motet.methods.fedrod",
    "FedSim": "motet.methods.fedsim",
    "FedYogi": "motet.methods.fedyogi",
    "Flow": "motet.methods.flow",
    "Gather": "motet.reduce",
    "HeurFedAMP": "motet.methods.fedamp",
    "IFCA": "motet.methods.ifca",
    "KNNPer": "motet.methods.knn_per",
    "Key": "motet.keys",
    "Krum": "motet.robust",
    "L2GD": "motet.methods.l2gd",
    "LGFedAvg": "motet.methods.lg_fedavg",
    "Linear": "motet.schedules",
    "Local": "motet.methods.local",
    "MRMTL": "motet.methods.mr_mtl",
    "Mean": "motet.reduce",
    "Median": "motet.robust",
    "Method": "motet.method",
    "Mocha": "motet.methods.mocha",
    "MochaDeep": "motet.methods.mocha_deep",
    "Moon": "motet.methods.moon",
    "PFedHN": "motet.methods.pfedhn",
    "PFedMe": "motet.methods.pfedme",
    "PerFedAvg": "motet.methods.per_fedavg",
    "Private": "motet.privacy.optimizer",
    "PrivateMean": "motet.privacy.uploads",
    "ResidualFL": "motet.methods.residual",
    "Round": "motet.federation",
    "Run": "motet.federation",
    "Scaffold": "motet.methods.scaffold",
    "Search": "motet.comparing.tuning",
    "Sgd": "motet.optim",
    "Study": "motet.studies",
    "Task": "motet.task",
    "TrimmedMean": "motet.robust",
    "Verdict": "motet.judging.verdict",
    "Yogi": "motet.optim",
    "compare": "motet.comparing.contest",
    "data": "motet.data",
    "export": "motet.exporting.export",
    "fit": "motet.fitting",
    "load_predictor": "motet.exporting.predictors",
    "models": "motet.models",
    "report": "motet.report",
    "rounds": "motet.federation",
    "run": "motet.federation",
    "testing": "motet.testing",
}

__all__ = [
    "APFL",
    "CFL",
    "IFCA",
    "L2GD",
    "MRMTL",
    "Adagrad",
    "Adam",
    "Blocks",
    "Budget",
    "ClippedMean",
    "Comparison",
    "DiskStore",
    "Ditto",
    "DynamicRouting",
    "Evaluation",
    "ExecutionPlan",
    "Exponential",
    "Faults",
    "FedALA",
    "FedAMP",
    "FedAdagrad",
    "FedAdam",
    "FedAlt",
    "FedAvg",
    "FedAvgFT",
    "FedAvgM",
    "FedAvgShared",
    "FedBABU",
    "FedBN",
    "FedDyn",
    "FedEM",
    "FedFomo",
    "FedPer",
    "FedProto",
    "FedProx",
    "FedRecon",
    "FedRep",
    "FedRoD",
    "FedSim",
    "FedYogi",
    "Flow",
    "Gather",
    "HeurFedAMP",
    "KNNPer",
    "Key",
    "Krum",
    "LGFedAvg",
    "Linear",
    "Local",
    "Mean",
    "Median",
    "Method",
    "Mocha",
    "MochaDeep",
    "Moon",
    "PFedHN",
    "PFedMe",
    "PerFedAvg",
    "Private",
    "PrivateMean",
    "ResidualFL",
    "Round",
    "Run",
    "Scaffold",
    "Search",
    "Sgd",
    "Study",
    "Task",
    "TrimmedMean",
    "Verdict",
    "Yogi",
    "compare",
    "data",
    "export",
    "fit",
    "load_predictor",
    "models",
    "report",
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
