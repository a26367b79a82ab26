"""Which columns of a table are used, and messages about names that it does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from motet._core.visible_text import visible
from motet.data._tables.cells import Cells, RowName, numbers_of, same_spelling
from motet.data._tables.fixes import fix, fixes
from motet.data._tables.options import TableOptions
from motet.data._tables.sniffing import DELIMITERS
from motet.errors import DataError, RequestError, nearest

RARE_DELIMITERS = (":", "^", "~", " ")  # never guessed: they are frequent in text
MOST_TITLE_LINES = 20  # above a header


def with_commas(options: TableOptions, table: Any) -> TableOptions:
    """Take "age,sex" for two columns, unless a column has that name."""
    known = set(table.column_names)

    def parts(names: tuple[str, ...]) -> tuple[str, ...]:
        split = [[name] if name in known else name.split(",") for name in names]
        return tuple(part.strip() for listed in split for part in listed)

    return replace(
        options,
        features=None if options.features is None else parts(options.features),
        drop=parts(options.drop),
        categorical=parts(options.categorical),
    )


def without_dropped(options: TableOptions) -> TableOptions:
    """Forget the kinds of columns that are left out."""
    dropped = set(options.drop)
    return replace(
        options,
        categorical=tuple(name for name in options.categorical if name not in dropped),
        ordinal={name: order for name, order in options.ordinal.items() if name not in dropped},
        dates={name: parts for name, parts in options.dates.items() if name not in dropped},
    )


def choose_columns(
    table: Any,
    client: str,
    split_column: str | None,
    options: TableOptions,
    *,
    has_header: bool = True,
    row_name: RowName | None = None,
) -> list[str]:
    """Choose the input columns, and refuse names that the table does not have."""
    roles = _roles(client, split_column, options)
    taken = set(roles)
    if client in options.targets:
        raise RequestError(
            f'column "{client}" cannot be both the client and the target. Name another target with '
            f"{fix('target', 'COLUMN')}; the table has {', '.join(table.column_names[:20])}."
        )
    named = [*options.categorical, *options.ordinal, *options.dates]
    lists = ("features", "categorical", "ordinal", "dates")
    asked = {name: key for key in lists for name in getattr(options, key) or ()}
    wanted = {**roles, **asked, **roles}
    require_columns(table, wanted, roles=taken, has_header=has_header, row_name=row_name)
    known = {*table.column_names, *taken}
    require_columns(table, {name: "drop" for name in options.drop if name not in known})
    for name in options.units:
        if name not in known:
            raise RequestError(
                f'units names no column "{name}"; {nearest(name, known)}.', option="units"
            )
    dropped = {*options.drop}
    if options.features is None:
        chosen = [c for c in table.column_names if c not in taken and c not in dropped]
    else:
        chosen = [c for c in options.features if c not in dropped]
    overlap = sorted(taken & set(chosen))
    if overlap:
        raise RequestError(
            f'column "{overlap[0]}" names the client, the target or the split; '
            "it cannot be a feature as well."
        )
    inputs = {*chosen}
    for option in ("categorical", "ordinal", "dates"):
        stray = [column for column in getattr(options, option) if column not in inputs]
        if stray:
            raise RequestError(
                f'{option} names "{stray[0]}", which is not among the features.', option=option
            )
    twice = [name for name, times in Counter(named).items() if times > 1]
    if twice:
        raise RequestError(
            f'column "{twice[0]}" has two kinds; name it in one of categorical, ordinal and dates.'
        )
    if not chosen:
        raise RequestError("the table has no columns left to predict from.")
    require_columns(table, chosen, has_header=has_header)
    return chosen


def _roles(client: str, split: str | None, options: TableOptions) -> dict[str, str]:
    """Name the columns that are no input, each with the option that asks for it."""
    roles = [("split", split), ("event", options.event)]
    roles += [*(("target", name) for name in options.targets), ("client", client)]
    return {column: option for option, column in roles if column is not None}


def require_columns(
    table: Any,
    columns: Mapping[str, str] | Sequence[str],
    roles: Collection[str] = (),
    *,
    has_header: bool = True,
    row_name: RowName | None = None,
) -> None:
    """Refuse a table that does not have each of the columns exactly once.

    Args:
        table: A `pyarrow.Table`.
        columns: The columns, with the options that ask for them if they are known.
        roles: Those that cannot be left out, such as the client's.
        has_header: Whether the names are a line of a file, which another may replace.
        row_name: Names a row by its line; None where that is not known.
    """
    counted = Counter(table.column_names)
    for column in columns:
        if counted[column] > 1:
            may_drop = column not in roles
            raise DataError(
                f'the table has {counted[column]} columns named "{column}", and which one is meant '
                f"is unclear. {_renaming(table, column, may_drop=may_drop, has_header=has_header)}"
            )
        if not counted[column]:
            option = columns[column] if isinstance(columns, Mapping) else None
            hint = _headless_hint(table, column)
            if not hint and has_header and row_name is not None:
                hint = _title_hint(table, column, row_name)
            raise RequestError(
                f'the table has no column "{column}"; {nearest(column, table.column_names)}.{hint}',
                option=option,
            )


def _renaming(table: Any, column: str, *, may_drop: bool, has_header: bool) -> str:
    """Say how to tell columns of one name apart."""
    leave = f"leave them out with {fix('drop', column)}"
    if not has_header:
        source = "in the table, before it is read"
        return f"Rename all but one {source}{f', or {leave}' if may_drop else ''}."
    if looks_like_data(table.column_names):
        return _naming(table, column)
    if any("," in name for name in table.column_names):
        return f"Rename all but one{f', or {leave}' if may_drop else ' in the file'}."
    if not column and may_drop:
        return f"They have no name; {leave}, or name them in the file."
    seen: Counter[str] = Counter()
    names = []
    for name in table.column_names:
        seen[name] += 1
        names.append(f"{name}_{seen[name]}" if name == column and seen[name] > 1 else name)
    anew = fixes(("columns", ",".join(names)), ("skip_rows", 1))
    return f"Rename all columns with {anew}{f', or {leave}' if may_drop else ''}."


def in_their_spelling(
    table: Any, options: TableOptions, client: str, split: str | None
) -> tuple[TableOptions, str, str | None, list[str]]:
    """Replace names of columns by those in the table, where they differ in case or spaces only."""
    columns: dict[str, None] = dict.fromkeys(table.column_names)
    spelled = Counter(same_spelling(name) for name in columns)
    by_key: dict[str, str] = {same_spelling(name): name for name in columns}
    remarks: dict[str, str] = {}
    shown = {visible(name): name for name in columns}

    def real(name: str) -> str:
        if name not in columns and name in shown:  # copied from a message
            return shown[name]
        key = same_spelling(name)
        if name in columns or spelled[key] != 1:
            return name
        remarks[name] = f'column "{by_key[key]}" is taken for "{name}".'
        return by_key[key]

    changed = without_dropped(
        replace(
            options,
            target=real(options.target),
            more_targets=tuple(map(real, options.more_targets)),
            event=None if options.event is None else real(options.event),
            features=None if options.features is None else tuple(map(real, options.features)),
            drop=tuple(map(real, options.drop)),
            categorical=tuple(map(real, options.categorical)),
            ordinal={real(name): order for name, order in options.ordinal.items()},
            dates={real(name): parts for name, parts in options.dates.items()},
            units={real(name): unit for name, unit in options.units.items()},
        )
    )
    return changed, real(client), None if split is None else real(split), list(remarks.values())


def looks_like_data(names: Sequence[str]) -> bool:
    """Tell whether names of columns are numbers for the most part, as in a file without header."""
    numbers, wrong = numbers_of(Cells(np.zeros(0, np.int32), tuple(names)), ".")
    return len(wrong) <= len(numbers) / 2


def _naming(table: Any, asked: str) -> str:
    """Say how to name columns; someone who asked for column 3 counts them from 0."""
    count = len(table.column_names)
    by_place = asked.isdecimal() and int(asked) < count
    names = [str(place) if by_place else f"column{place + 1}" for place in range(count)]
    return (
        "The first row looks like data, not like a header; name the columns with "
        f"{fix('columns', ','.join(names))}."
    )


def _headless_hint(table: Any, asked: str) -> str:
    """Say how to name columns, if the first row looks like data."""
    names = tuple(table.column_names)
    marks = [mark for mark in (*DELIMITERS, *RARE_DELIMITERS) if mark in names[0]]
    mark = {"\t": "tab", " ": "space"}.get("".join(marks[:1]), "".join(marks[:1]))
    if len(names) == 1 and marks:
        return (
            f" The table has one column only, and its name contains {marks[0]!r}; if that is the "
            f"delimiter, say so with {fix('delimiter', mark)}."
        )
    return f" {_naming(table, asked)}" if looks_like_data(names) else ""


def _title_hint(table: Any, asked: str, row_name: RowName) -> str:
    """Say how to skip a title above the header, if the name is in one of the first rows."""
    columns = [column.to_pylist() for column in table.slice(0, MOST_TITLE_LINES).columns]
    for row, cells in enumerate(zip(*columns, strict=True)):
        line = re.search(r"\d+", row_name(row))
        if asked in cells and line is not None:
            return (
                f" It is in {row_name(row)}, though; if that is the header, skip the lines above "
                f"it with {fix('skip_rows', int(line[0]) - 1)}."
            )
    return ""
