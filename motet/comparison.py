"""What a comparison of methods found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from motet.evaluate import Evaluation, Score

SCORES = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
ABOUT = ("method", "metric", "split", "point", "round")
COSTS = ("bytes_up", "bytes_down", "gradients", "seconds", "private_bytes")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run took, over all rounds and clients."""

    bytes_up: int
    bytes_down: int
    gradients: float  # single-example gradient evaluations while training
    seconds: float  # of training, without evaluation
    private_bytes: float  # what a client keeps between rounds, mean over clients that trained


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method with one seed."""

    label: str
    seed: int
    evaluation: Evaluation
    cost: Cost
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write the row down as values for JSON, down to the single client."""
        return {
            "label": self.label,
            "seed": self.seed,
            "cost": asdict(self.cost),
            "warnings": list(self.warnings),
            "evaluation": self.evaluation.summary(),
            "scores": [score._asdict() for score in self.evaluation.rows],
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Row:
        """Read what `to_dict` wrote."""
        about = {key: written["evaluation"][key] for key in ABOUT}
        # JSON has no NaN: the loss of a model that has diverged comes back as null.
        scores = [
            {**s, "loss": math.nan if s["loss"] is None else s["loss"]} for s in written["scores"]
        ]
        return cls(
            label=written["label"],
            seed=written["seed"],
            evaluation=Evaluation(**about, rows=tuple(Score(**score) for score in scores)),
            cost=Cost(**written["cost"]),
            warnings=tuple(written["warnings"]),
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods side by side, a row per method and seed. Made by `motet.compare`.

    Attributes:
        rows: In the order of the methods, then of the seeds.
        data: Name of the data.
        split: Hash of the split that all methods used.
        rounds: Rounds of every run.
        cohort: Clients per round, as a fraction or a count.
        added: Labels of the references that were not asked for.
    """

    rows: tuple[Row, ...]
    data: str
    split: str
    rounds: int
    cohort: float | int
    added: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods, each once."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, each once."""
        return tuple(dict.fromkeys(row.seed for row in self.rows))

    def of(self, label: str) -> tuple[Row, ...]:
        """Return a method's rows, one per seed."""
        return tuple(row for row in self.rows if row.label == label)

    def mean(self, label: str, number: Callable[[Row], float]) -> float:
        """Average a number over a method's seeds."""
        return float(np.mean([number(row) for row in self.of(label)]))

    def harmed(self, label: str, reference: str) -> float:
        """Return the share of clients that do worse than under a reference, mean over seeds."""
        theirs = {row.seed: row.evaluation for row in self.of(reference)}
        return self.mean(label, lambda row: row.evaluation.harmed(theirs[row.seed]))

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
            **{name: self.mean(label, attrgetter(f"cost.{name}")) for name in COSTS},
        }

    def label_of(self, method: str) -> str:
        """Find the first entry of a method."""
        return next(row.label for row in self.rows if row.evaluation.method == method)

    def to_dict(self) -> dict[str, Any]:
        """Write everything down as values for JSON, down to the single client."""
        first = self.rows[0].evaluation
        return {
            "data": self.data,
            "split_hash": self.split,
            "metric": first.metric,
            "split": first.split,
            "point": first.point,
            "round": first.round,
            "cohort": self.cohort,
            "clients": len(first.rows),
            "seeds": list(self.seeds),
            "added": list(self.added),
            "methods": [self.summary(label) for label in self.labels],
            "runs": [row.to_dict() for row in self.rows],
        }

    def table(self) -> str:
        """Write the comparison as text of at most 80 columns."""
        from motet.tables import comparison_text

        return comparison_text(self)

    def __str__(self) -> str:
        return self.table()
