"""`motet data`: lists data sets, and shows how one is divided among clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet._cli import options
from motet._cli.completion import COMPLETIONS

if TYPE_CHECKING:  # rich and torch are loaded when the command is called
    from motet.data import Federation


@options.takes_rows_of("data")
def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A data set; all of them if left out.",
            show_default=False,
            autocompletion=COMPLETIONS["data"],
        ),
    ] = None,
    *,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Show the data sets, or how one is divided: sizes, labels, and how much the clients differ.

    motet data digits --partition dirichlet --clients 10 --alpha 0.3
    """
    if name is None and given["table"] is None and given["folder"] is None:
        _list(as_json=as_json, quiet=quiet)
        return
    from motet._cli.federation import show_federation
    from motet._cli.request import requested
    from motet._cli.terminal import write_json
    from motet.config._files import data_from_dict

    tables = requested(None, {**given, "data": name}, given["settings"] or [])
    seeded = tables.get("run", {}).get("seed", 0)
    federation = data_from_dict(tables.get("data", {}), seed=seeded).federation()
    if given["page"] is not None:
        from motet._cli.table_page import write_table_page

        write_table_page(federation, given["page"])
    if as_json:
        write_json(_as_dict(federation))
    else:
        show_federation(federation, quiet=quiet)


def _list(*, as_json: bool, quiet: bool) -> None:
    from motet._cli.terminal import console, show, write_json
    from motet._core.visible_text import visible
    from motet.data import dataset, names
    from motet.data._sets.files import roots

    found = {name: (dataset(name), is_found(name)) for name in names()}
    if as_json:
        write_json([{"name": n, "summary": d.summary, "found": f} for n, (d, f) in found.items()])
        return
    if quiet:
        show("\n".join(found))
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
        places = "\n".join(f"  {visible(str(root))}" for root in roots())
        show(
            f"\nFiles are looked for below these folders (MOTET_DATA names one):\n{places}\n"
            "`motet data NAME` says where to get the files of one."
        )


def is_found(name: str) -> bool:
    """Tell whether the files of a data set are there, without reading them."""
    from importlib.util import find_spec
    from inspect import signature

    from motet.data import dataset
    from motet.data._sets.files import Source, locate
    from motet.errors import DataError

    about = dataset(name)
    if about.package is not None:
        return find_spec(about.package) is not None
    defaults = [parameter.default for parameter in signature(about.load).parameters.values()]
    given = [*defaults, *getattr(about.load, "args", ())]  # also of a loader with its arguments
    needed = [d for d in given if isinstance(d, tuple) and d and isinstance(d[0], Source)]
    try:
        for sources in needed:
            locate(name, sources, about.where)
    except DataError:
        return False
    return True


def _as_dict(federation: Federation) -> dict[str, Any]:
    from motet.data._remarks import remarks

    splits = ("train", "val", "test")
    written: dict[str, Any] = {
        "manifest": federation.manifest(),
        "shape": list(federation.shape),
        "classes": federation.classes,
        "heterogeneity": federation.heterogeneity().summary(),
        "remarks": remarks(federation),
        "sizes": {
            client: {split: federation.size(client, split) for split in splits}
            for client in federation.clients
        },
    }
    if federation.classes is not None:
        counts = federation.histogram().tolist()
        written["labels"] = dict(zip(federation.clients, counts, strict=True))
    if federation.schema is not None and federation.aggregates is not None:
        from motet.data._tables.overview import overview

        written["columns"] = overview(federation.schema, federation.aggregates).to_dict()
        written["schema"] = federation.schema.to_dict()
    return written
