"""`motet.export`: clients' predictors as safetensors, model cards and, if possible, ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from motet._compare.comparison import Comparison
from motet._core import tree
from motet._core.atomic import write_atomically
from motet._core.criteria import Criterion
from motet._core.version import __version__
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Run
from motet._engine.records import json_text
from motet._export.card_index import index_text
from motet._export.model_card import card_text
from motet._export.networks import recognized
from motet._export.onnx_graphs import to_onnx, to_raw_onnx
from motet._export.opening import file_name
from motet._export.predictors import (
    ABOUT,
    FORMAT,
    FROZEN,
    SUFFIXES,
    PredictorModule,
    schema_in,
    without_suffix,
)
from motet._export.raw_graph import raw_inputs
from motet._export.references import evaluations_in, references_of
from motet._export.structure import describe
from motet.config._methods import method_to_dict
from motet.data import Federation
from motet.data._raw import SPLITS
from motet.errors import CapabilityError, RequestError, StateError

CHECKED = 64  # examples of the client on which a graph is checked
OUTPUTS = {"values": "values", "labels": "label_probabilities", "survival": "survival_curves"}


@dataclass(frozen=True)
class Exported:
    """The files written by an export.

    Attributes:
        tensors: The predictor; `motet.load_predictor` reads it.
        card: The model card: what the predictor is and how to use it.
        graph: The predictor as ONNX, or None.
        without_graph: Why there is no ONNX file; empty if there is one.
        about: The metadata of the files.
        raw_graph: The predictor as ONNX with raw columns as input, or None; for models of tables.
    """

    tensors: Path
    card: Path
    graph: Path | None
    without_graph: str
    about: Mapping[str, Any]
    raw_graph: Path | None = None


def export(
    run: Run,
    client: str,
    path: str | Path,
    *,
    onnx: bool | None = None,
    model: Mapping[str, Any] | None = None,
    against: Comparison | Run | Sequence[Run] | None = None,
) -> Exported:
    """Write a client's predictor to `path`.safetensors, .md, .onnx and, for tables, .raw.onnx.

    Args:
        run: A run, usually finished.
        client: The client whose predictor is exported.
        path: Path of the files, with or without a suffix.
        onnx: True raises if the predictor cannot be expressed in ONNX, False writes no ONNX file,
            None writes one if possible.
        model: The network as in a config, `{"name": "mlp", "loss": "cross_entropy", ...}`; with
            it, `motet.load_predictor` needs only the file. Networks of `motet.models.build` are
            recognized.
        against: A comparison, or runs of Local and FedAvg on the same split, whose results for this
            client are put on the model card.

    Returns:
        The files that were written, and why there is no ONNX file if there is none.

    Raises:
        RequestError: There is no such client.
        CapabilityError: ONNX was asked for, and the predictor cannot be expressed in it.

    Example:
        >>> import tempfile
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = motet.export(run, world.data.clients[0], f"{folder}/model", onnx=False)
        ...     files.tensors.name
        'model.safetensors'
    """
    require_file_name(Path(path))
    base = without_suffix(Path(path))
    others = _others(run, against)
    return write_export(run, client, base, onnx=onnx, model=model, others=others)


def export_all(
    run: Run,
    directory: str | Path,
    *,
    onnx: bool | None = None,
    model: Mapping[str, Any] | None = None,
    against: Comparison | Run | Sequence[Run] | None = None,
) -> dict[str, Exported]:
    """Write the predictors of all clients to a directory, with a page that lists them.

    Args:
        run: A run, usually finished.
        directory: Directory of the files; each client's are named after it.
        onnx: As for `motet.export`.
        model: As for `motet.export`.
        against: As for `motet.export`.

    Returns:
        The files of each client.

    Raises:
        CapabilityError: ONNX was asked for, and a predictor cannot be expressed in it.

    Example:
        >>> import tempfile
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = motet.export_all(run, folder, onnx=False)
        >>> len(files) == len(world.data.clients)
        True
    """
    others = _others(run, against)
    return dict(write_all(run, Path(directory), onnx=onnx, model=model, others=others))


def write_all(
    run: Run,
    directory: Path,
    *,
    onnx: bool | None,
    model: Mapping[str, Any] | None,
    others: Sequence[Evaluation],
) -> Iterator[tuple[str, Exported]]:
    """Write the predictors of all clients, one after another; the page that lists them is last."""
    abouts: dict[str, Mapping[str, Any]] = {}
    for client in sorted(run.setting.federation.clients):
        base = directory / file_name(client)
        exported = write_export(run, client, base, onnx=onnx, model=model, others=others)
        abouts[base.name] = exported.about
        yield client, exported
    _write(directory / "README.md", index_text(abouts).encode())


def write_export(
    run: Run,
    client: str,
    base: Path,
    *,
    onnx: bool | None,
    model: Mapping[str, Any] | None,
    others: Sequence[Evaluation],
    clients: int | None = None,
) -> Exported:
    """Write the files of one client's predictor; `others` are scores to compare it with.

    `clients` is how many trained, if the run knows only some of them, as that of a site does.
    """
    personal = run.personal(client)
    about = describe_predictor(run, client, personal, model)
    about["clients"] = about["clients"] if clients is None else clients
    about["references"] = [asdict(found) for found in references_of(client, others)]
    graphs, why = _graphs(run, client, personal, about, wanted=onnx)
    files = {
        ".safetensors": _tensors(personal, run.setting.task.frozen, about),
        ".md": card_text(about, base.name, without_graph=why).encode(),
        **graphs,
    }
    written = {
        suffix: _write(base.with_name(base.name + suffix), contents)
        for suffix, contents in files.items()
    }
    for suffix in SUFFIXES:  # one left by an earlier export would be a different predictor
        if suffix not in written:
            base.with_name(base.name + suffix).unlink(missing_ok=True)
    return Exported(
        tensors=written[".safetensors"],
        card=written[".md"],
        graph=written.get(".onnx"),
        without_graph=why,
        about=about,
        raw_graph=written.get(".raw.onnx"),
    )


def _others(run: Run, against: Comparison | Run | Sequence[Run] | None) -> Sequence[Evaluation]:
    return () if against is None else evaluations_in(against, run.setting.federation.hash)


def describe_predictor(
    run: Run, client: str, personal: Any, model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the metadata of a client's predictor as JSON values."""
    setting = run.setting
    federation, task, normalize = setting.federation, setting.task, setting.federation.normalize
    if model is None:
        model = recognized(task, federation.shape, federation.classes, federation.y.shape)
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
        "round": run.rounds_done,
        "rounds": setting.rounds,
        "data": {"name": federation.name, "hash": federation.hash},
        "model": None if model is None else dict(model),
        "network": type(task.skeleton).__qualname__,
        "loss": task.criterion.name,
        "input": {"shape": list(task.example.shape[1:]), "dtype": _name_of(task.example.dtype)},
        "normalize": None if normalize is None else vars(normalize),
        "output": OUTPUTS.get(task.criterion.kind, "probabilities"),
        "target": list(federation.y.shape),
        "classes": federation.classes,
        "labels": None if federation.labels is None else list(federation.labels),
        # Of this client only: nothing about other sites goes into the file.
        "schema": _schema(federation, client, task.criterion),
        "sizes": {split: federation.size(client, split) for split in SPLITS},
        "clients": len(federation.clients),
        "point": run.reported,
        "scores": _scores(run, client),
        "nodes": describe(personal),
    }


