"""Exported models opened for prediction: by Motet, or by ONNX Runtime if the network is unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import torch
from torch import Tensor

from motet._export.predictors import (
    SUFFIXES,
    LoadedPredictor,
    load_predictor,
    read_file,
    schema_in,
    tensors_of,
    without_suffix,
)
from motet._export.rows import needs_schema
from motet.data import Schema
from motet.errors import RequestError, StateError, nearest

_UNSAFE = re.compile(r"[^\w .,()+=@&'-]|^ | $")
_DOTS = re.compile(r"^\.+|\.+$|\.raw$")


class Model(Protocol):
    """Something that predicts encoded rows."""

    @property
    def about(self) -> Mapping[str, Any]:
        """The metadata of the export."""
        ...

    @property
    def schema(self) -> Schema | None:
        """How raw rows become inputs."""
        ...

    def predict(self, x: Tensor) -> Tensor:
        """Return class probabilities, or values."""
        ...


@dataclass(frozen=True)
class GraphModel:
    """A model whose network is not known here, run from the .onnx file of its export.

    Attributes:
        path: The graph.
        about: The metadata of the export.
    """

    path: Path
    about: Mapping[str, Any]

    @cached_property
    def schema(self) -> Schema | None:
        """How raw rows become inputs."""
        return schema_in(self.about)

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(self.path, providers=["CPUExecutionProvider"])

    def predict(self, x: Tensor) -> Tensor:
        """Return class probabilities, or values."""
        name = self._session.get_inputs()[0].name
        (answer,) = self._session.run(None, {name: x.numpy()})
        return torch.from_numpy(answer)


def open_model(path: Path, site: str | None = None) -> tuple[Model, Schema]:
    """Open an export of a model of tables, or that of one site in a directory of `--all`."""
    tensors = tensors_of(_in_directory(path, site) if path.is_dir() else path)
    model = _opened(tensors)
    client = str(model.about["client"])
    if site is not None and site != client:
        raise RequestError(
            f'{tensors} is the model of "{client}", and --site names "{site}". Leave --site out '
            "to use this model."
        )
    return model, needs_schema(model.schema, tensors)


def file_name(client: str) -> str:
    """Make the name of a client's files in a directory of exports; `unquote` reverses it.

    >>> file_name("Zürich / east"), file_name("..")
    ('Zürich %2F east', '%2E%2E')
    """
    name = _UNSAFE.sub(lambda found: quote(found.group(), safe=""), client)
    # Dots at the ends, and what looks like the suffix of another file of an export.
    return _DOTS.sub(lambda found: found.group().replace(".", "%2E"), name)


def sites_in(directory: Path) -> dict[str, Path]:
    """List the sites whose models are in a directory."""
    found = sorted(directory.glob(f"*{SUFFIXES[0]}"))
    if not found:
        raise StateError(
            f"{directory} holds no models; make some with `motet export RUN --all -o {directory}`."
        )
    return {unquote(file.name.removesuffix(SUFFIXES[0])): file for file in found}


def _in_directory(directory: Path, site: str | None) -> Path:
    sites = sites_in(directory)
    if site is None:
        if len(sites) == 1:
            return next(iter(sites.values()))
        raise RequestError(
            f"{directory} holds the models of {len(sites)} sites; name one with --site, such as "
            f'--site "{next(iter(sites))}".'
        )
    if site not in sites:
        raise RequestError(f'{directory} has no model of "{site}"; {nearest(site, sites)}.')
    return sites[site]


def _opened(path: Path) -> LoadedPredictor | GraphModel:
    try:
        return load_predictor(path)
    except RequestError as unknown:  # a network or method whose code is not Motet's
        base = without_suffix(path)
        graph = base.with_name(f"{base.name}.onnx")
        if not graph.is_file() or find_spec("onnxruntime") is None:
            raise RequestError(
                f"{path} needs code that is not Motet's: its network or method is your own. "
                "Install onnxruntime and export with --onnx, or use `motet.load_predictor` in "
                "Python and pass task= or method=."
            ) from unknown
        return GraphModel(graph, read_file(path)[1])
