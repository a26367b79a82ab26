"""Models of a request and a reply, made from a schema: they validate, and document the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from motet._export.raw_graph import is_numeric
from motet.data import Column, Schema
from motet.data._tables.cells import same_spelling
from motet.data._tables.numbers import CLOCK, YES_NO
from motet.errors import DataError

MOST = 100  # categories listed in a description


def _no_answer(value: Any) -> Any:
    """Refuse true and false as numbers, which pydantic reads as 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "input should be a valid number")
    return value


Number = Annotated[float, BeforeValidator(_no_answer), Field(allow_inf_nan=False)]


class Row(BaseModel):
    """One row of the table."""

    model_config = ConfigDict(extra="allow")


class Prediction(BaseModel):
    """The prediction for one row."""

    row: int = Field(description="Position in the request, from 0.")
    remarks: list[str] = Field(description="What was repaired or noticed in this row.")


class ClassPrediction(Prediction):
    """The label with the largest probability, and the probability of each label."""

    label: str
    probabilities: dict[str, float]


class LabelsPrediction(Prediction):
    """The labels with a probability of one half or more, and the probability of each label."""

    labels: list[str]
    probabilities: dict[str, float]


class ValuePrediction(Prediction):
    """The predicted value."""

    value: float


class SurvivalPrediction(ValuePrediction):
    """The mean time until the event or the last time, and the chance to survive until each time."""

    survival: dict[str, float]


class Reply(BaseModel):
    """Predictions in the order of the rows, and what was repaired or noticed."""

    predictions: (
        list[ClassPrediction]
        | list[LabelsPrediction]
        | list[SurvivalPrediction]
        | list[ValuePrediction]
    )
    remarks: list[str]


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


def request_model(schema: Schema, *, max_rows: int) -> type[BaseModel]:
    """Make the model of a request: a list of rows with the columns of the schema."""
    fields: dict[str, Any] = {
        f"column_{place}": _field(column, required=schema.fills is None)
        for place, column in enumerate(schema.columns)
    }
    row = create_model("Row", __base__=Row, **fields)
    rows = Field(min_length=1, max_length=max_rows, description="The rows to predict.")
    return create_model("PredictRequest", rows=(list[row], rows))  # type: ignore[valid-type]


def columns_of(rows: Sequence[Row], schema: Schema) -> dict[str, list[Any]]:
    """Turn validated rows into the columns of a schema, and that of the client.

    A key may differ from the name of its column in case or spaces. Other keys are left out here,
    since a request may have thousands. A column that a row does not have is missing there.
    """
    names = [column.name for column in schema.columns]
    names += [schema.client] if schema.client and schema.client not in names else []
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(same_spelling(name), []).append(name)
    known = {key: same[0] for key, same in by_key.items() if len(same) == 1}
    found = [_known_cells(row, number, names, known) for number, row in enumerate(rows)]
    there = [name for name in names if any(name in row for row in found)]
    if not there:
        raise DataError(
            f"rows: expected at least one of the columns {', '.join(names[:6])}"
            f"{', ...' if names[6:] else ''}; got none of them. Send a value for each that is "
            "known."
        )
    return {name: [row.get(name) for row in found] for name in there}


def _known_cells(
    row: Row, number: int, names: Sequence[str], known: Mapping[str, str]
) -> dict[str, Any]:
    """Return the cells of a row by the names of their columns."""
    written = row.model_dump(by_alias=True, exclude_unset=True)
    found = {name: written[name] for name in names if name in written}
    for key in written.keys() - found.keys():
        name = known.get(same_spelling(key))
        if name is not None:
            found.setdefault(name, written[key])
    for name, value in found.items():
        _check_cell(value, f"rows[{number}].{name}")
    return found


def _check_cell(value: Any, where: str) -> None:
    """Refuse what no table can hold, also under a name that differs in case."""
    if not isinstance(value, str | int | float | bool | None):
        found = "a list" if isinstance(value, list) else "an object"
        raise DataError(f"{where}: expected a number, text or null; got {found}. Send one value.")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DataError(
            f"{where}: expected text in Unicode; got half of a surrogate pair. Send UTF-8."
        )


def _field(column: Column, *, required: bool) -> tuple[Any, Any]:
    kind: Any = Number
    if column.kind == "date":
        kind = str
    elif column.unit == YES_NO or {*map(same_spelling, column.categories)} == {"true", "false"}:
        kind = bool | Number | str
    elif column.unit == CLOCK:
        kind = Number | str
    elif column.kind != "number":
        kind = Number | str if is_numeric(column) else str
    default: Any = ... if required else None
    described = Field(
        default, alias=column.name, description=_described(column), examples=[_example(column)]
    )
    return (kind if required else kind | None), described


def _described(column: Column) -> str:
    unit = f" in {column.unit}" if column.unit else ""
    if column.kind == "number":
        ranged = column.low is not None and column.high is not None
        return f"A number{unit}" + (
            f"; {column.low:g} to {column.high:g} in training." if ranged else "."
        )
    if column.kind == "date":
        return f"A date, written as {column.format or 'YYYY-MM-DD'}."
    rest = ", ..." if len(column.categories) > MOST else ""
    return f"One of: {', '.join(column.categories[:MOST])}{rest}."


def _example(column: Column) -> Any:
    if column.kind == "number":
        if column.low is None or column.high is None:
            return 0.0
        return float(f"{(column.low + column.high) / 2:.4g}")
    if column.kind == "date":
        from datetime import date

        day = date.fromisoformat(column.reference) if column.reference else date(2020, 1, 31)
        return day.strftime(column.format or "%Y-%m-%d")
    return column.categories[0]


def described_schema(schema: Schema) -> dict[str, Any]:
    """Describe what rows need, without the statistics of the training rows that are not needed."""
    required = schema.fills is None
    columns = [
        {
            "name": column.name,
            "kind": column.kind,
            "required": required,
            "unit": column.unit,
            "categories": list(column.categories) or None,
            "range": None if column.low is None else [column.low, column.high],
            "format": column.format,
        }
        for column in schema.columns
    ]
    target: Mapping[str, Any] = {
        "name": schema.target.name,
        "kind": schema.target.kind,
        "labels": list(schema.target.labels) or None,
        "unit": schema.target.unit,
    }
    return {"columns": columns, "target": target}