def _schema(federation: Federation, client: str, criterion: Criterion) -> dict[str, Any] | None:
    """Return the schema of one client; outputs of a survival model are named by their times."""
    if federation.schema is None:
        return None
    schema = federation.schema.at(client)
    if schema.target.kind == "survival":
        ends = tuple(f"{end:g}" for end in criterion.times)
        schema = replace(schema, target=replace(schema.target, labels=ends))
    return schema.to_dict()


def _scores(run: Run, client: str) -> dict[str, Any]:
    """Score the predictor on the client's validation and test data, if there is any."""
    size = run.setting.federation.size
    found = [s for s in ("val", "test") if size(client, s)]
    tables = {split: run.evaluate(split=split, clients=[client]) for split in found}
    return {
        split: {
            "metric": table.metric,
            "higher_is_better": table.higher_is_better,
            **table[client]._asdict(),
            "also": [
                {
                    "metric": other.metric,
                    "higher_is_better": other.higher_is_better,
                    "value": other[client].value,
                }
                for other in table.also
                if any(row.client == client for row in other.rows)
            ],
        }
        for split, table in tables.items()
        if table.rows  # undefined on this client's examples: only one class, say
    }


def _graphs(
    run: Run, client: str, personal: Any, about: Mapping[str, Any], *, wanted: bool | None
) -> tuple[dict[str, bytes], str]:
    """Return the predictor as ONNX by suffix, or nothing and the reason."""
    if wanted is False:
        return {}, "it was not requested."
    module = PredictorModule(run.setting.method, run.setting.task, personal)
    metadata = {ABOUT: json_text({k: v for k, v in about.items() if k != "nodes"})}
    output, schema = about["output"], schema_in(about)
    try:
        graph = to_onnx(module, _examples(run, client), output=output, about=metadata)
        if schema is None:
            return {".onnx": graph}, ""
        metadata |= {"inputs": json_text(raw_inputs(schema)._asdict())}
        raw = to_raw_onnx(graph, module, schema, output=output, about=metadata)
    except CapabilityError as refusal:
        if wanted:
            raise CapabilityError(
                f"the predictor of {run.setting.method.name} was not exported: {refusal} Omit "
                "onnx=: the other files hold the whole predictor."
            ) from refusal
        return {}, str(refusal)
    return {".onnx": graph, ".raw.onnx": raw}, ""


def _examples(run: Run, client: str) -> Tensor:
    """Return some of the client's inputs, plus two of zeros in case it has none."""
    nothing = run.setting.task.example
    assert nothing is not None
    own = run.setting.federation.examples(client, "train").x[:CHECKED]
    return torch.cat([own, nothing, nothing])


def _tensors(personal: Any, frozen: tree.State, about: Mapping[str, Any]) -> bytes:
    every = [*tree.flatten(personal), *tree.prefixed(FROZEN, frozen).items()]
    named = {path: leaf.detach().clone().contiguous() for path, leaf in every}
    written: bytes = safetensors.torch.save(named, metadata={ABOUT: json_text(about)})
    return written


def require_file_name(path: Path) -> None:
    """Refuse a directory where the name of a model's files is expected."""
    if path.name in ("", ".."):
        raise RequestError(
            f'an export needs a file name, such as "{path / "model"}"; got "{path}", a directory.'
        )


def make_folder(folder: Path) -> None:
    """Make the folder of an export, or say why that is not possible."""
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _write(path: Path, contents: bytes) -> Path:
    make_folder(path.parent)
    with _writing(path):
        write_atomically(path, contents)
    return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise StateError(f"{path} cannot be written: {why}. Choose another file.") from reason


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
