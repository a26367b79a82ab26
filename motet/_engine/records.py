"""Records of a run: JSON values, and a table of scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from torch import Tensor

from motet._core.atomic import writing_atomically
from motet._core.parquet import read_own_parquet
from motet._engine.evaluation import Evaluation, Score
from motet.errors import StateError
from motet.metrics._registry import is_higher_better

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
    diverged: bool = False
    undefined: bool = False
    higher_is_better: bool = True


def score_rows(evaluation: Evaluation) -> list[ScoreRow]:
    """Spread an evaluation out, a row per metric and client; undefined ones have no value."""
    return [
        score_row(table, score)
        for table in evaluation.metrics
        for score in (*table.rows, *table.undefined)
    ]


def score_row(about: Evaluation, score: Score) -> ScoreRow:
    """Write one score of an evaluation with what it is about."""
    e, s = about, score
    first = (e.method, e.round, e.split, e.point, s.client, s.examples, e.metric)
    return ScoreRow(*first, s.value, s.loss, s.diverged, s.undefined, e.higher_is_better)


def score_of(row: ScoreRow) -> Score:
    """Take the score out of a row of a table."""
    return Score(row.client, row.examples, row.value, row.loss, row.diverged, row.undefined)


def evaluations_of(rows: Iterable[ScoreRow]) -> list[Evaluation]:
    """Gather rows into tables, one per metric, in the order in which they come."""
    found: dict[tuple[str, str, str, str, int], list[ScoreRow]] = {}
    for row in rows:
        found.setdefault((row.method, row.metric, row.split, row.point, row.round), []).append(row)
    return [
        Evaluation(
            *about,
            tuple(score_of(row) for row in listed if not row.undefined),
            tuple(score_of(row) for row in listed if row.undefined),
            higher=listed[0].higher_is_better,
        )
        for about, listed in found.items()
    ]


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

    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
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

    if not path.exists():
        return []
    try:
        rows = read_own_parquet(path).to_pylist()
        # Files of 0.1 do not say which direction is better.
        return [
            ScoreRow(**{"higher_is_better": is_higher_better(row["metric"]), **row}) for row in rows
        ]
    except (pa.ArrowException, TypeError, KeyError) as reason:
        raise StateError(f"{path} is not a table of scores: {reason}.") from reason


def has_scores(path: Path) -> bool:
    """Tell whether a file is a table of scores."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        needed = {*ScoreRow._fields} - {*ScoreRow._field_defaults}
        return needed <= {*parquet.read_schema(path).names}
    except (pa.ArrowException, OSError):
        return False


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
