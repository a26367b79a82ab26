"""ONNX graphs that take raw columns: a schema's encoding, followed by the predictor's graph.

The graph has two inputs at most. `numbers`, float64 [batch, columns]: numbers, dates as days since
1970-01-01, and categories that are numbers; NaN is a missing value. `categories`, text
[batch, columns]: all other categories, spelled as in the schema; "" is a missing value. A missing
value that the schema does not fill makes the output of its row NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from motet.data import Column, Schema
from motet.data._tables.blocks import DAYS_PER_YEAR, EPOCH
from motet.data._tables.cells import USUAL_NA, MissingValues, same_spelling
from motet.data._tables.numbers import to_number

NUMBERS, CATEGORIES, ENCODED = "numbers", "categories", "x"
PREFIX = "raw/"  # of names in the joined graph that are not the predictor's
MISSING = (
    -1
)  # code of a missing category; an unknown one has the next code below, or that of others


class RawInputs(NamedTuple):
    """Columns of the two inputs, in order."""

    numbers: tuple[str, ...]
    categories: tuple[str, ...]


def raw_inputs(schema: Schema) -> RawInputs:
    """Say which columns the inputs of the raw graph have."""
    text = [column.name for column in schema.columns if not is_numeric(column)]
    return RawInputs(tuple(c.name for c in schema.columns if c.name not in text), tuple(text))


def is_numeric(column: Column) -> bool:
    """Tell whether a column can be given as numbers: also one whose categories are numbers."""
    return column.kind in ("number", "date") or all(map(_is_number, column.categories))


def _is_number(category: str) -> bool:
    """Tell whether a category is spelled as the number would be, so that "007" is text."""
    number = to_number(category, ".")
    if number is None or not math.isfinite(number):
        return False
    spelled = str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(number)
    return same_spelling(category) == spelled


def encoder_graph(schema: Schema, *, opset: int, ir_version: int) -> Any:
    """Make the graph of a schema's encoding, from raw columns to `x`."""
    from onnx import TensorProto, checker, helper

    inputs, nodes = raw_inputs(schema), _Nodes()
    blocks = [_column(nodes, schema, column, inputs) for column in schema.columns]
    x = nodes.op("Concat", *blocks, axis=1)
    x = _filled(nodes, schema, x)
    if schema.scaling is not None:
        mean, deviation = schema.scaling.mean, schema.scaling.deviation
        x = nodes.op("Div", nodes.op("Sub", x, nodes.row(mean)), nodes.row(deviation))
    nodes.op("Cast", x, to=TensorProto.FLOAT, out=ENCODED)
    kinds = ((NUMBERS, TensorProto.DOUBLE), (CATEGORIES, TensorProto.STRING))
    given = [
        helper.make_tensor_value_info(name, kind, ["batch", len(columns)])
        for (name, kind), columns in zip(kinds, inputs, strict=True)
        if columns
    ]
    width = len(schema.feature_names)
    made = helper.make_tensor_value_info(ENCODED, TensorProto.FLOAT, ["batch", width])
    graph = helper.make_graph(nodes.nodes, "encoding", given, [made], nodes.constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    checker.check_model(model)
    return model


def join(encoder: Any, predictor: Any, *, output: str) -> Any:
    """Put the encoding before the predictor; rows with NaN inputs have NaN as output."""
    from onnx import compose, helper

    opsets = {o.domain: o.version for model in (encoder, predictor) for o in model.opset_import}
    encoder = compose.add_prefix(encoder, PREFIX, rename_inputs=False)
    encoded = f"{PREFIX}{ENCODED}"
    graph = compose.merge_graphs(
        encoder.graph, predictor.graph, io_map=[(encoded, predictor.graph.input[0].name)]
    )
    _mask_missing(graph, encoded, output)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(
        graph,
        opset_imports=imports,
        ir_version=predictor.ir_version,
        functions=list(predictor.functions),
    )


def _mask_missing(graph: Any, encoded: str, output: str) -> None:
    """Answer NaN where an input is NaN: some operators would turn it into a number."""
    from onnx import TensorProto, helper, numpy_helper

    answer, nan, axes = (f"{PREFIX}{name}" for name in ("answer", "nan", "axes"))
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == output:
                    names[place] = answer
    graph.initializer.append(numpy_helper.from_array(np.array(np.nan, np.float32), nan))
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), axes))
    rank = len(graph.output[0].type.tensor_type.shape.dim)
    flags, number, found, has = (f"{PREFIX}{name}" for name in ("flags", "number", "any", "has"))
    graph.node.extend(
        [
            helper.make_node("IsNaN", [encoded], [flags]),
            helper.make_node("Cast", [flags], [number], to=TensorProto.FLOAT),
            helper.make_node("ReduceMax", [number, axes], [found], keepdims=int(rank > 1)),
            helper.make_node("Cast", [found], [has], to=TensorProto.BOOL),
            helper.make_node("Where", [has, nan, answer], [output]),
        ]
    )


