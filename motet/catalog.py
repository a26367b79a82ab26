"""Methods by name. The table holds strings, so that naming a method costs no import."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from motet.errors import RequestError, nearest

if TYPE_CHECKING:  # imports torch, which naming a method does not need
    from motet.method import AnyMethod

_TABLE = {
    # reference points
    "local": "motet.methods.local:Local",
    "fedavg": "motet.methods.fedavg:FedAvg",
    "fedavg-ft": "motet.methods.fedavg_ft:FedAvgFT",
    "fedavg-shared": "motet.methods.fedavg_shared:FedAvgShared",
    # the five systems
    "fedper": "motet.methods.fedper:FedPer",
    "fedfomo": "motet.methods.fedfomo:FedFomo",
    "knn-per": "motet.methods.knn_per:KNNPer",
    "fedalt": "motet.methods.fedalt:FedAlt",
    "fedsim": "motet.methods.fedsim:FedSim",
    "flow": "motet.methods.flow:Flow",
    "dynamic-routing": "motet.methods.dynamic_routing:DynamicRouting",
    # drift control and server optimizers
    "fedprox": "motet.methods.fedprox:FedProx",
    "scaffold": "motet.methods.scaffold:Scaffold",
    "feddyn": "motet.methods.feddyn:FedDyn",
    "moon": "motet.methods.moon:Moon",
    "fedavgm": "motet.methods.fedavgm:FedAvgM",
    "fedadagrad": "motet.methods.fedadagrad:FedAdagrad",
    "fedadam": "motet.methods.fedadam:FedAdam",
    "fedyogi": "motet.methods.fedyogi:FedYogi",
    # partial sharing
    "lg-fedavg": "motet.methods.lg_fedavg:LGFedAvg",
    "fedrep": "motet.methods.fedrep:FedRep",
    "fedbabu": "motet.methods.fedbabu:FedBABU",
    "fedbn": "motet.methods.fedbn:FedBN",
    "fedrecon": "motet.methods.fedrecon:FedRecon",
    "fedrod": "motet.methods.fedrod:FedRoD",
    "residual": "motet.methods.residual:ResidualFL",
    "fedala": "motet.methods.fedala:FedALA",
    # a model beside the global one
    "ditto": "motet.methods.ditto:Ditto",
    "mr-mtl": "motet.methods.mr_mtl:MRMTL",
    "l2gd": "motet.methods.l2gd:L2GD",
    "apfl": "motet.methods.apfl:APFL",
    "pfedme": "motet.methods.pfedme:PFedMe",
    "per-fedavg": "motet.methods.per_fedavg:PerFedAvg",
    # clusters and mixtures
    "cfl": "motet.methods.cfl:CFL",
    "ifca": "motet.methods.ifca:IFCA",
    "fedem": "motet.methods.fedem:FedEM",
    # relations, prototypes, generated models
    "mocha": "motet.methods.mocha:Mocha",
    "mocha-deep": "motet.methods.mocha_deep:MochaDeep",
    "fedamp": "motet.methods.fedamp:FedAMP",
    "heur-fedamp": "motet.methods.fedamp:HeurFedAMP",
    "fedproto": "motet.methods.fedproto:FedProto",
    "pfedhn": "motet.methods.pfedhn:PFedHN",
}


def method_names() -> tuple[str, ...]:
    """List every method, baselines first."""
    return tuple(_TABLE)


def method_class(name: str) -> type[AnyMethod]:
    """Find a method's class by its name, or one of your own as "package.module:Class"."""
    from motet.method import Method

    found = imported(_TABLE.get(name, name), what="method", known=_TABLE)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise RequestError(
            f'"{name}" is no method: a class that derives motet.Method was expected.'
        )
    return found


def imported(path: str, *, what: str, known: Any) -> Any:
    """Import "package.module:Name"; anything else is a name that nobody knows."""
    module, colon, attribute = path.partition(":")
    if not colon:
        raise RequestError(f'no {what} is called "{path}"; {nearest(path, known)}.')
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise RequestError(
            f'no {what} can be imported as "{path}": {reason}. Write package.module:Name, and '
            "install the package or set PYTHONPATH."
        ) from reason


class Hyperparameter(NamedTuple):
    """A field of a method, for people."""

    name: str
    default: str  # as a config would say it
    meaning: str


def hyperparameters(method: type[AnyMethod]) -> list[Hyperparameter]:
    """List a method's fields, its own first, with defaults and what their docstrings say."""
    meanings: dict[str, str] = {}
    for kind in reversed(method.__mro__):
        meanings |= _attributes(kind.__doc__ or "")
    inherited = {field.name for base in method.__bases__ for field in fields(base)}
    ordered = sorted(fields(method), key=lambda field: field.name in inherited)
    return [
        Hyperparameter(f.name, _shown(getattr(method(), f.name)), meanings.get(f.name, ""))
        for f in ordered
    ]


def _attributes(docstring: str) -> dict[str, str]:
    """Read the Attributes section of a docstring.

    >>> _attributes('''Short.
    ...
    ...     Attributes:
    ...         lam: Strength of the pull,
    ...             0 is Local.
    ...     ''')
    {'lam': 'Strength of the pull, 0 is Local.'}
    """
    _, _, section = inspect.cleandoc(docstring).partition("\nAttributes:\n")
    found: dict[str, str] = {}
    for line in section.splitlines():
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            found[entry[1]] = entry[2]
        elif line.startswith("        ") and found:
            found[next(reversed(found))] += f" {line.strip()}"
        elif line.strip():
            break
    return found


def _shown(value: Any) -> str:
    """Write a default as a config would, without the zeros: `sgd(lr=0.1)`."""
    from motet.config.families import family_of_value

    if value is None:
        return "none"
    if is_dataclass(value) and not isinstance(value, type):
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        inside = ", ".join(f"{name}={_shown(v)}" for name, v in values.items() if v)
        kind = family_of_value(value).name_of(type(value))
        return f"{kind}({inside})" if inside else kind
    return f"[{', '.join(_shown(v) for v in value)}]" if isinstance(value, tuple) else str(value)
