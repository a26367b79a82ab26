"""What a comparison of methods found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.comparing.picture import FederationPicture
from motet.comparing.rows import Cost, Failure, Look, Row
from motet.errors import StateError
from motet.malformed import reading

if TYPE_CHECKING:
    from motet.judging.verdict import Verdict

__all__ = ["Comparison", "Cost", "Failure", "FederationPicture", "Look", "Row", "read"]

SCORES = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
COSTS = ("bytes_up", "bytes_down", "gradients", "seconds", "private_bytes")
FILE = "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods side by side, a row per method and seed. Made by `motet.compare`.

    Attributes:
        rows: In the order of the methods, then of the seeds.
        data: Name of the data.
        split: Hash of the split that all methods used.
        rounds: Rounds planned for every run.
        cohort: Clients per round, as a fraction or a count.
        added: Labels of the references that were not asked for.
        failures: Runs that gave no result.
        federation: Sizes and labels of the clients.
        choose: Which round's test scores are reported: "last", or "validation" chose it.
        budget: What every run might spend at most: {"gradients": 1e6}; empty: all its rounds.
        search: How hyperparameters were searched; empty: they were not.
        tried: What every try of the search gave: its label, number, values and validation mean.
    """

    rows: tuple[Row, ...]
    data: str
    split: str
    rounds: int
    cohort: float | int
    added: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    federation: FederationPicture = field(default_factory=FederationPicture)
    choose: str = "last"
    budget: Mapping[str, float] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Mapping[str, Any], ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods that gave a result, each once."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, each once."""
        return tuple(sorted({row.seed for row in self.rows}))

    def of(self, label: str) -> tuple[Row, ...]:
        """Return a method's rows, one per seed."""
        return tuple(row for row in self.rows if row.label == label)

    def mean(self, label: str, number: Callable[[Row], float]) -> float:
        """Average a number over a method's seeds."""
        return float(np.mean([number(row) for row in self.of(label)]))

    def harmed(self, label: str, reference: str | None) -> float | None:
        """Return the share of clients that do worse than under a reference, mean over seeds.

        None where the reference, or its runs with these seeds, are missing.
        """
        theirs = {row.seed: row.evaluation for row in self.rows if row.label == reference}
        shares = [
            row.evaluation.harmed(theirs[row.seed]) for row in self.of(label) if row.seed in theirs
        ]
        return float(np.mean(shares)) if shares else None

    def summary(self, label: str) -> dict[str, Any]:
        """Gather a method's numbers, each averaged over the seeds."""
        rows = self.of(label)
        return {
            "label": label,
            "method": rows[0].evaluation.method,
            "added": label in self.added,
            **{name: self.mean(label, attrgetter(f"evaluation.{name}")) for name in SCORES},
            "seed_std": float(np.std([row.evaluation.mean for row in rows])),
            "harmed_vs_local": self.harmed(label, self.label_of("local")),
            "harmed_vs_fedavg_ft": self.harmed(label, self.label_of("fedavg-ft")),
            "rounds": self.mean(label, attrgetter("rounds")),
            **{name: self.mean(label, attrgetter(f"cost.{name}")) for name in COSTS},
        }

    def label_of(self, method: str) -> str | None:
        """Find the first entry of a method; None if it failed, or never was there."""
        return next((row.label for row in self.rows if row.evaluation.method == method), None)

    def verdict(self) -> Verdict:
        """Say in sentences what the numbers allow to say, and what they do not."""
        from motet.judging.verdict import verdict

        return verdict(self)

    def report(self, path: str | Path) -> None:
        """Write one self-contained page."""
        from motet.report import write

        write(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Write everything down as values for JSON, down to the single client."""
        return {
            "data": self.data,
            "split_hash": self.split,
            **self._about(),
            "rounds": self.rounds,
            "cohort": self.cohort,
            "choose": self.choose,
            "budget": dict(self.budget),
            "search": dict(self.search),
            "tried": [dict(one) for one in self.tried],
            "seeds": list(self.seeds),
            "added": list(self.added),
            "failures": [asdict(failure) for failure in self.failures],
            "methods": [self.summary(label) for label in self.labels],
            "runs": [row.to_dict() for row in self.rows],
            "federation": self.federation.to_dict(),
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Comparison:
        """Read what `to_dict` wrote."""
        as_it_is = ("data", "rounds", "cohort", "choose", "budget", "search")
        return cls(
            **{key: written[key] for key in as_it_is},
            rows=tuple(Row.from_dict(run) for run in written["runs"]),
            split=written["split_hash"],
            tried=tuple(written["tried"]),
            added=tuple(written["added"]),
            failures=tuple(Failure(**failure) for failure in written["failures"]),
            federation=FederationPicture.from_dict(written["federation"]),
        )

    def _about(self) -> dict[str, Any]:
        if not self.rows:  # every run failed
            return {}
        first = self.rows[0].evaluation
        return {
            "metric": first.metric,
            "split": first.split,
            "point": first.point,
            "clients": len(first.rows),
        }

    def table(self) -> str:
        """Write the comparison as text of at most 80 columns."""
        from motet.judging.tables import comparison_text

        return comparison_text(self)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        from motet.reprs import comparison_html

        return comparison_html(self)


def read(directory: str | Path) -> Comparison:
    """Read the comparison that a directory of `motet compare` holds."""
    path = Path(directory) / FILE
    if not path.is_file():
        raise StateError(
            f"{directory} holds no finished comparison: {FILE} is missing. Make one with `motet "
            f"compare --out DIR`, or finish one with `motet resume {directory}`."
        )
    with reading(path, "comparison"):
        return Comparison.from_dict(json.loads(path.read_text(encoding="utf-8")))
