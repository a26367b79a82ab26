"""Predictors outside a federation: as an `nn.Module`, and loaded from an exported file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from motet._core import tree
from motet._core.real_paths import did_you_mean
from motet._export.reading import read_rows
from motet._export.rows import Predictions, needs_schema, predict_table
from motet._export.structure import rebuild
from motet.config._files import MODEL_KEYS
from motet.config._methods import method_from_dict
from motet.config._sections import ModelChoice
from motet.data import Schema
from motet.errors import CapabilityError, RequestError, StateError
from motet.method import AnyMethod
from motet.task import Task

ABOUT = "motet"  # key of our entry in a file's metadata
FROZEN = "task.frozen"  # where the frozen weights are in a file
FORMAT = 1
SUFFIXES = (".safetensors", ".raw.onnx", ".onnx", ".md")  # of the files of an export


class PredictorModule(nn.Module):
    """`method.predict` as a module, with the tensors of the predictor as buffers.

    >>> from motet.methods._fedavg import FedAvg
    >>> task = Task(build=lambda: nn.Linear(2, 3))
    >>> zeros = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    >>> PredictorModule(FedAvg(), task, zeros)(torch.ones(1, 2))
    tensor([[0.3333, 0.3333, 0.3333]])
    """

    def __init__(self, method: AnyMethod, task: Task, personal: Any) -> None:
        super().__init__()
        self._method, self._task, self._template = method, task, personal
        # Numbered, because buffer names must not contain dots.
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
    """A client's predictor, loaded from a file written by `motet.export`.

    Attributes:
        method: The method that trained it.
        task: The network and its loss.
        personal: The predictor, as the tree of tensors that the method returned.
        about: The metadata of the file: client, round, data, scores, ...
    """

    method: AnyMethod
    task: Task
    personal: Any
    about: Mapping[str, Any]

    @cached_property
    def schema(self) -> Schema | None:
        """How raw rows become inputs; None if the model was not trained on a table."""
        return schema_in(self.about)

    def predict_rows(self, rows: Any, *, strict: bool = False, **reading: Any) -> Predictions:
        """Predict raw rows of a table.

        Args:
            rows: A path, a data frame, a `pyarrow.Table`, `{column: values}` or a list of rows as
                dicts; columns that the model does not use are ignored.
            strict: Whether rows that need a repair (missing or unknown values, values outside the
                range of the training rows) are refused.
            **reading: How a file is written, if detection is wrong: encoding, delimiter, decimal,
                sheet, skip_rows, columns and bad_rows, as for `motet.data.from_table`.

        Raises:
            DataError: Rows that cannot be used.
            CapabilityError: The model was not trained on a table.
        """
        schema = needs_schema(self.schema, "this model")
        read = read_rows(rows, schema, **reading)
        return predict_table(self.predict, schema, self.about["client"], read, strict=strict)

    def predict(self, x: Any) -> Tensor:
        """Return class probabilities, or values; `x` is preprocessed as in training."""
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
        """Return the predictor as a plain `nn.Module`, if it is a single network."""
        if not self.method.one_network:
            raise CapabilityError(
                f"the predictor of {self.method.name} is more than one network; use predict."
            )
        return self.task.network(self.personal)


def schema_in(about: Mapping[str, Any]) -> Schema | None:
    """Read the schema in the metadata of an export."""
    written = about.get("schema")
    return None if written is None else Schema.from_dict(written)


def load_predictor(
    path: str | Path, *, task: Task | None = None, method: AnyMethod | None = None
) -> LoadedPredictor:
    """Load a client's predictor from the .safetensors file of an export; no data is needed.

    Args:
        path: The file; any file of the export, or its name without a suffix, will do.
        task: The network and its loss. Required for your own networks; Motet's reference networks
            are created from the file alone.
        method: The method. Required for your own methods; Motet's are created from the file.

    Returns:
        A predictor for encoded inputs and, for tables, for raw rows.

    Raises:
        StateError: The file is not an export, or it is damaged.
        RequestError: The file does not say enough to make the network or the method.

    Example:
        >>> import tempfile
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> client = world.data.clients[-1]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = motet.export(run, client, f"{folder}/model", onnx=False)
        ...     loaded = motet.load_predictor(files.tensors, task=world.task)
        >>> x, _ = world.data.examples(client, "train")
        >>> bool(abs(loaded.predict(x) - run.predict(client, x)).max() < 1e-5)
        True
    """
    named, about = read_file(tensors_of(Path(path)))
    shape, dtype = about["input"]["shape"], getattr(torch, about["input"]["dtype"])
    task = (task or _task_from(about)).seeing(torch.zeros(1, *shape, dtype=dtype))
    frozen = tree.slot(FROZEN, named)
    task = task.holding(frozen)
    named = tree.drop(named, tree.prefixed(FROZEN, frozen))
    method = method or _method_from(about)
    return LoadedPredictor(method, task, rebuild(named, about["nodes"]), about)


def tensors_of(path: Path) -> Path:
    """Find the .safetensors file of an export, given any of its files or their common name."""
    if path.is_file() and not path.name.endswith(SUFFIXES[1:]):
        return path
    base = without_suffix(path)
    return base.with_name(f"{base.name}{SUFFIXES[0]}")


def without_suffix(path: Path) -> Path:
    """Remove the suffix of an export's file."""
    found = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), "")
    return path.with_name(path.name.removesuffix(found)) if found != path.name else path


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the metadata of an exported file."""
    if not path.is_file():
        raise StateError(
            f"{path} does not exist; create it with `motet export`.{did_you_mean(path)}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get(ABOUT)
            named = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as reason:
        raise StateError(
            f"{path} is not a complete safetensors file ({reason}); name a file or a directory "
            "that `motet export` wrote."
        ) from None
    if about is None:
        raise StateError(f"{path} was not written by `motet export`: its metadata is missing.")
    described = json.loads(about)
    if described["format"] != FORMAT:
        raise StateError(
            f"this version reads exports of format {FORMAT}; {path} has {described['format']!r}."
        )
    return named, described


def read_about(path: Path) -> dict[str, Any]:
    """Read the metadata of an exported file."""
    return read_file(path)[1]


def _task_from(about: Mapping[str, Any]) -> Task:
    model = about["model"]
    if model is None or ":" in model["name"]:
        what = "was built in Python" if model is None else f'is "{model["name"]}"'
        raise RequestError(
            f"the network of this predictor {what}; for safety, code named in a file is never run. "
            "Pass the network: load_predictor(path, task=motet.Task(...))."
        )
    options = {key: value for key, value in model.items() if key not in MODEL_KEYS}
    times = tuple(model["times"]) if "times" in model else None
    choice = ModelChoice(name=model["name"], loss=model["loss"], times=times, options=options)
    target = tuple(about.get("target", ()))  # files of 0.1 have single targets
    return choice.task_for(tuple(about["input"]["shape"]), about["classes"], target)


def _method_from(about: Mapping[str, Any]) -> AnyMethod:
    table = about["method"]
    foreign = [n for n in _class_names(table) if ":" in n and not n.startswith("motet.")]
    if foreign:
        raise RequestError(
            f'this predictor needs "{foreign[0]}", which is not one of Motet\'s classes; for '
            "safety, code named in a file is never run. Pass the method: "
            "load_predictor(path, method=...)."
        )
    return method_from_dict(table)


def _class_names(value: Any) -> Iterator[str]:
    """Yield all class names in a table and its subtables."""
    if isinstance(value, Mapping):
        yield from (str(value[tag]) for tag in ("name", "kind") if tag in value)
        for below in value.values():
            yield from _class_names(below)
