"""What a run writes down: values for JSON, and a table of scores."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from torch import Tensor

from motet.atomic import writing_atomically
from motet.errors import StateError
from motet.evaluate import Evaluation, Score

ROWS_AT_ONCE = 10_000  # of a table that is written


class ScoreRow(NamedTuple):
    """One client's score in one evaluation: a row of clients.parquet."""

    method: str
    round: int
    split: str
    point: str
    client: str
    examples: int
    metric: str
    value: float
    loss: float


def score_rows(evaluation: Evaluation) -> list[ScoreRow]:
    """Spread an evaluation out, a row per client."""
    return [score_row(evaluation, score) for score in evaluation.rows]


def score_row(about: Evaluation, score: Score) -> ScoreRow:
    """Write one score of an evaluation with what it is about."""
    e, s = about, score
    return ScoreRow(
        e.method, e.round, e.split, e.point, s.client, s.examples, e.metric, s.value, s.loss
    )


def write_scores(path: Path, rows: Iterable[Any], kind: type[Any] = ScoreRow) -> int:
    """Write scores as Parquet while they come, so that not all of them need be in memory.

    Args:
        path: Where to; the file is there when all of it is.
        rows: Named tuples of text and numbers.
        kind: Their class, for the columns.

    Returns:
        How many there were.
    """
    import pyarrow as pa
    from pyarrow import parquet

    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns = get_type_hints(kind)
    schema = pa.schema([(name, types[column]) for name, column in columns.items()])
    remaining, written = iter(rows), 0
    with writing_atomically(path) as file, parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(remaining, ROWS_AT_ONCE)):
            table = pa.Table.from_pylist([row._asdict() for row in group], schema=schema)
            writer.write_table(table)
            written += len(group)
    return written


def read_scores(path: Path) -> list[ScoreRow]:
    """Read scores back; none where there is no file yet."""
    import pyarrow as pa
    from pyarrow import parquet

    if not path.exists():
        return []
    try:
        # Not by path: a path is opened as a data set, which costs another import.
        return [
            ScoreRow(**row) for row in parquet.read_table(io.BytesIO(path.read_bytes())).to_pylist()
        ]
    except (pa.ArrowException, TypeError) as reason:
        raise StateError(f"{path} is no table of scores: {reason}.") from reason


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Write JSON that every reader accepts: what is not a number becomes null.

    >>> json_text({"loss": float("nan"), "cohort": ("a", "b")})
    '{"loss": null, "cohort": ["a", "b"]}'
    """
    return json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False, indent=indent)


def jsonable(value: Any) -> Any:
    """Turn tensors, arrays and tuples into values for JSON."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): jsonable(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(below) for below in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
