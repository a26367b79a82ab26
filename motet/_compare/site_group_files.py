"""Groups of clients from a table file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from motet.data._tables.files import read_file
from motet.data._tables.opened import HowToRead
from motet.errors import RequestError

COLUMNS = ("client", "group")


def read_site_groups(given: Mapping[str, str] | str | Path | None) -> dict[str, str]:
    """Return the group of each client, read from a table file if a path is given."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    opened = read_file(Path(given), HowToRead(as_text=COLUMNS))
    found = {str(name).strip().lower(): name for name in opened.table.column_names}
    if not set(COLUMNS) <= set(found):
        raise RequestError(
            f"{given} expects the columns client and group, a row per client; it has "
            f"{', '.join(map(str, opened.table.column_names))}. Rename its columns."
        )
    clients, groups = (opened.table[found[name]].to_pylist() for name in COLUMNS)
    known: dict[str, str] = {}
    for row, (client, group) in enumerate(zip(clients, groups, strict=True)):
        if client is None or group is None:
            missing = "client" if client is None else "group"
            raise RequestError(f"{given}, {opened.row_name(row)} has no {missing}; fill it in.")
        name, of = str(client).strip(), str(group).strip()
        if known.setdefault(name, of) != of:
            raise RequestError(
                f'{given} puts the client "{name}" into two groups, "{known[name]}" and "{of}" '
                f"({opened.row_name(row)}); keep one."
            )
    return known
