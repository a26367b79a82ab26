"""Methods by name. The table holds strings, so that naming a method costs no import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motet._core.own_code import import_named
from motet.errors import RequestError, nearest

if TYPE_CHECKING:  # imports torch, which naming a method does not need
    from motet.method import AnyMethod

_TABLE = {
    # reference points
    "local": "motet.methods._local:Local",
    "fedavg": "motet.methods._fedavg:FedAvg",
    "fedavg-ft": "motet.methods._fedavg_ft:FedAvgFT",
    "fedavg-shared": "motet.methods._fedavg_shared:FedAvgShared",
    # the five systems
    "fedper": "motet.methods._fedper:FedPer",
    "fedfomo": "motet.methods._fedfomo.method:FedFomo",
    "knn-per": "motet.methods._knn_per.method:KNNPer",
    "fedalt": "motet.methods._fedalt:FedAlt",
    "fedsim": "motet.methods._fedsim:FedSim",
    "flow": "motet.methods._flow.method:Flow",
    "dynamic-routing": "motet.methods._flow.dynamic_routing:DynamicRouting",
    # drift control and server optimizers
    "fedprox": "motet.methods._fedprox:FedProx",
    "scaffold": "motet.methods._scaffold:Scaffold",
    "feddyn": "motet.methods._feddyn:FedDyn",
    "moon": "motet.methods._moon:Moon",
    "fedavgm": "motet.methods._fedavgm:FedAvgM",
    "fedadagrad": "motet.methods._fedadagrad:FedAdagrad",
    "fedadam": "motet.methods._fedadam:FedAdam",
    "fedyogi": "motet.methods._fedyogi:FedYogi",
    # partial sharing
    "lg-fedavg": "motet.methods._lg_fedavg:LGFedAvg",
    "fedrep": "motet.methods._fedrep:FedRep",
    "fedbabu": "motet.methods._fedbabu:FedBABU",
    "fedbn": "motet.methods._fedbn:FedBN",
    "fedrecon": "motet.methods._fedrecon:FedRecon",
    "fedrod": "motet.methods._fedrod:FedRoD",
    "residual": "motet.methods._residual:ResidualFL",
    "fedala": "motet.methods._fedala:FedALA",
    # a model beside the global one
    "ditto": "motet.methods._ditto:Ditto",
    "mr-mtl": "motet.methods._mr_mtl:MRMTL",
    "l2gd": "motet.methods._l2gd:L2GD",
    "apfl": "motet.methods._apfl:APFL",
    "pfedme": "motet.methods._pfedme:PFedMe",
    "per-fedavg": "motet.methods._per_fedavg:PerFedAvg",
    # clusters and mixtures
    "cfl": "motet.methods._cfl:CFL",
    "ifca": "motet.methods._ifca:IFCA",
    "fedem": "motet.methods._fedem:FedEM",
    # relations, prototypes, generated models
    "mocha": "motet.methods._mocha:Mocha",
    "mocha-deep": "motet.methods._mocha_deep:MochaDeep",
    "fedamp": "motet.methods._fedamp:FedAMP",
    "heur-fedamp": "motet.methods._fedamp:HeurFedAMP",
    "fedproto": "motet.methods._fedproto:FedProto",
    "pfedhn": "motet.methods._pfedhn:PFedHN",
}


def method_names() -> tuple[str, ...]:
    """List every method, baselines first.

    Returns:
        Names, as on the command line.

    Example:
        >>> method_names()[:3]
        ('local', 'fedavg', 'fedavg-ft')
    """
    return tuple(_TABLE)


def method_class(name: str) -> type[AnyMethod]:
    """Find a method's class by its name, or one of your own as "package.module:Class".

    Args:
        name: One of `method_names()`, or `package.module:Class`.

    Returns:
        The class.

    Raises:
        RequestError: There is no such method.

    Example:
        >>> method_class("fedper").__name__
        'FedPer'
    """
    from motet.method import Method

    found = imported(_TABLE.get(name, name), what="method", known=_TABLE)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise RequestError(f'"{name}" is not a method: expected a subclass of motet.Method.')
    return found


def imported(path: str, *, what: str, known: Any) -> Any:
    """Import "package.module:Name"; anything else is an unknown name."""
    if ":" not in path:
        raise RequestError(f'no {what} is called "{path}"; {nearest(path, known)}.', option="name")
    try:
        return import_named(path)
    except (ImportError, AttributeError, ValueError) as reason:
        raise RequestError(
            f'cannot import {what} "{path}": {reason}. Write package.module:Name; the '
            "module may be installed, beside the config file or in this directory."
        ) from reason
