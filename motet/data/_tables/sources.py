"""Tables from anywhere: files, patterns of files, data frames, Arrow tables, mappings."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from glob import glob
from itertools import accumulate
from pathlib import Path
from typing import Any

from motet.data._tables.arrow_tables import with_plain_text
from motet.data._tables.blocks import counted
from motet.data._tables.cells import MissingValues, is_text, same_spelling, tidy
from motet.data._tables.contents import EmptyTableError, stem_of
from motet.data._tables.encode import as_column
from motet.data._tables.files import read_file
from motet.data._tables.fixes import fix
from motet.data._tables.footers import has_footer
from motet.data._tables.opened import HowToRead, Opened, cleaned
from motet.errors import DataError, RequestError

SITE = "site"  # name of the client column, if the files have none


def open_source(source: Any, how: HowToRead, client: str | None) -> tuple[Opened, str]:
    """Read a table, and return it with the name of its client column.

    Several files without a client column are one site each, named like the file.
    """
    if isinstance(source, Mapping) and source and all(_is_table(v) for v in source.values()):
        parts = {
            str(site): without_footer(_open_one(part, how), how, client)
            for site, part in source.items()
        }
        return _joined(parts, client, "table")
    if isinstance(source, str | Path) and _is_pattern(str(source)):
        # Not Path.glob: the pattern may be absolute.
        found = [Path(path) for path in sorted(glob(str(source), recursive=True))]  # noqa: PTH207
        # Office programs write ~$name beside a file that is open.
        paths = [path for path in found if path.is_file() and not path.name.startswith("~$")]
        if not paths:
            raise RequestError(f'no file matches "{source}".')
        return _joined(
            _one_per_file(paths, how, client), client, Path(source).parent.name or "sites"
        )
    is_list = isinstance(source, Sequence) and not isinstance(source, str)
    if is_list and source and all(isinstance(row, Mapping) for row in source):
        names = dict.fromkeys(str(name) for row in source for name in row)
        by_name = [{str(name): value for name, value in row.items()} for row in source]
        source = {name: [row.get(name) for row in by_name] for name in names}
    elif is_list:
        paths = [Path(path) for path in source]
        if not paths:
            raise RequestError("expected at least one file, got an empty list.")
        return _joined(_one_per_file(paths, how, client), client, paths[0].parent.name or "sites")
    if client is None:
        raise RequestError(
            "which column names the client of each row? Name it with "
            f"{fix('client', 'COLUMN')}, or give one file per client, such as 'sites/*.csv'."
        )
    opened = _tidied(_open_one(source, how))
    return without_footer(opened, how, client), client


def _is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[") and not Path(path).exists()


def _is_table(value: Any) -> bool:
    is_frame = hasattr(value, "__arrow_c_stream__") and not _is_column(value)
    return isinstance(value, Path | Mapping) or is_frame or _is_lazy(value) or _is_file(value)


def _is_column(value: Any) -> bool:
    """Tell whether a value is one column: those of pandas, polars and Arrow are streams, too."""
    # DuckDB's relations have a type, too.
    return hasattr(value, "dtype") or (hasattr(value, "type") and not hasattr(value, "columns"))


def _is_lazy(value: Any) -> bool:
    """Tell whether a value is a query that makes a table: polars' lazy frames, Arrow's data sets.

    Frames that are in memory are read as they are.
    """
    if hasattr(value, "__arrow_c_stream__"):
        return False
    return hasattr(value, "collect_schema") or _is_data_set(value)


def _is_data_set(value: Any) -> bool:
    return hasattr(value, "to_table") and hasattr(value, "schema")


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and Path(value).suffix != ""


def _one_per_file(paths: list[Path], how: HowToRead, client: str | None) -> dict[str, Opened]:
    parts: dict[str, Opened] = {}
    for path in paths:
        site = stem_of(path)
        if site in parts:
            raise RequestError(
                f'two files stand for the site "{site}", such as {path}. Rename one of them.'
            )
        opened = _or_nothing(path, how) if len(paths) > 1 else read_file(path, how)
        parts[site] = without_footer(opened, how, client)
    return parts


def without_footer(opened: Opened, how: HowToRead, client: str | None = None) -> Opened:
    """Leave out the last row of a table if it sums the others up."""
    in_memory = not opened.has_header
    if how.every_row and in_memory:  # such as the rows of a request, each of which is answered
        return opened
    last, missing = len(opened.table) - 1, MissingValues(how.na)
    named = opened if client is None else as_named(opened, client)
    if not has_footer(named.table, missing, client):
        return opened
    site = named.table[client][last].as_py() if client in named.table.column_names else None
    which = f' of "{opened.name}"' if site is None else f', "{tidy(str(site))}",'
    remark = f"{opened.row_name(last)}{which} sums the others up; left out."
    # Without the footer's text, a column may hold numbers only.
    table, units, more = how.numeric(opened.table.slice(0, last), opened.decimal)
    return replace(
        opened,
        table=table,
        units={**opened.units, **units},
        remarks=(*opened.remarks, remark, *more),
        left_out=(*opened.left_out, remark),
    )


def _or_nothing(path: Path, how: HowToRead) -> Opened:
    """Read one file among several; one without rows is an empty table."""
    import pyarrow

    try:
        return read_file(path, how)
    except EmptyTableError:
        return Opened(pyarrow.table({}), stem_of(path), counted)


def _open_one(source: Any, how: HowToRead) -> Opened:
    import pyarrow

    if isinstance(source, str | Path):
        return read_file(Path(source), how)
    try:
        table = _from_memory(source)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"this {_kind(source)} cannot be read as a table: {error}") from None
    if table is None:
        raise RequestError(
            "a table must be a path, a pandas or polars frame, a pyarrow.Table, another object "
            f"with `__arrow_c_stream__` or {{column: values}}; got a {_kind(source)}."
        )
    opened = Opened(table, "table", counted, format=_kind(source))
    if not how.every_row:
        return cleaned(opened, how)
    table, units, remarks = how.numeric(table)  # there are no lines by mistake in memory
    return replace(opened, table=table, units=units, remarks=tuple(remarks))


def _from_memory(source: Any) -> Any:
    import pyarrow

    if _is_lazy(source):
        source = source.to_table() if _is_data_set(source) else source.collect()
    if isinstance(source, pyarrow.RecordBatch):
        source = pyarrow.Table.from_batches([source])
    if isinstance(source, pyarrow.Table):
        return with_plain_text(source)
    if isinstance(source, Mapping):
        return pyarrow.table({str(name): as_column(v, str(name)) for name, v in source.items()})
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
        if any(name is not None for name in source.index.names):
            source = source.reset_index()
        # Column by column: a column of numbers and text side by side is read as text.
        columns = [as_column(source.iloc[:, i].array, str(n)) for i, n in enumerate(source.columns)]
        return pyarrow.Table.from_arrays(columns, names=[str(name) for name in source.columns])
    return with_plain_text(pyarrow.table(source)) if hasattr(source, "__arrow_c_stream__") else None


def _kind(source: Any) -> str:
    return f"{type(source).__module__.partition('.')[0]} {type(source).__name__}"


def _joined(parts: Mapping[str, Opened], client: str | None, name: str) -> tuple[Opened, str]:
    """Put the rows of several tables together; a column that one of them lacks is empty there."""
    import pyarrow

    column = client or SITE
    filled = {site: opened for site, opened in parts.items() if len(opened.table)}
    empty = [f'"{site}" has no rows; left out.' for site in parts if site not in filled]
    if not filled:
        raise DataError("no file has a row. Expected a header and one row per example in each.")
    tidied = {site: as_named(_tidied(opened), column) for site, opened in filled.items()}
    tidied, renamed = _in_one_spelling(tidied)
    has_clients = [site for site, o in tidied.items() if column in o.table.column_names]
    if client is not None and has_clients and len(has_clients) < len(tidied):
        without = next(site for site in tidied if site not in has_clients)
        raise DataError(
            f'"{has_clients[0]}" has a column "{client}" and "{without}" has none. Add it, or '
            "leave it out of all files to name sites after their files."
        )
    tables = [
        o.table
        if site in has_clients
        else o.table.append_column(column, _constant(site, len(o.table)))
        for site, o in tidied.items()
    ]
    remarks = [*empty, *renamed]
    remarks += [remark for opened in tidied.values() for remark in opened.remarks]
    remarks += _missing_columns({site: o.table for site, o in tidied.items()})
    table = pyarrow.concat_tables(_alike(tables), promote_options="permissive")
    formats = dict.fromkeys(opened.format for opened in tidied.values())
    namer = _row_namer(list(tidied.values()), list(tidied))
    shown = f"{len(tidied)} tables: {'; '.join(formats)}"
    units = _common_units(tidied)
    decimals = {opened.decimal for opened in tidied.values()}
    decimal = decimals.pop() if len(decimals) == 1 else "."
    left_out = tuple(text for opened in tidied.values() for text in opened.left_out)
    joined = Opened(table, name, namer, tuple(remarks), shown, decimal, units, left_out)
    return joined, column


def _common_units(parts: Mapping[str, Opened]) -> dict[str, str]:
    """Refuse a column whose numbers have different units at different sites."""
    found: dict[str, tuple[str, str]] = {}
    for site, opened in parts.items():
        for column, unit in opened.units.items():
            other, first = found.setdefault(column, (unit, site))
            if other != unit:
                raise DataError(
                    f'column "{column}" is in {other} at "{first}" and in {unit} at "{site}". '
                    f"Convert it in one of the files, or leave it out with {fix('drop', column)}."
                )
    return {column: unit for column, (unit, _) in found.items()}


def as_named(opened: Opened, client: str) -> Opened:
    """Rename the client column if its name differs in case only."""
    names = opened.table.column_names
    same = [name for name in names if same_spelling(name) == same_spelling(client)]
    if client in names or len(same) != 1:
        return opened
    renamed = [client if name == same[0] else name for name in names]
    return replace(opened, table=opened.table.rename_columns(renamed))


def _in_one_spelling(parts: dict[str, Opened]) -> tuple[dict[str, Opened], list[str]]:
    """Name columns of all files as the first file that has them does, if only case differs."""
    first: dict[str, str] = {}
    changed, remarks = {}, []
    for site, opened in parts.items():
        names = opened.table.column_names
        keys = [same_spelling(name) for name in names]
        unclear = len(set(keys)) < len(keys)
        real = names if unclear else [first.get(key, n) for key, n in zip(keys, names, strict=True)]
        for key, name in zip(keys, names, strict=True):
            first.setdefault(key, name)
        other = [(name, new) for name, new in zip(names, real, strict=True) if name != new]
        if other:
            remarks.append(f'column "{other[0][0]}" of "{site}" is taken for "{other[0][1]}".')
        changed[site] = replace(opened, table=opened.table.rename_columns(real))
    return changed, remarks


def _constant(site: str, rows: int) -> Any:
    import pyarrow

    codes = pyarrow.array([0] * rows, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(codes, [site])


def _row_namer(parts: list[Opened], sites: list[str]) -> Callable[[int], str]:
    starts = [0, *accumulate(len(part.table) for part in parts)]

    def name(row: int) -> str:
        place = bisect.bisect_right(starts, row) - 1
        return f'{parts[place].row_name(row - starts[place])} of "{sites[place]}"'

    return name


def _missing_columns(tables: Mapping[str, Any]) -> list[str]:
    everywhere = dict.fromkeys(n for table in tables.values() for n in table.column_names)
    found = []
    for column in everywhere:
        without = [site for site, table in tables.items() if column not in table.column_names]
        if without:
            found.append(
                f'column "{column}" is not in {", ".join(without[:5])}'
                f"{' and others' if len(without) > 5 else ''}; its values are missing there."
            )
    return found


def _alike(tables: list[Any]) -> list[Any]:
    """Read a column as text everywhere if it is text in one table and numbers in another."""
    import pyarrow
    from pyarrow import types

    def family(kind: Any) -> str:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_null(kind):
            return "null"
        numeric = types.is_integer(kind) or types.is_floating(kind)
        return "number" if numeric else str(kind)

    kinds: dict[str, set[str]] = {}
    for table in tables:
        for field in table.schema:
            kinds.setdefault(field.name, set()).add(family(field.type))
    mixed = {name for name, found in kinds.items() if len(found - {"null"}) > 1}
    dictionaries = {f.name for table in tables for f in table.schema if types.is_dictionary(f.type)}
    changed = []
    for table in tables:
        for place, field in enumerate(table.schema):
            if field.name in mixed or field.name in dictionaries:
                texts = table.column(place).cast(pyarrow.string())
                table = table.set_column(place, field.name, texts)  # noqa: PLW2901
        changed.append(table)
    return changed


def _tidied(opened: Opened) -> Opened:
    """Remove outer spaces from column names, and columns without a name that hold no data."""
    from pyarrow import types

    table, remarks = opened.table, list(opened.remarks)
    for place in reversed([n for n, name in enumerate(table.column_names) if not tidy(name)]):
        column = table.column(place)
        if column.null_count == len(table) or _numbers_rows(column):
            table = table.remove_column(place)
            if column.null_count < len(table):
                remarks.append("a column without a name, different in every row, was left out.")
    for place, field in enumerate(table.schema):
        if types.is_duration(field.type):
            table = table.set_column(place, field.name, _days(table.column(place)))
            remarks.append(f'column "{field.name}" holds durations; they are read as days.')
    names = [tidy(name) for name in table.column_names]
    spaced = [name for name in table.column_names if tidy(name) != name]
    if spaced:
        remarks.append(f'spaces around column names were removed, such as "{spaced[0]}".')
    if not len(table):
        raise DataError(
            f'"{opened.name}" has no rows{_header_only(names)}. Expected a header and one row per '
            "example: export it again, with its rows."
        )
    return replace(opened, table=table.rename_columns(names), remarks=tuple(remarks))


def _header_only(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return f" below its header ({shown}{', ...' if names[4:] else ''})" if names else ""


def _days(column: Any) -> Any:
    from pyarrow import compute, duration, float64, int64

    per_day = {"s": 86400, "ms": 86400_000, "us": 86400_000_000, "ns": 86400_000_000_000}
    ticks = column.cast(duration(column.type.unit)).cast(int64()).cast(float64(), safe=False)
    return compute.divide(ticks, float(per_day[column.type.unit]))


def _numbers_rows(column: Any) -> bool:
    """Tell whether a column has another whole number or text in every row."""
    from pyarrow import compute, types

    is_code = types.is_integer(column.type) or is_text(column)
    return is_code and len(column) > 1 and compute.count_distinct(column).as_py() == len(column)
