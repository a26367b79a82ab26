"""A federation as a picture: a line per client, with its sizes and its labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet._cli.pictures import bars, fitted
from motet._cli.terminal import show, warn
from motet._core.text import plural
from motet._core.visible_text import visible
from motet.data import Federation
from motet.data._remarks import remarks

SHOWN = 20  # clients drawn at most
DRAWING = 40  # columns for the labels


def show_federation(federation: Federation, *, quiet: bool) -> None:
    """Draw a federation in 80 columns; `quiet` leaves the clients out."""
    show(_title(federation))
    if not quiet:
        show(f"\n{_clients(federation)}")
    if federation.schema is not None and not quiet:
        from motet._cli.table_view import show_columns

        show_columns(federation)
    show(f"\n{_differences(federation)}")
    for remark in remarks(federation):
        warn(remark)


def _title(federation: Federation) -> str:
    recipe = dict(federation.recipe.get("partition", {}))
    name = recipe.pop("name", None)
    told = ", ".join(f"{key} {value}" for key, value in recipe.items() if value is not None)
    shape = "x".join(str(size) for size in federation.shape) or "1"
    values = federation.answers
    kind = values if federation.classes is None else plural(federation.classes, "class")
    train, val, test = (sum(federation.sizes(s).values()) for s in ("train", "val", "test"))
    divided = f"\n{name}: {told}" if name else ""
    return (
        f"{visible(federation.name)}: {plural(len(federation.clients), 'client')}, inputs {shape}, "
        f"{kind.replace('classs', 'classes')}{divided}\n"
        f"{train:,} train, {val:,} val, {test:,} test examples; split {federation.hash[:12]}"
    )


def _clients(federation: Federation) -> str:
    shown = _choose(federation)
    names = [_short(visible(client)) for client in shown]
    width = max(len("client"), *(len(name) for name in names))
    drawn = _pictures(federation, shown)
    what = "labels of the training examples" if federation.classes else "training examples"
    lines = [f"{'client':<{width}}  {'train':>6} {'val':>5} {'test':>5}  {what}"]
    for client, name, picture in zip(shown, names, drawn, strict=True):
        train, val, test = (federation.size(client, split) for split in ("train", "val", "test"))
        lines.append(f"{name:<{width}}  {train:>6,} {val:>5,} {test:>5,}  {picture}")
    return "\n".join([*lines, *_remarks(federation, shown)])


def _choose(federation: Federation) -> Sequence[str]:
    """Choose the clients to show: all, or evenly spaced from the largest to the smallest."""
    if len(federation.clients) <= SHOWN:
        return federation.clients
    sizes = federation.sizes()
    ordered = sorted(federation.clients, key=lambda client: (-sizes[client], client))
    places = np.linspace(0, len(ordered) - 1, SHOWN).round().astype(int)
    return [ordered[place] for place in places]


def _pictures(federation: Federation, shown: Sequence[str]) -> list[str]:
    if federation.classes is None:
        sizes = federation.sizes()
        largest = max(sizes.values())
        return ["█" * max(1, round(DRAWING * sizes[client] / largest)) for client in shown]
    places = {client: place for place, client in enumerate(federation.clients)}
    counts = federation.histogram()
    rows = [fitted(counts[places[client]].tolist(), DRAWING) for client in shown]
    # Each client is drawn against its own largest class: sizes stand beside it as numbers.
    return [bars(row) for row in rows]


def _remarks(federation: Federation, shown: Sequence[str]) -> list[str]:
    remarks = []
    if federation.classes:
        per_bar = -(-federation.classes // DRAWING)
        each = "a class" if per_bar == 1 else f"{per_bar} classes"
        remarks.append(f"Each bar is {each}; its height is the share of the client's largest one.")
    if len(shown) < len(federation.clients):
        remarks.append(
            f"{len(shown)} of {len(federation.clients)} clients, from the largest to the smallest."
        )
    return ["", *remarks] if remarks else []


def _differences(federation: Federation) -> str:
    h = federation.heterogeneity().summary()
    sizes = (
        f"Sizes     {h['size_min']:,} to {h['size_max']:,} training examples, median "
        f"{h['size_median']:,.0f}; Gini {h['gini']:.2f} (0: all equal)"
    )
    if h["emd"] is None:
        return sizes
    return (
        f"{sizes}\n"
        f"Labels    EMD {h['emd']:.2f} (L1 distance to the labels of all clients, 0 to 2)\n"
        f"          JS {h['js']:.2f} bits; {h['effective_classes']:.1f} of {federation.classes} "
        "classes per client, as exp(entropy)"
    )


def _short(client: str, width: int = 20) -> str:
    """Cut the middle out of a long name: the ends tell clients apart."""
    return client if len(client) <= width else f"{client[: width - 13]}...{client[-10:]}"