class _Nodes:
    """Collects nodes and constants of a graph; every operation returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: str, out: str | None = None, **options: Any) -> str:
        from onnx import helper

        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **options))
        return name

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def row(self, values: Sequence[float]) -> str:
        """Add a constant of shape [1, values]."""
        return self.constant([list(values)])

    def pick(self, table: str, place: int) -> str:
        """Take one column of a table, as [batch, 1]."""
        return self.op("Gather", table, self.constant([place], np.int64), axis=1)

    def number(self, flags: str) -> str:
        """Turn true and false into 1 and 0."""
        from onnx import TensorProto

        return self.op("Cast", flags, to=TensorProto.DOUBLE)


def _column(nodes: _Nodes, schema: Schema, column: Column, inputs: RawInputs) -> str:
    """Encode one column, without filling: NaN where a number is missing."""
    if column.kind in ("number", "date"):
        values = _number(nodes, schema, inputs.numbers.index(column.name), named=column.kind)
        holes = nodes.op("IsNaN", values)
        if column.kind == "date":
            parts = [_part(nodes, values, part, column) for part in column.parts]
            values = nodes.op("Concat", *parts, axis=1)
    else:
        codes = _codes(nodes, schema, column, inputs)
        values, holes = _hot_or_place(nodes, column, codes)
    return nodes.op("Concat", values, nodes.number(holes), axis=1) if column.indicator else values


def _number(nodes: _Nodes, schema: Schema, place: int, *, named: str) -> str:
    """Read a column of numbers; numbers that are named as missing become NaN."""
    values = nodes.pick(NUMBERS, place)
    missing = MissingValues(schema.na).numbers if named != "date" else ()
    for value in missing:
        same = nodes.op("Equal", values, nodes.constant(value))
        values = nodes.op("Where", same, nodes.constant(np.nan), values)
    return values


def _codes(nodes: _Nodes, schema: Schema, column: Column, inputs: RawInputs) -> str:
    """Replace categories by their position, `MISSING`, or another code if they are unknown."""
    unknown = len(column.categories) if column.other else MISSING - 1
    if column.name in inputs.categories:
        keys = dict.fromkeys((*USUAL_NA, *map(str.upper, USUAL_NA), *schema.na), MISSING)
        for place, category in enumerate(column.categories):
            keys[same_spelling(category) if schema.merge_spellings else category] = place
        keys |= {category: place for place, category in enumerate(column.categories)}
        return nodes.op(
            "LabelEncoder",
            nodes.pick(CATEGORIES, inputs.categories.index(column.name)),
            domain="ai.onnx.ml",
            keys_strings=list(keys),
            values_int64s=list(keys.values()),
            default_int64=unknown,
        )
    values = _number(nodes, schema, inputs.numbers.index(column.name), named="category")
    codes = nodes.constant([[unknown]], np.int64)
    for place, category in enumerate(column.categories):
        same = nodes.op("Equal", values, nodes.constant(float(category)))
        codes = nodes.op("Where", same, nodes.constant(place, np.int64), codes)
    return nodes.op("Where", nodes.op("IsNaN", values), nodes.constant(MISSING, np.int64), codes)


def _hot_or_place(nodes: _Nodes, column: Column, codes: str) -> tuple[str, str]:
    """Make 0/1 inputs of categories, or their position; also say which are missing."""
    from onnx import TensorProto

    if column.kind == "ordinal":
        holes = nodes.op("Less", codes, nodes.constant(0, np.int64))
        places = nodes.op("Cast", codes, to=TensorProto.DOUBLE)
        return nodes.op("Where", holes, nodes.constant(np.nan), places), holes
    known = np.arange(len(column.categories) + column.other)[None]
    hot = nodes.number(nodes.op("Equal", codes, nodes.constant(known, np.int64)))
    return hot, nodes.op("Equal", codes, nodes.constant(MISSING, np.int64))


def _filled(nodes: _Nodes, schema: Schema, x: str) -> str:
    if schema.fills is None:
        return x
    return nodes.op("Where", nodes.op("IsNaN", x), nodes.row(schema.fills), x)


def _part(nodes: _Nodes, days: str, part: str, column: Column) -> str:
    """Compute a part of a date from days since 1970-01-01, in the Gregorian calendar."""
    if part == "days":
        return days
    if part == "age":
        assert column.reference is not None
        reference = (date.fromisoformat(column.reference) - EPOCH).days
        since = nodes.op("Sub", nodes.constant(reference), days)
        return nodes.op("Div", since, nodes.constant(DAYS_PER_YEAR))
    if part == "weekday":
        shifted = nodes.op("Add", days, nodes.constant(3))
        return nodes.op("Sub", shifted, _times(nodes, _floored(nodes, shifted, 7), 7))
    year, month, first_day = _calendar(nodes, days)
    if part == "year":
        return year
    if part == "month":
        return month
    return nodes.op("Add", nodes.op("Sub", days, first_day), nodes.constant(1))


def _calendar(nodes: _Nodes, days: str) -> tuple[str, str, str]:
    """Find year, month, and the day number of 1 January; years begin in March until the end."""
    shifted = nodes.op("Add", days, nodes.constant(719468))  # days since 0000-03-01
    era = _floored(nodes, shifted, 146097)
    of_era = nodes.op("Sub", shifted, _times(nodes, era, 146097))
    leaps = nodes.op("Sub", _floored(nodes, of_era, 36524), _floored(nodes, of_era, 146096))
    days_365 = nodes.op("Add", nodes.op("Sub", of_era, _floored(nodes, of_era, 1460)), leaps)
    year = nodes.op("Add", _floored(nodes, days_365, 365), _times(nodes, era, 400))
    of_year = nodes.op("Sub", shifted, _days_before(nodes, year))
    number = _floored(nodes, nodes.op("Add", _times(nodes, of_year, 5), nodes.constant(2)), 153)
    late = nodes.number(nodes.op("Less", number, nodes.constant(10.0)))  # March to December
    month = nodes.op("Sub", nodes.op("Add", number, _times(nodes, late, 12)), nodes.constant(9))
    year = nodes.op("Sub", nodes.op("Add", year, nodes.constant(1)), late)
    before = nodes.op("Sub", year, nodes.constant(1))
    first_day = nodes.op("Sub", _days_before(nodes, before), nodes.constant(719468 - 306))
    return year, month, first_day


def _days_before(nodes: _Nodes, year: str) -> str:
    """Count the days from 0000-03-01 to 1 March of a year."""
    leaps = nodes.op("Sub", _floored(nodes, year, 4), _floored(nodes, year, 100))
    leaps = nodes.op("Add", leaps, _floored(nodes, year, 400))
    return nodes.op("Add", _times(nodes, year, 365), leaps)


def _floored(nodes: _Nodes, value: str, by: float) -> str:
    return nodes.op("Floor", nodes.op("Div", value, nodes.constant(by)))


def _times(nodes: _Nodes, value: str, by: float) -> str:
    return nodes.op("Mul", value, nodes.constant(by))
