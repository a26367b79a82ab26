"""Scores, one per client, and the numbers that are always reported together.

Every result says what it is: which method, which split, after which round, at which point of a
client's life.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from motet._core.notebook_html import MOST_ROWS, bar, box, details, line, table, title
from motet._core.text import plural
from motet._engine.examples import ExampleTable
from motet._engine.scoring import Score as Score
from motet._engine.scoring import score as score
from motet.metrics._registry import is_higher_better

NAMED = 5  # clients named in a sentence
SMALL_SHARE = "accuracy"  # the metric that counts predictions that are not finite as wrong
Weigh = Literal["clients", "examples"]
WEIGH: tuple[Weigh, ...] = ("clients", "examples")
NOT_WRITTEN = ("rows", "undefined", "also", "examples")


@dataclass(frozen=True)
class Evaluation:
    """A table with one row per client that has data in the split.

    Attributes:
        method: Name of the method.
        split: The examples that were scored: "train", "val" or "test".
        point: Where in a round clients were scored.
        round: Number of the round.
        metric: Name of the metric.
        rows: One per client with a value.
        undefined: Clients whose examples have no value of this metric; they are in no mean.
        also: The tables of further metrics; this one decides.
        higher: Whether a larger value is better; None: as the metric of this name says.
        weigh: What counts equally in `mean`: "clients" or "examples".
        examples: Predictions and targets of single examples, where they were kept.

    >>> rows = (Score("a", 10, 0.5, 1.0), Score("b", 90, 0.9, 0.2))
    >>> table = Evaluation("fedper", "accuracy", "test", "after_adapt", 5, rows)
    >>> [round(v, 2) for v in (table.mean, table.weighted_mean, table.std)]
    [0.7, 0.86, 0.2]
    >>> round(table.decile, 2), table.worst
    (0.54, 0.5)
    """

    method: str
    metric: str
    split: str
    point: str
    round: int
    rows: tuple[Score, ...]
    undefined: tuple[Score, ...] = ()
    also: tuple[Evaluation, ...] = ()
    higher: bool | None = None
    weigh: Weigh = "clients"
    examples: ExampleTable | None = field(default=None, repr=False, compare=False)

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return is_higher_better(self.metric) if self.higher is None else self.higher

    @property
    def metrics(self) -> tuple[Evaluation, ...]:
        """The tables of all metrics, the deciding one first."""
        return (replace(self, also=()), *self.also)

    def by(self, metric: str) -> Evaluation:
        """Return the table of one metric.

        Args:
            metric: Name of the metric.
        """
        for found in self.metrics:
            if found.metric == metric:
                return found
        raise KeyError(metric)

    @property
    def values(self) -> np.ndarray:
        """One value per client, in the order of `rows`."""
        return np.array([row.value for row in self.rows])

    @property
    def mean(self) -> float:
        """Mean over clients, which count equally or by their examples (`weigh`)."""
        if not self.rows:
            return math.nan
        return self.weighted_mean if self.weigh == "examples" else float(self.values.mean())

    @property
    def weighted_mean(self) -> float:
        """Mean weighted by each client's number of examples in the split."""
        if not self.rows:
            return math.nan
        return float(np.average(self.values, weights=[row.examples for row in self.rows]))

    @property
    def std(self) -> float:
        """Population standard deviation over clients."""
        if not self.rows:
            return math.nan
        with np.errstate(invalid="ignore"):  # an infinity among them has no deviation
            return float(self.values.std())

    @property
    def decile(self) -> float:
        """The value that nine of ten clients do better than (numpy's linear quantile)."""
        if not self.rows:
            return math.nan
        with np.errstate(invalid="ignore"):  # between two infinities lies nothing
            return float(np.quantile(self.values, 0.1 if self.higher_is_better else 0.9))

    @property
    def worst(self) -> float:
        """The worst client's value."""
        if not self.rows:
            return math.nan
        return float(self.values.min() if self.higher_is_better else self.values.max())

    @property
    def loss(self) -> float:
        """Mean over clients of the loss."""
        return float(np.mean([row.loss for row in self.rows])) if self.rows else math.nan

    @property
    def diverged(self) -> tuple[str, ...]:
        """Clients with predictions that are NaN or infinite."""
        return tuple(row.client for row in self.rows if row.diverged)

    def diverged_sentences(self) -> tuple[str, ...]:
        """Return a sentence about clients whose predictions are not finite, if there are any."""
        clients = self.diverged
        if not clients:
            return ()
        more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
        meaning = (
            "accuracy counts these predictions as wrong"
            if self.metric == SMALL_SHARE
            else f"so their {self.metric}, and every mean over all clients, has no finite value"
        )
        return (
            f"{len(clients)} of {len(self.rows)} clients have diverged: their predictions on "
            f"{self.split} data are not finite ({', '.join(clients[:NAMED])}{more}); {meaning}.",
        )

    def undefined_sentences(self) -> tuple[str, ...]:
        """Return a sentence for each metric that has no value for some clients."""
        return tuple(
            f"{found.metric} is undefined for {len(found.undefined)} of "
            f"{plural(len(found.rows) + len(found.undefined), 'client')} on {found.split} data "
            f"({', '.join(s.client for s in found.undefined[:NAMED])}"
            f"{', ...' if len(found.undefined) > NAMED else ''}); they are left out of its means."
            for found in self.metrics
            if found.undefined
        )

    def __getitem__(self, client: str) -> Score:
        for row in self.rows:
            if row.client == client:
                return row
        raise KeyError(client)

    def gains(self, reference: Evaluation) -> dict[str, float]:
        """Return how much better each client is than under `reference`.

        Args:
            reference: Scores of the same clients, usually of training alone.

        Returns:
            The gain by client; negative where a client is worse off.
        """
        sign = 1.0 if self.higher_is_better else -1.0
        theirs = {row.client: row.value for row in reference.rows}
        return {
            r.client: sign * (r.value - theirs[r.client]) for r in self.rows if r.client in theirs
        }

    def harmed(self, reference: Evaluation) -> float:
        """Return the share of clients that do worse than under `reference`.

        Args:
            reference: Scores of the same clients.

        Returns:
            A number from 0 to 1; NaN if the tables have no client in common.
        """
        gains = self.gains(reference)
        return sum(gain < 0 for gain in gains.values()) / len(gains) if gains else math.nan

    def summary(self) -> dict[str, Any]:
        """Return the numbers that are reported together, with what they are about."""
        return {
            "method": self.method,
            "metric": self.metric,
            "split": self.split,
            "point": self.point,
            "round": self.round,
            "clients": len(self.rows),
            "diverged": len(self.diverged),
            "mean": self.mean,
            "weighted_mean": self.weighted_mean,
            "std": self.std,
            "decile": self.decile,
            "worst": self.worst,
            "loss": self.loss,
            "higher_is_better": self.higher_is_better,
            "undefined": len(self.undefined),
            **({} if self.weigh == "clients" else {"weigh": self.weigh}),
            **({"also": [found.summary() for found in self.also]} if self.also else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as JSON values, without single examples."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NOT_WRITTEN}
        return {
            **plain,
            "rows": [list(row) for row in self.rows],
            "undefined": [list(row) for row in self.undefined],
            "also": [found.to_dict() for found in self.also],
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Evaluation:
        """Read what `to_dict` returned.

        Args:
            written: Values that `to_dict` returned.
        """
        others = {
            "rows": tuple(Score(*row) for row in written["rows"]),
            "undefined": tuple(Score(*row) for row in written.get("undefined", ())),
            "also": tuple(cls.from_dict(found) for found in written.get("also", ())),
        }
        return cls(**{**written, **others})

    def __str__(self) -> str:
        title = (
            f"{self.method}: {self.metric} on {self.split}, {self.point}, round {self.round}, "
            f"{len(self.rows)} clients"
        )
        numbers = "  ".join(
            f"{name} {getattr(self, attribute):.4f}"
            for name, attribute in [
                ("mean", "mean"),
                ("weighted", "weighted_mean"),
                ("std", "std"),
                ("decile", "decile"),
                ("worst", "worst"),
            ]
        )
        others = [
            f"{found.metric}: mean {found.mean:.4f}  worst {found.worst:.4f}" for found in self.also
        ]
        told = (*self.diverged_sentences(), *self.undefined_sentences())
        return "\n".join([title, numbers, *others, *told])

    def _repr_html_(self) -> str:
        """Show what is always reported together, and the clients, the worst first."""
        names = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
        head = [name.replace("_", " ") for name in names]
        numbers = table(head, [[f"{getattr(self, name):.4f}" for name in names]])
        ordered = sorted(self.rows, key=lambda row: row.value, reverse=not self.higher_is_better)
        rows = [
            [
                row.client,
                f"{row.value:.4f}",
                bar(row.value) if self.higher_is_better else "",
                row.examples,
            ]
            for row in ordered[:MOST_ROWS]
        ]
        clients = table(["client", self.metric, "", "examples"], rows, total=len(ordered))
        about = (
            f"{self.metric} on {self.split}, {self.point}, round {self.round}, "
            f"{len(self.rows)} clients"
        )
        sentences = (*self.diverged_sentences(), *self.undefined_sentences())
        told = [line(sentence) for sentence in sentences]
        return box(
            title(self.method, about), numbers, *told, details("Clients, the worst first", clients)
        )
