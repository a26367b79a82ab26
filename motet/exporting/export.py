"""A client's personal model as files: safetensors, a card, and ONNX where it can be expressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from motet import __version__, tree
from motet.atomic import write_atomically
from motet.config.methods import method_to_dict
from motet.errors import CapabilityError, RequestError, StateError
from motet.exporting.model_card import card_text
from motet.exporting.onnx_graphs import to_onnx
from motet.exporting.predictors import ABOUT, FORMAT, PredictorModule
from motet.exporting.structure import describe
from motet.federation import Run
from motet.records import json_text

SUFFIXES = (".safetensors", ".onnx", ".md")
TRIED = 64  # examples of the client on which a graph is tried


@dataclass(frozen=True)
class Exported:
    """The files that an export has written.

    Attributes:
        tensors: The predictor; `motet.load_predictor` reads it.
        card: What it is and how to use it, for people.
        graph: The predictor as ONNX, if it has one.
        without_graph: Why it has none.
        about: What the files say about themselves.
    """

    tensors: Path
    card: Path
    graph: Path | None
    without_graph: str
    about: Mapping[str, Any]


def export(
    run: Run,
    client: str,
    path: str | Path,
    *,
    onnx: bool | None = None,
    model: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a client's predictor to `path`.safetensors, .md and .onnx.

    Args:
        run: A run, usually finished.
        client: Whose predictor.
        path: Where, with or without a suffix.
        onnx: True refuses a predictor that ONNX cannot express, False writes no ONNX, None writes
            it where that is possible.
        model: The network as a config has it, `{"name": "mlp", "loss": "cross_entropy", ...}`; with
            it, `motet.load_predictor` needs nothing but the file.
    """
    base = _without_suffix(Path(path))
    personal = run.personal(client)
    about = describe_predictor(run, client, personal, model)
    graph, why = _graph(run, client, personal, about, wanted=onnx)
    files = {
        ".safetensors": _tensors(personal, about),
        ".md": card_text(about, base.name, without_graph=why).encode(),
        **({".onnx": graph} if graph is not None else {}),
    }
    written = {suffix: _write(base, suffix, contents) for suffix, contents in files.items()}
    if graph is None:  # one of an earlier export would be another predictor
        base.with_name(f"{base.name}.onnx").unlink(missing_ok=True)
    return Exported(
        tensors=written[".safetensors"],
        card=written[".md"],
        graph=written.get(".onnx"),
        without_graph=why,
        about=about,
    )


def describe_predictor(
    run: Run, client: str, personal: Any, model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Say what a client's predictor is, as values for JSON: all that a reader needs."""
    setting = run.setting
    federation, task, normalize = setting.federation, setting.task, setting.federation.normalize
    assert task.example is not None
    return {
        "format": FORMAT,
        "motet": __version__,
        "client": client,
        "method": method_to_dict(setting.method),
        "title": setting.method.card.title,
        "idea": setting.method.card.idea,
        "link": setting.method.card.link,
        "private": setting.method.card.private,
        "one_network": setting.method.one_network,
        "round": run.finished,
        "rounds": setting.rounds,
        "data": {"name": federation.name, "hash": federation.hash},
        "model": None if model is None else dict(model),
        "input": {"shape": list(task.example.shape[1:]), "dtype": _name_of(task.example.dtype)},
        "normalize": None if normalize is None else vars(normalize),
        "output": "values" if task.criterion.kind == "values" else "probabilities",
        "classes": federation.classes,
        "labels": None if federation.labels is None else list(federation.labels),
        "scores": _scores(run, client),
        "nodes": describe(personal),
    }


def _scores(run: Run, client: str) -> dict[str, Any]:
    """Score the predictor on what the client has to validate and to test it."""
    size = run.setting.federation.size
    found = [s for s in ("val", "test") if size(client, s)]
    tables = {split: run.evaluate(split=split, clients=[client]) for split in found}
    return {
        split: {"metric": table.metric, **table[client]._asdict()}
        for split, table in tables.items()
    }


def _graph(
    run: Run, client: str, personal: Any, about: Mapping[str, Any], *, wanted: bool | None
) -> tuple[bytes | None, str]:
    """Write the predictor as ONNX, or say why not."""
    if wanted is False:
        return None, "it was not asked for."
    module = PredictorModule(run.setting.method, run.setting.task, personal)
    metadata = {ABOUT: json_text({k: v for k, v in about.items() if k != "nodes"})}
    try:
        return to_onnx(module, _examples(run, client), output=about["output"], about=metadata), ""
    except CapabilityError as refusal:
        if wanted:
            raise CapabilityError(
                f"the predictor of {run.setting.method.name} was not written: {refusal} Leave "
                "onnx= out: the other files hold all of it."
            ) from refusal
        return None, str(refusal)


def _examples(run: Run, client: str) -> Tensor:
    """Take a few of the client's inputs; with two of zeros, in case it has none."""
    nothing = run.setting.task.example
    assert nothing is not None
    own = run.setting.federation.examples(client, "train").x[:TRIED]
    return torch.cat([own, nothing, nothing])


def _tensors(personal: Any, about: Mapping[str, Any]) -> bytes:
    named = {path: leaf.detach().clone().contiguous() for path, leaf in tree.flatten(personal)}
    written: bytes = safetensors.torch.save(named, metadata={ABOUT: json_text(about)})
    return written


def _without_suffix(path: Path) -> Path:
    base = path.with_suffix("") if path.suffix in SUFFIXES else path
    if not base.name:
        raise RequestError(f'export needs the name of a file to write; got "{path}".')
    return base


def _write(base: Path, suffix: str, contents: bytes) -> Path:
    path = base.with_name(base.name + suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, contents)
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise StateError(f"{path} cannot be written: {why}. Choose another file.") from reason
    return path


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
