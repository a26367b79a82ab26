"""A client's predictor without its federation: as an `nn.Module`, and as a file that is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from motet import tree
from motet.config.methods import method_from_dict
from motet.config.sections import ModelChoice
from motet.errors import CapabilityError, RequestError, StateError
from motet.exporting.structure import rebuild
from motet.method import AnyMethod
from motet.task import Task

ABOUT = "motet"  # the entry of a file's metadata that says what the file is
FORMAT = 1


class PredictorModule(nn.Module):
    """`method.predict` as a module: the tensors of the predictor are its buffers.

    >>> from motet.methods.fedavg import FedAvg
    >>> task = Task(build=lambda: nn.Linear(2, 3))
    >>> zeros = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    >>> PredictorModule(FedAvg(), task, zeros)(torch.ones(1, 2))
    tensor([[0.3333, 0.3333, 0.3333]])
    """

    def __init__(self, method: AnyMethod, task: Task, personal: Any) -> None:
        super().__init__()
        self._method, self._task, self._template = method, task, personal
        # Numbered, because the name of a buffer may hold no dot.
        self._numbered = {path: f"tensor_{i}" for i, (path, _) in enumerate(tree.flatten(personal))}
        for path, leaf in tree.flatten(personal):
            self.register_buffer(self._numbered[path], leaf.detach().clone())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return class probabilities, or values."""
        named = {path: getattr(self, name) for path, name in self._numbered.items()}
        return self._method.predict(tree.unflatten(self._template, named), x, self._task)


@dataclass(frozen=True)
class LoadedPredictor:
    """A client's predictor, read from a file that `motet.export` wrote.

    Attributes:
        method: The method that made it.
        task: The network and its loss.
        personal: The predictor as the tree the method made it.
        about: What the file says about itself: client, round, data, scores, ...
    """

    method: AnyMethod
    task: Task
    personal: Any
    about: Mapping[str, Any]

    def predict(self, x: Any) -> Tensor:
        """Return class probabilities, or values; `x` as in training."""
        value = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
        shape = tuple(self.about["input"]["shape"])
        if tuple(value.shape[1:]) != shape:
            raise RequestError(
                f"x must have shape [examples, {', '.join(map(str, shape))}]; got "
                f"{tuple(value.shape)}."
            )
        dtype = getattr(torch, self.about["input"]["dtype"])
        return self.method.predict(self.personal, value.to(dtype), self.task)

    def model(self) -> nn.Module:
        """Return the predictor as a plain `nn.Module`, where it is one network."""
        if not self.method.one_network:
            raise CapabilityError(
                f"the predictor of {self.method.name} is more than one network; use predict."
            )
        module = self.task.build().eval()
        module.load_state_dict(self.personal, strict=False)
        return module


def load_predictor(
    path: str | Path, *, task: Task | None = None, method: AnyMethod | None = None
) -> LoadedPredictor:
    """Load a client's predictor from the .safetensors file of an export; no data are needed.

    Args:
        path: The file.
        task: The network and its loss. Only a reference network by name can be made from the file
            alone; a network of your own is handed over.
        method: The method. Only Motet's own are made from the file; hand over one of yours.
    """
    named, about = read_file(Path(path))
    shape, dtype = about["input"]["shape"], getattr(torch, about["input"]["dtype"])
    task = (task or _task_from(about)).seeing(torch.zeros(1, *shape, dtype=dtype))
    method = method or _method_from(about)
    return LoadedPredictor(method, task, rebuild(named, about["nodes"]), about)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of an exported file, and what it says about itself."""
    if not path.is_file():
        raise StateError(f"there is no file {path}; write one with `motet export`.")
    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get(ABOUT)
            named = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as reason:
        raise StateError(f"{path} is no complete safetensors file ({reason}).") from None
    if about is None:
        raise StateError(f"{path} was not written by `motet export`: it does not say what it is.")
    described = json.loads(about)
    if described["format"] != FORMAT:
        raise StateError(
            f"this version reads exports of format {FORMAT}; {path} has {described['format']!r}."
        )
    return named, described


def _task_from(about: Mapping[str, Any]) -> Task:
    model = about["model"]
    if model is None or ":" in model["name"]:
        what = "was made in Python" if model is None else f'is "{model["name"]}"'
        raise RequestError(
            f"the network of this predictor {what}, and no code is run on a file's word; hand it "
            "over: load_predictor(path, task=motet.Task(...))."
        )
    options = {key: value for key, value in model.items() if key not in ("name", "loss")}
    choice = ModelChoice(name=model["name"], loss=model["loss"], options=options)
    return choice.task_for(tuple(about["input"]["shape"]), about["classes"])


def _method_from(about: Mapping[str, Any]) -> AnyMethod:
    table = about["method"]
    foreign = [n for n in _class_names(table) if ":" in n and not n.startswith("motet.")]
    if foreign:
        raise RequestError(
            f'this predictor needs "{foreign[0]}", which is not one of Motet\'s classes, and no '
            "code is run on a file's word; hand the method over: load_predictor(path, method=...)."
        )
    return method_from_dict(table)


def _class_names(value: Any) -> Iterator[str]:
    """Yield whatever a table names a class by."""
    if isinstance(value, Mapping):
        yield from (str(value[tag]) for tag in ("name", "kind") if tag in value)
        for below in value.values():
            yield from _class_names(below)
