"""`motet export`: personal models as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet._cli import options

if TYPE_CHECKING:  # torch is loaded when the command is called
    from motet._engine.evaluation import Evaluation
    from motet._export.export import Exported
    from motet._export.saved import SavedRun
    from motet.data import Federation


def command(
    directory: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="DIR")],
    *,
    client: Annotated[
        str | None,
        typer.Option(
            help="Client whose model is exported.",
            metavar="ID",
            rich_help_panel=options.WHAT,
            show_default=False,
        ),
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="The models of all clients.", rich_help_panel=options.WHAT)
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="PATH.safetensors, PATH.md and PATH.onnx are written; with --all, a directory.",
            rich_help_panel=options.OUTPUT,
        ),
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A comparison, or a run of local or fedavg, for the model card; may be repeated.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    references: Annotated[
        bool | None,
        typer.Option(
            "--references/--no-references",
            help="Train local and fedavg for the model card; default: if that is quick.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    onnx: Annotated[
        bool | None,
        typer.Option(
            "--onnx/--no-onnx",
            help="Refuse what ONNX cannot express, or write none; default: where possible.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write personal models: safetensors with a model card, and ONNX where it is possible.

    motet export runs/first --client 3 -o models/site-3
    motet export runs/first --all -o models
    """
    from motet._export.export import make_folder, require_file_name
    from motet._export.saved import saved_run
    from motet.config._experiment import model_to_dict
    from motet.errors import RequestError

    if everybody == (client is not None):
        raise RequestError("name a client with --client ID, or export all of them with --all.")
    with saved_run(directory) as saved:
        model = model_to_dict(saved.experiment.model)
        if client is not None:
            saved.run.require(client)
            require_file_name(out)
        others = _given(saved, against or [], train=references)
        make_folder(out if everybody else out.parent)  # before anything takes long
        if not against:
            others = _trained(saved, directory, train=references, quiet=quiet or as_json)
        settings: dict[str, Any] = {"onnx": onnx, "model": model, "others": others}
        if client is not None:
            _write_one(saved, client, out, settings, as_json=as_json, quiet=quiet)
        else:
            _write_all(saved, out, settings, as_json=as_json, quiet=quiet)


def _write_one(
    saved: SavedRun,
    client: str,
    out: Path,
    settings: Mapping[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    from motet._export.export import write_export
    from motet._export.predictors import without_suffix

    exported = write_export(saved.run, client, without_suffix(out), **settings)
    show_exported(exported, wanted=settings["onnx"], as_json=as_json, quiet=quiet)


def show_exported(
    exported: Exported, *, wanted: bool | None, as_json: bool, quiet: bool = False
) -> None:
    """List the files of one model, and say why there is no graph."""
    from motet._cli.terminal import show, write_json

    if as_json:
        write_json(_as_dict(exported))
        return
    show(_listed(exported))
    _say_why([exported], wanted=wanted, quiet=quiet)


def _write_all(
    saved: SavedRun, out: Path, settings: Mapping[str, Any], *, as_json: bool, quiet: bool
) -> None:
    from motet._cli.terminal import say, show, write_json_line
    from motet._core.visible_text import visible
    from motet._export.export import write_all

    written = []
    for _, exported in write_all(saved.run, out, **settings):
        written.append(exported)
        if as_json:
            write_json_line(_as_dict(exported))
        elif not quiet:
            show(_listed(exported))
    if as_json:
        return
    show(visible(str(out / "README.md")))
    _say_why(written, wanted=settings["onnx"], quiet=quiet)
    if not quiet:
        say(f"{len(written)} models are in {out}; README.md lists them.")


def _listed(exported: Exported) -> str:
    from motet._core.visible_text import visible

    return "\n".join(map(visible, _files(exported).values()))


def _given(saved: SavedRun, against: Sequence[Path], *, train: bool | None) -> Sequence[Evaluation]:
    """Read the scores of Local and FedAvg from the directories that were named."""
    from motet._export.references import read_evaluations
    from motet.errors import RequestError

    if against and train:
        raise RequestError("--against and --references exclude each other; use one of them.")
    return read_evaluations(against, _data(saved).hash) if against else ()


def _trained(
    saved: SavedRun, directory: Path, *, train: bool | None, quiet: bool
) -> Sequence[Evaluation]:
    """Train Local and FedAvg, if that was asked for or is quick."""
    from motet._cli.terminal import say
    from motet._export.references import is_quick, train_references
    from motet._runs.leftovers import ROUNDS

    experiment, run = saved
    if train is False or (train is None and not is_quick(run, directory / ROUNDS)):
        return ()
    if not quiet:
        say("Training local and fedavg for the model card (--no-references leaves them out) ...")
    settings = {**experiment.settings(), "rounds": run.rounds_done}
    data = _data(saved)
    task = experiment.task(data)
    return train_references(experiment.method, task, data, settings, required=train is True)


def _data(saved: SavedRun) -> Federation:
    """Return the data as they were before the method moved any rows."""
    from motet.method import Method

    moves_rows = type(saved.experiment.method).prepare is not Method.prepare
    return saved.experiment.federation() if moves_rows else saved.run.setting.federation


def _say_why(written: Sequence[Exported], *, wanted: bool | None, quiet: bool) -> None:
    from motet._cli.terminal import say

    without = [exported.without_graph for exported in written if exported.without_graph]
    if without and wanted is None and not quiet:
        say(f"No ONNX: {without[0]}")


def _files(exported: Exported) -> dict[str, str]:
    found = {
        "tensors": exported.tensors,
        "card": exported.card,
        "onnx": exported.graph,
        "raw_onnx": exported.raw_graph,
    }
    return {what: str(path) for what, path in found.items() if path is not None}


def _as_dict(exported: Exported) -> dict[str, Any]:
    about = {key: value for key, value in exported.about.items() if key != "nodes"}
    return {"files": _files(exported), "without_onnx": exported.without_graph, **about}
