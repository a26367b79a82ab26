"""Pages of the API reference: every public name, once, in the namespace where it belongs."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

# The most specific namespaces come first: a name that several of them have is shown in the first.
NAMESPACES = {
    "motet.data": "Federations, sources and partitions",
    "motet.task": "The network and its loss",
    "motet.models": "Reference networks and changes to networks",
    "motet.methods": "The methods",
    "motet.optim": "Optimizers",
    "motet.metrics": "Metrics",
    "motet.privacy": "Differential privacy",
    "motet.config": "Experiments as files",
    "motet.report": "Reports",
    "motet.tracking": "TensorBoard, MLflow and your own watchers",
    "motet.analysis": "Studies of finished runs",
    "motet.deploy": "Federations of real sites",
    "motet.testing": "Checks for your own methods",
    "motet.errors": "Errors",
    "motet.method": "The interface of methods",
    "motet": "The top level",
}
HEAD = """\
# API reference

Every public name, from its docstring. Names of `motet.methods`, `motet.optim` and others that are
also at the top level (`motet.FedPer`) are listed in [motet](motet.rst) and described where they
belong.

"""
# Names that are neither classes nor functions have no docstring.
ABOUT = {
    "AnyMethod": "A method with any server, client, down and up states.",
    "ClientData": "Batches of one client, by name of the phase.",
    "Guarantee": "What noisy training guarantees: a `Promise` or a `NoPromise`.",
    "State": "Tensors by name.",
    "TaskKind": "The kind of a task, which decides what metrics can be computed.",
    "WORLDS": "Small federations for tests, by name.",
}


def write(folder: Path) -> None:
    """Write a page per namespace and an index, where they have changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    homes = home_of_every_name()
    written = {f"{name}.rst": page(name, homes) for name in NAMESPACES}
    order = ["motet", *(name for name in NAMESPACES if name != "motet")]
    listed = "\n".join(f"- [{name}]({name}.rst): {NAMESPACES[name].lower()}" for name in order)
    tree = "\n".join(f"{name} <{name}.rst>" for name in order)
    written["index.md"] = f"{HEAD}{listed}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    return written


def home_of_every_name() -> dict[int, tuple[str, str]]:
    """Find the namespace that describes each public object, by identity."""
    homes: dict[int, tuple[str, str]] = {}
    for namespace in NAMESPACES:
        module = import_module(namespace)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                homes.setdefault(id(value), (namespace, name))
    return homes


def page(namespace: str, homes: dict[int, tuple[str, str]]) -> str:
    """Return the page of a namespace."""
    module = import_module(namespace)
    title = f"``{namespace}``"
    lines = [title, "=" * len(title), "", f"{NAMESPACES[namespace]}.", ""]
    elsewhere: list[str] = []
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            target = value.__name__
            if target in NAMESPACES:
                elsewhere.append(f"- :doc:`{target}`")
            else:
                lines += [f".. automodule:: {target}", "   :members:", ""]
        elif homes[id(value)] == (namespace, name):
            lines += directive(namespace, name, value)
        else:
            home, known_as = homes[id(value)]
            elsewhere.append(f"- ``{name}``: see :py:obj:`{home}.{known_as}`")
    if elsewhere:
        lines += ["Also here", "---------", "", *elsewhere, ""]
    return "\n".join(lines)


def directive(namespace: str, name: str, value: Any) -> list[str]:
    """Return the directive that shows an object."""
    if name in ABOUT:
        return [f".. py:data:: {namespace}.{name}", "", f"   {ABOUT[name]}", ""]
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    else:
        kind = "autofunction"
    return [f".. {kind}:: {namespace}.{name}", ""]
