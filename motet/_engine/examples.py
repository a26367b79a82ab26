"""Predictions and targets of single examples: what tests and intervals for one site are made of.

`Run.evaluate(examples=True)` returns them, and a comparison keeps them in examples.parquet, a row
per run, client and example (for sequences: per position that has a target).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.atomic import writing_atomically
from motet._core.keys import Key
from motet._core.parquet import read_own_parquet
from motet.errors import StateError
from motet.metrics import Metric, get
from motet.metrics._registry import About

CELLS = 20_000_000  # numbers that a comparison keeps, over all its runs: 160 MB
PER_RUN = 2_000_000  # and one run, at most
COLUMNS = 64  # predictions with more columns are not kept, only their loss and correctness
BESIDE = 4  # columns beside predictions: example, target, loss, correct


@dataclass(frozen=True, eq=False)
class SiteExamples:
    """One client's examples, a row per label.

    Attributes:
        client: Its name.
        example: Position of the row's example in the client's split; the same for all methods.
        targets: [rows] or [rows, width].
        predictions: [rows, columns], as `Task.predict` returns them; None where they were too wide
            to keep.
        loss: Log loss or squared error of each row; for survival, the negative log-likelihood.
        correct: 1 where the row is classified correctly, else 0; the share of correct labels for
            label sets; NaN for values and survival.
    """

    client: str
    example: NDArray[np.int64]
    targets: NDArray[Any]
    predictions: NDArray[np.float64] | None
    loss: NDArray[np.float64]
    correct: NDArray[np.float64]

    @property
    def labels(self) -> int:
        """Number of targets; every value of a vector counts."""
        return int(self.targets.size)

    @property
    def examples(self) -> int:
        """Number of different examples."""
        return len(np.unique(self.example))

    def spread(self, counts: NDArray[Any]) -> NDArray[Any]:
        """Turn counts of examples, [resamples, examples], into counts of rows.

        Whole examples are drawn: all positions of a sequence come along.
        """
        _, place = np.unique(self.example, return_inverse=True)
        return np.asarray(counts)[:, place]

    def resampled(self, metric: Metric, counts: NDArray[Any]) -> NDArray[Any]:
        """Compute a metric on resamples of the examples, given as counts [resamples, examples]."""
        if self.predictions is None:
            raise StateError(
                f"the predictions of {self.client} were too wide to keep; use `loss` and `correct`."
            )
        return metric.resampled(self.targets, self.predictions, self.spread(counts))

    def only(self, chosen: NDArray[Any]) -> SiteExamples:
        """Keep the rows of some examples, and predictions that are not too wide."""
        rows = np.isin(self.example, chosen)
        p = self.predictions
        wide = p is not None and p.ndim > 1 and p.shape[1] > COLUMNS
        kept = {
            name: getattr(self, name)[rows] for name in ("example", "targets", "loss", "correct")
        }
        return replace(self, **kept, predictions=None if wide or p is None else p[rows])


@dataclass(frozen=True, eq=False)
class ExampleTable:
    """The kept examples of one run.

    Attributes:
        about: Kind of the task, classes, time bins.
        sites: By client.
        complete: Whether every example of the split was kept.
        own: The user's own metrics of the run, by name; files do not keep them.
    """

    about: About
    sites: Mapping[str, SiteExamples]
    complete: bool = True
    own: Mapping[str, Metric] = field(default_factory=dict)

    def metric(self, name: str) -> Metric:
        """Return a metric by name, with the time bins of this task where it needs them."""
        return self.own[name] if name in self.own else get(name, times=self.about.times)


class RunExamples(NamedTuple):
    """The examples of one run of a comparison."""

    label: str
    seed: int
    table: ExampleTable


def sampler(
    sizes: Mapping[str, int], columns: int, positions: int, runs: int = 1
) -> Callable[[str, int], NDArray[np.int64]]:
    """Choose the examples to keep, so that all runs together stay within the limit.

    Every client keeps as many as the others, or all it has. Which ones depends on the client's name
    and size alone, so that methods and seeds can be compared example by example.

    Args:
        sizes: Examples of each client.
        columns: Columns of a prediction.
        positions: Labels of an example.
        runs: Runs that share the limit.
    """
    cells = (BESIDE + (columns if columns <= COLUMNS else 0)) * max(positions, 1)
    limit = least_cut(list(sizes.values()), min(CELLS // max(runs, 1), PER_RUN) // cells)

    def choose(client: str, size: int) -> NDArray[np.int64]:
        if size <= limit:
            return np.arange(size)
        order = Key(0).fold("examples", client).numpy().permutation(size)
        return np.sort(order[:limit])

    return choose


def least_cut(sizes: Sequence[int], room: int) -> int:
    """Return the largest limit per client with which all clients fit.

    >>> least_cut([5, 50, 500], 100), least_cut([5, 50, 500], 1000), least_cut([9] * 9, 3)
    (47, 500, 1)
    """
    if sum(sizes) <= room:
        return max(sizes, default=0)
    left = room
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return max(share, 1)
        left -= size
    return max(sizes)


# -- files -------------------------------------------------------------------


def write_examples(path: Path, runs: Iterable[RunExamples]) -> None:
    """Write the examples of runs as one Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    listed = list(runs)
    about = asdict(listed[0].table.about) if listed else {}
    incomplete = [[run.label, run.seed] for run in listed if not run.table.complete]
    written = json.dumps({"about": about, "incomplete": incomplete})
    schema = _schema().with_metadata({"motet": written})
    with (
        writing_atomically(path) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for run in listed:
            for site in run.table.sites.values():
                columns = _columns(run, site)
                writer.write_table(pa.table(columns, schema=schema))


def read_examples(path: Path) -> dict[tuple[str, int], ExampleTable]:
    """Read the examples of all runs, by label and seed; none where there is no file."""
    import pyarrow as pa

    if not path.exists():
        return {}
    try:
        table = read_own_parquet(path)
        written = json.loads(table.schema.metadata[b"motet"])
        found = dict(written["about"])
        about = About(**{**found, "times": tuple(found["times"])}) if found else About("binary")
        incomplete = {(label, seed) for label, seed in written["incomplete"]}
        return _tables(table, about, incomplete)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as reason:
        raise StateError(f"{path} is not a table of examples: {reason}.") from reason


def has_examples(path: Path) -> bool:
    """Tell whether a file is a table of examples."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return set(_schema().names) <= set(parquet.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return False


def _schema() -> Any:
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    return pa.schema(
        [
            ("label", pa.string()),
            ("seed", pa.int64()),
            ("client", pa.string()),
            ("example", pa.int64()),
            ("target", numbers),
            ("prediction", numbers),
            ("loss", pa.float64()),
            ("correct", pa.float64()),
        ]
    )


def _columns(run: RunExamples, site: SiteExamples) -> dict[str, Any]:
    import pyarrow as pa

    rows = len(site.example)
    return {
        "label": pa.array([run.label] * rows),
        "seed": pa.array([run.seed] * rows, pa.int64()),
        "client": pa.array([site.client] * rows),
        "example": pa.array(site.example),
        "target": _lists(site.targets),
        "prediction": pa.nulls(rows, pa.list_(pa.float64()))
        if site.predictions is None
        else _lists(site.predictions),
        "loss": pa.array(site.loss),
        "correct": pa.array(site.correct),
    }


def _lists(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    flat = values.reshape(len(values), -1) if len(values) else values.reshape(0, 1)
    offsets = np.arange(len(flat) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(offsets, pa.array(flat.reshape(-1).astype(float)))


def _tables(
    table: Any, about: About, incomplete: set[tuple[str, int]]
) -> dict[tuple[str, int], ExampleTable]:
    columns = {
        name: table[name].combine_chunks() for name in ("label", "seed", "client", "example")
    }
    labels, clients = (np.asarray(columns[n].to_pylist(), object) for n in ("label", "client"))
    seeds, places = columns["seed"].to_numpy(), columns["example"].to_numpy()
    changes = (labels[1:] != labels[:-1]) | (seeds[1:] != seeds[:-1])
    changes |= clients[1:] != clients[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(labels)] if len(labels) else [0]
    found: dict[tuple[str, int], dict[str, SiteExamples]] = {}
    for start, end in pairwise(starts):
        part = table.slice(start, end - start)
        site = SiteExamples(
            client=str(clients[start]),
            example=places[start:end],
            targets=_targets(part["target"], about),
            predictions=_matrix(part["prediction"], about),
            loss=part["loss"].to_numpy(),
            correct=part["correct"].to_numpy(),
        )
        found.setdefault((str(labels[start]), int(seeds[start])), {})[site.client] = site
    return {
        pair: ExampleTable(about, sites, pair not in incomplete) for pair, sites in found.items()
    }


def _matrix(column: Any, about: About) -> NDArray[np.float64] | None:
    if column.null_count:
        return None
    return _flat(column) if about.kind != "regression" else _narrow(_flat(column))


def _targets(column: Any, about: About) -> NDArray[Any]:
    values = _flat(column)
    if about.kind in ("survival", "multilabel"):
        return values
    return _narrow(values) if about.kind == "regression" else values[:, 0].astype(np.int64)


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, 0] if values.shape[1] == 1 else values


def _flat(column: Any) -> NDArray[np.float64]:
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, float).reshape(len(column), -1)
