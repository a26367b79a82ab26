"""What one site sends so that statistics can be agreed on: counts and moments by name, no row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from motet.data._schema import Schema
from motet.data._tables.aggregates import aggregate, block_of
from motet.data._tables.asking import count_at_most, decimals_of, question_id
from motet.data._tables.blocks import Noticed, counted
from motet.data._tables.cells import MissingValues, to_cells
from motet.errors import DataError


@dataclass(frozen=True)
class InputStatistics:
    """Of one input that is a number.

    Attributes:
        known: Training rows that have a value.
        mean: Their mean; 0 if there are none.
        spread: Sum of the squared distances from it.
        low: Smallest value; None if there is none.
        high: Largest value.
        decimals: With how many decimals values are written; None if with more than nine.
        median: The site's own, if sites fill with theirs.
        at_most: The answer to a question: how many values are at most each number.
    """

    known: int
    mean: float
    spread: float
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    median: float | None = None
    at_most: tuple[int, ...] = ()


@dataclass(frozen=True)
class SiteStatistics:
    """Everything that a site sends.

    Attributes:
        site: Its name.
        rows: Training rows.
        table_rows: All rows.
        missing: Missing values of each column in training rows.
        inputs: By input, those of categories excepted.
        categories: By column, for each spelling the training rows and all rows that have it.
        answered: The question that was answered; "" if none.
    """

    site: str
    rows: int
    table_rows: int
    missing: Mapping[str, int]
    inputs: Mapping[str, InputStatistics]
    categories: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    answered: str = ""

    @classmethod
    def of(
        cls,
        schema: Schema,
        site: str,
        table: Any,
        training: Any,
        *,
        thresholds: Mapping[str, list[float]] | None = None,
        medians: bool = False,
    ) -> SiteStatistics:
        """Compute what a site sends.

        Args:
            schema: Columns without statistics.
            site: Name of the site.
            table: All rows.
            training: The training rows.
            thresholds: The question to answer; None: none was asked.
            medians: Whether the site's own medians are sent.
        """
        moments = aggregate(schema, training, sites=(site,))
        values = _known_values(schema, training)
        places = {name: place for place, name in enumerate(_all_names(schema))}
        inputs = {
            name: InputStatistics(
                known=int(moments.known[0, places[name]]),
                mean=float(moments.mean[0, places[name]]),
                spread=float(moments.spread[0, places[name]]),
                low=_finite(moments.low[0, places[name]]),
                high=_finite(moments.high[0, places[name]]),
                decimals=decimals_of(known) if len(known) else 0,
                median=float(np.median(known)) if medians and len(known) else None,
                at_most=tuple(count_at_most(known, (thresholds or {}).get(name, []))),
            )
            for name, known in values.items()
        }
        missing = {c.name: int(moments.missing[0, n]) for n, c in enumerate(schema.columns)}
        return cls(
            site=site,
            rows=len(training),
            table_rows=len(table),
            missing=missing,
            inputs=inputs,
            categories=_categories(schema, table, training),
            answered="" if thresholds is None else question_id(thresholds),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what a site sends, as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, sent: Mapping[str, Any], schema: Schema) -> SiteStatistics:
        """Read what a site sent, and refuse what cannot be said about rows of this schema."""
        try:
            made = cls(
                site=_text(sent["site"]),
                rows=_count(sent["rows"]),
                table_rows=_count(sent["table_rows"]),
                missing={_text(name): _count(n) for name, n in sent["missing"].items()},
                inputs={_text(name): _input(one) for name, one in sent["inputs"].items()},
                categories={
                    _text(name): {_text(t): (_count(n), _count(m)) for t, (n, m) in found.items()}
                    for name, found in sent["categories"].items()
                },
                answered=_text(sent["answered"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise DataError(
                "these are not the statistics of a site; expected the statistics.json that "
                "`motet deploy statistics` writes."
            ) from None
        _check(made, schema)
        return made


def numeric_names(schema: Schema) -> tuple[str, ...]:
    """Name the inputs that are neither indicators nor categories."""
    return tuple(
        name for c in schema.columns if c.kind != "categorical" for name in _own_features(c)
    )


def _all_names(schema: Schema) -> tuple[str, ...]:
    return tuple(name for c in schema.columns for name in _own_features(c))


def _own_features(column: Any) -> tuple[str, ...]:
    features: tuple[str, ...] = column.features
    return features[: len(features) - column.indicator]


def _known_values(schema: Schema, table: Any) -> dict[str, Any]:
    noticed, found = Noticed(counted, [], counted), {}
    for column in schema.columns:
        if column.kind == "categorical":
            continue
        block = block_of(schema, table, column, None, noticed)
        for name, values in zip(_own_features(column), block.values.T, strict=True):
            numbers = np.asarray(values, np.float64)
            found[name] = numbers[~np.isnan(numbers)]
    return found


def _categories(schema: Schema, table: Any, training: Any) -> dict[str, dict[str, tuple[int, int]]]:
    missing, found = MissingValues(schema.na), {}
    for column in schema.columns:
        if column.kind != "categorical":
            continue
        counts: dict[str, tuple[int, int]] = {}
        cells, trained = (to_cells(part[column.name], missing) for part in (table, training))
        inside = dict(zip(trained.values, trained.counts().tolist(), strict=True))
        for text, count in zip(cells.values, cells.counts().tolist(), strict=True):
            counts[text] = (inside.get(text, 0), count)
        found[column.name] = counts
    return found


def _check(sent: SiteStatistics, schema: Schema) -> None:
    columns = {column.name for column in schema.columns}
    coded = {column.name for column in schema.columns if column.kind == "categorical"}
    if (
        set(sent.missing) != columns
        or set(sent.inputs) != set(numeric_names(schema))
        or set(sent.categories) != coded
    ):
        raise DataError(
            f'the statistics of "{sent.site}" are about other columns than the experiment. Run '
            "`motet deploy statistics` there again, with the present experiment.toml."
        )
    counts = [*sent.missing.values(), *(one.known for one in sent.inputs.values())]
    counts += [n for texts in sent.categories.values() for n, _ in texts.values()]
    pairs = [pair for texts in sent.categories.values() for pair in texts.values()]
    answers = [
        n > later
        for one in sent.inputs.values()
        for n, later in pairwise((*one.at_most, one.known))
    ]
    if (
        sent.rows > sent.table_rows
        or any(count > sent.rows for count in counts)
        or any(n > whole or whole > sent.table_rows for n, whole in pairs)
        or any(one.spread < 0 for one in sent.inputs.values())
        or any((one.known > 0) != (one.low is not None) for one in sent.inputs.values())
        or any(answers)
    ):
        raise DataError(
            f'the statistics of "{sent.site}" are impossible: counts must lie between 0 and the '
            "number of rows, and spreads must not be negative."
        )


def _input(sent: Mapping[str, Any]) -> InputStatistics:
    decimals = sent["decimals"]
    return InputStatistics(
        known=_count(sent["known"]),
        mean=_number(sent["mean"]),
        spread=_number(sent["spread"]),
        low=None if sent["low"] is None else _number(sent["low"]),
        high=None if sent["high"] is None else _number(sent["high"]),
        decimals=None if decimals is None else min(_count(decimals), 99),
        median=None if sent["median"] is None else _number(sent["median"]),
        at_most=tuple(_count(n) for n in sent["at_most"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
