"""Parts of a schema: columns, the target, scaling; and what encoding rows returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

ColumnKind = Literal["number", "categorical", "ordinal", "date"]
DatePart = Literal["age", "year", "month", "day_of_year", "weekday", "days"]
TargetKind = Literal["classes", "regression", "survival", "labels"]
KINDS: tuple[ColumnKind, ...] = get_args(ColumnKind)
DATE_PARTS: tuple[DatePart, ...] = get_args(DatePart)
OTHER = "(other)"  # the category of rare and unknown values


@dataclass(frozen=True, kw_only=True)
class Column:
    """One input column of a table.

    Attributes:
        name: Name in the table.
        kind: "number", "categorical" (one 0/1 input per category), "ordinal" (the position of the
            category) or "date" (one input per part).
        categories: Categories in order, for "categorical" and "ordinal".
        other: Whether a categorical column has one more input, for rare and unknown categories.
        parts: What is taken from a date.
        format: Format of dates that are text, as in `datetime.strptime`; None: ISO 8601.
        reference: Date (ISO 8601) at which "age" is measured.
        indicator: Whether one more input is 1 where the value is missing.
        low: Smallest number among the training rows.
        high: Largest number among the training rows.
        unit: Unit of the numbers, such as "mg/dl".

    Example:
        >>> sex = Column(name="sex", kind="categorical", categories=("f", "m"), indicator=True)
        >>> sex.features
        ('sex=f', 'sex=m', 'sex_missing')
    """

    name: str
    kind: ColumnKind = "number"
    categories: tuple[str, ...] = ()
    other: bool = False
    parts: tuple[DatePart, ...] = ()
    format: str | None = None
    reference: str | None = None
    indicator: bool = False
    low: float | None = None
    high: float | None = None
    unit: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs that the column becomes."""
        if self.kind == "categorical":
            known = [*self.categories, OTHER] if self.other else self.categories
            names = [f"{self.name}={category}" for category in known]
        elif self.kind == "date":
            names = [f"{self.name}:{part}" for part in self.parts]
        else:
            names = [self.name]
        return (*names, f"{self.name}_missing") if self.indicator else tuple(names)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The column to predict.

    Attributes:
        name: Name in the table.
        kind: "classes", "regression", "survival" (a time until an event) or "labels" (several
            columns of yes and no).
        labels: Names of the network's outputs in order: classes, columns of "labels", or the ends
            of time bins once a model of survival is trained; () for regression.
        mapping: Label for each spelling in the table that is not a label itself.
        unit: Unit of the values.
        event: For "survival", the column that says whether the event happened at that time (1) or
            the example was last seen without it (0).

    Example:
        >>> target = Target(name="outcome", labels=("well", "ill"), mapping={"sick": "ill"})
        >>> target.kind, target.labels
        ('classes', ('well', 'ill'))
    """

    name: str
    kind: TargetKind = "classes"
    labels: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    event: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that the target is read from."""
        if self.kind == "labels":
            return self.labels
        return (self.name,) if self.event is None else (self.name, self.event)


@dataclass(frozen=True)
class Scaling:
    """`(x - mean) / deviation` for each input.

    Attributes:
        mean: One number per input.
        deviation: One number per input.

    Example:
        >>> from motet.data import Column, Schema, Target
        >>> age, target = Column(name="age"), Target(name="ill", labels=("no", "yes"))
        >>> scaling = Scaling(mean=(60.0,), deviation=(10.0,))
        >>> schema = Schema(columns=(age,), target=target, scaling=scaling)
        >>> schema.encode({"age": ["40", "65"]}).x.tolist()
        [[-2.0], [0.5]]
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


class Remark(NamedTuple):
    """Something that `Schema.encode` repaired or noticed, with the number of rows.

    Attributes:
        column: The column.
        what: "filled" (a missing value), "unknown" (category), "out_of_range" (of the training
            rows), "missing_column" or "unknown_site".
        rows: How many rows.
        first: Name of the first such row.
        example: The value there; "" if it is missing.

    Example:
        >>> str(Remark("age", "filled", rows=2, first="row 7"))
        'column "age": a missing value was filled in 2 rows, the first in row 7.'
    """

    column: str
    what: Literal["filled", "unknown", "out_of_range", "missing_column", "unknown_site"]
    rows: int
    first: str
    example: str = ""

    def __str__(self) -> str:
        many = f"{self.rows} row{'s' if self.rows != 1 else ''}"
        return {
            "filled": f'column "{self.column}": a missing value was filled in {many}, '
            f"the first in {self.first}",
            "unknown": f'column "{self.column}": {many} with a category that training did not '
            f'have, such as "{self.example}" in {self.first}',
            "out_of_range": f'column "{self.column}": {many} outside the range of the training '
            f"rows, such as {self.example} in {self.first}; check the unit",
            "missing_column": f'column "{self.column}" is not in the table; it was filled in '
            f"{many}",
            "unknown_site": f"{many} of sites without statistics of their own, such as "
            f'"{self.example}" in {self.first}; those of the federation were used',
        }[self.what] + "."


class Encoded(NamedTuple):
    """Encoded rows.

    Attributes:
        x: Inputs, [rows, features].
        remarks: What was repaired or noticed.

    Example:
        >>> from motet.data import Column, Schema, Target
        >>> age, target = Column(name="age"), Target(name="ill", labels=("no", "yes"))
        >>> schema = Schema(columns=(age,), target=target, fills=(50.0,))
        >>> encoded = schema.encode({"age": ["40", "?"]})
        >>> encoded.x.tolist()
        [[40.0], [50.0]]
        >>> [str(remark) for remark in encoded.remarks]
        ['column "age": a missing value was filled in 1 row, the first in row 2.']
    """

    x: NDArray[np.float32]
    remarks: tuple[Remark, ...]
