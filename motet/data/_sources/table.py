"""Federations from tables: files, patterns of files, data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from motet.data._divide import federate
from motet.data._federation import Federation
from motet.data._split import Split
from motet.data._tables.choosing import choose_columns
from motet.data._tables.opened import HowToRead
from motet.data._tables.options import (
    Kind,
    TableOptions,
    dates_of,
    filling_of,
    ordinal_of,
    pairs_of,
    standardize_of,
)
from motet.data._tables.preparing import Prepared, prepare
from motet.data._tables.reading_options import checked, listed
from motet.data._tables.sources import open_source
from motet.data._tables.suggesting import Suggestion, suggest
from motet.errors import RequestError

# Options that are used as they are given.
PLAIN = (
    "event",
    "date_format",
    "reference_date",
    "kind",
    "rare",
    "merge_spellings",
    "drop_missing_target",
    "drop_missing_client",
    "few_test_rows",
)


def from_table(  # one name per option
    path: Any,
    *,
    client: str | None = None,
    target: str | Sequence[str],
    event: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    ordinal: Mapping[str, Sequence[str]] | Sequence[str] = (),
    dates: Mapping[str, str | Sequence[str]] | Sequence[str] = (),
    labels: Mapping[str, str] | Sequence[str] = (),
    units: Mapping[str, str] | Sequence[str] = (),
    split: Split | str | None = None,
    kind: Kind = "auto",
    missing: str | float = "error",
    indicators: bool = False,
    standardize: bool | str = False,
    rare: float = 0,
    merge_spellings: bool = True,
    drop_missing_target: bool = False,
    drop_missing_client: bool = False,
    na: Sequence[str] = (),
    date_format: str | None = None,
    reference_date: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
    skip_rows: int = 0,
    columns: Sequence[str] | None = None,
    bad_rows: str = "error",
    few_test_rows: int = 10,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """Make a federation of a table whose rows name their client.

    How the columns were read is in `federation.schema`, and what the owner of the data should know
    in `federation.notes`.

    Args:
        path: A text file (.csv, .tsv, .txt, also .gz), .parquet, .feather or .xlsx file; a pattern
            such as "sites/*.csv", a list of files or `{site: file}`; a pandas or polars frame
            (also a lazy one), a `pyarrow.Table` or data set, any other object with
            `__arrow_c_stream__`, such as a relation of DuckDB, or `{column: values}`.
        client: Column that names the client of each row. Several files without such a column are
            one client each, named like the file.
        target: Column to predict. Text, booleans and integers are classes, other numbers are
            regression. Several columns of yes and no (1, true, yes; others by `labels`) are labels
            that are predicted together.
        event: Column that says whether the event happened (1, true, yes, dead) or the example was
            last seen without it (0, false, no, alive; others by `labels`). It makes the target a
            time until an event: survival.
        features: Input columns; None takes all others.
        drop: Columns to leave out.
        categorical: Input columns to one-hot encode; text must be named here.
        ordinal: Input columns with ordered categories: `{"stage": ["I", "II", "III"]}` or
            `["stage=I<II<III"]`.
        dates: Input columns with dates, and what is taken from them: `["visit", "birth=age"]` or
            `{"birth": "age"}`. Parts are age, year, month, day_of_year, weekday and days (since
            1970); the default is year and day of year.
        labels: Label for each spelling of the target: `{"0": "healthy", "1": "ill", "2": "ill"}`.
            Classes are in this order.
        units: Units of columns, for people: `{"chol": "mg/dl"}`.
        split: How each client's rows are cut (default: `Split()`), or the column that contains
            train, val or test.
        kind: "classes" or "regression", to override the target's type.
        missing: "error", or how to fill missing numbers: with the "median" or "mean" of all
            clients' training rows, with "client-median" or "client-mean" (the client's own; all
            clients' if it has none), with a number, or with "indicator" (the median, and one more
            input that marks missing values). A missing category becomes zeros.
        indicators: Whether columns with missing values get one more input that marks them.
        standardize: Scale each input to mean 0 and standard deviation 1 over all clients' training
            rows (true or "federation") or over the client's own ("site").
        rare: Categories with fewer rows share one input; below 1 it is a share of all rows.
        merge_spellings: Whether clients, categories and labels that differ only in case are the
            same. Outer and repeated spaces never count.
        drop_missing_target: Drop rows without a target instead of refusing them.
        drop_missing_client: Drop rows without a client instead of refusing them.
        na: Texts or numbers that mean a missing value, besides the usual ones (empty, ?, NA, n/a,
            NaN, null).
        date_format: How dates that are text are written, as in `datetime.strptime`; None detects
            it.
        reference_date: Day at which ages are measured; None is the latest date in the table.
        encoding: Of text files; None detects it.
        delimiter: Of text files; None detects it.
        decimal: Decimal separator of text files, "." or ","; None detects it.
        sheet: Sheet of an Excel file; None is the first.
        skip_rows: Lines before the header.
        columns: Column names of a file without a header.
        bad_rows: "error", or "skip" for rows with too many or too few cells.
        few_test_rows: Clients with fewer test rows are named in a note.
        seed: Seed of the cut.
        name: Name of the data; by default the name of the file.

    Returns:
        The federation, with `schema` and `notes`.

    Raises:
        RequestError: An option that does not fit the table.
        DataError: Cells that cannot be used. The message names the row and the option that helps.

    Example:
        >>> visits = {"site": ["a", "a", "b", "b"], "age": [50, 60, 70, 80], "ill": [0, 1, 0, 1]}
        >>> from_table(visits, client="site", target="ill").features
        ('age',)
    """
    given = {key: value for key, value in locals().items() if key not in ("path", "name")}
    prepared = prepare_table(path, **given)
    schema = prepared.schema
    source = {
        "from": "table",
        "client": schema.client,
        "target": list(schema.target.columns) if schema.target.kind == "labels" else target,
        "features": [column.name for column in schema.columns],
        "categorical": [column.name for column in schema.columns if column.kind == "categorical"],
        "missing": missing,
        "standardize": standardize,
        "format": prepared.format,
    }
    cut = split if isinstance(split, Split) else Split(test="official" if split else 0.2)
    federation = federate(
        prepared.raw,
        prepared.allotment,
        name=name or prepared.name,
        recipe={"source": source, "seed": seed, "split": cut.recipe()},
        features=schema.feature_names,
    )
    return replace(
        federation, schema=schema, notes=prepared.remarks, aggregates=prepared.aggregates
    )


def prepare_table(path: Any, **given: Any) -> Prepared:
    """Read a table with the arguments of `from_table`, all of them, except its name."""
    named = {key: given[key] for key in ("client", "event") if given[key] is not None}
    given = {**given, **{key: str(name) for key, name in named.items()}}  # 0, as pandas names some
    client, options = given["client"], _options(given)
    opened, client_column = open_source(path, _how_to_read(given, client, options), client)
    options = _options(given, opened.table.column_names)
    return prepare(opened, client_column, given["split"], options, given["seed"])


def suggestions(path: Any, **given: Any) -> list[Suggestion]:
    """Propose options that a table still needs, for the arguments of `from_table`."""
    client, options = given["client"], _options(given)
    opened, client_column = open_source(path, _how_to_read(given, client, options), client)
    options = _options(given, opened.table.column_names)
    split = given["split"] if isinstance(given["split"], str) else None
    chosen = choose_columns(
        opened.table,
        client_column,
        split,
        options,
        has_header=opened.has_header,
        row_name=opened.row_name,
    )
    return suggest(opened.table, chosen, client_column, options, opened.decimal)


def names_in(path: Any, **given: Any) -> list[str]:
    """List the columns of a table, for the arguments of `from_table`."""
    how = _how_to_read(given, given["client"], _options(given))
    return list(open_source(path, how, given["client"])[0].table.column_names)


def _how_to_read(given: Mapping[str, Any], client: str | None, options: TableOptions) -> HowToRead:
    if not given["rare"] >= 0:
        raise RequestError(f"rare must be 0 or more; got {given['rare']}.", option="rare")
    if "%" not in (given["date_format"] or "%"):
        raise RequestError(
            f'date_format expects a format such as %d.%m.%Y; got "{given["date_format"]}".',
            option="date_format",
        )
    codes = [name.strip() for names in options.categorical for name in (names, *names.split(","))]
    return HowToRead(
        **checked(given),
        na=options.na,
        # Codes such as 007 or 250.00 are names, not numbers.
        as_text=tuple(filter(None, [client, *codes, *options.ordinal])),
        target=options.target if options.event is None and options.kind == "auto" else None,
    )


def _options(given: Mapping[str, Any], known: Sequence[str] | None = None) -> TableOptions:
    """Read the options; `known` are the table's columns, by which names with "=" are found.

    Before the table is open nothing is known, and dates are not looked at.
    """
    features, names = given["features"], set(known or ())
    targets = listed(given["target"])
    if not targets:
        raise RequestError("expected a column to predict, got an empty list.")
    return TableOptions(
        target=targets[0],
        more_targets=targets[1:],
        features=None if features is None else listed(features),
        drop=listed(given["drop"]),
        categorical=listed(given["categorical"]),
        ordinal=ordinal_of(given["ordinal"], names),
        dates={} if known is None else dates_of(given["dates"], names),
        labels={k: str(v) for k, v in pairs_of(given["labels"], "labels").items()},
        units={k: str(v) for k, v in pairs_of(given["units"], "units", names).items()},
        filling=filling_of(given["missing"], indicators=given["indicators"]),
        standardize=standardize_of(given["standardize"]),
        na=tuple(str(value) for value in listed(given["na"])),
        **{name: given[name] for name in PLAIN},
    )
