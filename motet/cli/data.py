"""`motet data`: which data sets exist, and who holds what in one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli import options

if TYPE_CHECKING:  # rich and torch are loaded when the command is called
    from motet.data import Federation


def command(
    name: Annotated[
        str | None, typer.Argument(help="A data set; all of them if left out.", show_default=False)
    ] = None,
    *,
    settings: options.Set = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    classes: options.Classes = None,
    alpha: options.Alpha = None,
    table: options.Table = None,
    client_column: options.ClientColumn = None,
    target: options.Target = None,
    folder: options.Folder = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the data sets, or how one is divided: sizes, labels, and how much the clients differ.

    motet data digits --partition dirichlet --clients 10 --alpha 0.3
    """
    flags = {key: value for key, value in locals().items() if key not in ("name", "settings")}
    if name is None and table is None and folder is None:
        _list(as_json=as_json, quiet=quiet)
        return
    from motet.cli.federation import show_federation
    from motet.cli.request import requested
    from motet.cli.terminal import write_json
    from motet.config.files import data_from_dict

    tables = requested(None, {**flags, "data": name}, settings or [])
    seeded = tables.get("run", {}).get("seed", 0)
    federation = data_from_dict(tables.get("data", {}), seed=seeded).federation()
    if as_json:
        write_json(_as_dict(federation))
    else:
        show_federation(federation, quiet=quiet)


def _list(*, as_json: bool, quiet: bool) -> None:
    from motet.cli.terminal import console, write_json
    from motet.data import dataset, names
    from motet.data.sets.files import roots

    found = {name: (dataset(name), is_found(name)) for name in names()}
    if as_json:
        write_json([{"name": n, "summary": d.summary, "found": f} for n, (d, f) in found.items()])
        return
    if quiet:
        typer.echo("\n".join(found))
        return
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=80)
    drawn.add_column("data set", no_wrap=True)
    drawn.add_column("files", no_wrap=True)
    drawn.add_column("what it is", ratio=1)
    for name, (about, is_here) in found.items():
        drawn.add_row(name, "found" if is_here else "missing", about.summary)
    console().print(drawn)
    if not all(is_here for _, is_here in found.values()):
        places = "\n".join(f"  {root}" for root in roots())
        typer.echo(
            f"\nFiles are looked for below these folders (MOTET_DATA names one):\n{places}\n"
            "`motet data NAME` says where to get the files of one."
        )


def is_found(name: str) -> bool:
    """Tell whether the files of a data set are there, without reading them."""
    from inspect import signature

    from motet.data import dataset
    from motet.data.sets.files import Source, locate
    from motet.errors import DataError

    about = dataset(name)
    defaults = [parameter.default for parameter in signature(about.load).parameters.values()]
    needed = [d for d in defaults if isinstance(d, tuple) and d and isinstance(d[0], Source)]
    try:
        for sources in needed:
            locate(name, sources, about.where)
    except DataError:
        return False
    return True


def _as_dict(federation: Federation) -> dict[str, Any]:
    splits = ("train", "val", "test")
    written: dict[str, Any] = {
        "manifest": federation.manifest(),
        "shape": list(federation.shape),
        "classes": federation.classes,
        "heterogeneity": federation.heterogeneity().summary(),
        "sizes": {
            client: {split: federation.size(client, split) for split in splits}
            for client in federation.clients
        },
    }
    if federation.classes is not None:
        counts = federation.histogram().tolist()
        written["labels"] = dict(zip(federation.clients, counts, strict=True))
    return written
