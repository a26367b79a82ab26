"""`motet export`: a client's personal model as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli import options

if TYPE_CHECKING:  # torch is loaded when the command is called
    from motet.exporting.export import Exported


def command(
    directory: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="DIR")],
    *,
    client: Annotated[
        str,
        typer.Option(help="Whose model.", metavar="ID", rich_help_panel=options.WHAT),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="FILE.safetensors, FILE.md and FILE.onnx are written.",
            rich_help_panel=options.OUTPUT,
        ),
    ],
    onnx: Annotated[
        bool | None,
        typer.Option(
            "--onnx/--no-onnx",
            help="Refuse what ONNX cannot express, or write none; default: where possible.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    _seed: Annotated[
        int | None,
        typer.Option("--seed", help="As on every command; nothing is drawn.", hidden=True),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a client's personal model: safetensors with a card, and ONNX where it is possible.

    motet export runs/first --client 3 -o models/site-3
    """
    from motet.cli.terminal import say, write_json
    from motet.config.experiment import model_to_dict
    from motet.exporting.export import export
    from motet.exporting.saved import saved_run

    with saved_run(directory) as (experiment, run):
        model = model_to_dict(experiment.model)
        exported = export(run, client, out, onnx=onnx, model=model)
    if as_json:
        write_json(_as_dict(exported))
        return
    typer.echo("\n".join(_files(exported).values()))
    if exported.without_graph and onnx is None and not quiet:
        say(f"No ONNX: {exported.without_graph}")


def _files(exported: Exported) -> dict[str, str]:
    found = {"tensors": exported.tensors, "card": exported.card, "onnx": exported.graph}
    return {what: str(path) for what, path in found.items() if path is not None}


def _as_dict(exported: Exported) -> dict[str, Any]:
    about = {key: value for key, value in exported.about.items() if key != "nodes"}
    return {"files": _files(exported), "without_onnx": exported.without_graph, **about}
