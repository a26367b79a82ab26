"""Methods by name. The table holds strings, so that naming a method costs no import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from motet.errors import RequestError, nearest

if TYPE_CHECKING:  # imports torch, which naming a method does not need
    from motet.method import AnyMethod

_TABLE = {
    "local": "motet.methods.local:Local",
    "fedavg": "motet.methods.fedavg:FedAvg",
    "fedavg-ft": "motet.methods.fedavg_ft:FedAvgFT",
    "fedper": "motet.methods.fedper:FedPer",
}


def method_names() -> tuple[str, ...]:
    """List every method, baselines first."""
    return tuple(_TABLE)


def method_class(name: str) -> type[AnyMethod]:
    """Find a method's class by its name, or one of your own as "package.module:Class"."""
    from motet.method import Method

    found = imported(_TABLE.get(name, name), what="method", known=_TABLE)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise RequestError(f'"{name}" is no method: a class that derives motet.Method was expected.')
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
