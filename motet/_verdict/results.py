"""The results of a comparison, and their JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import numpy as np

from motet._core.corrupt_files import reading
from motet._core.text import plural
from motet._engine.examples import ExampleTable, read_examples
from motet._engine.results import Failure, Row, over_common_clients
from motet._runs.leftovers import EXAMPLES
from motet._verdict.federation_summary import FederationSummary
from motet.errors import StateError

SCORES = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
COSTS = ("bytes_up", "bytes_down", "gradients", "seconds", "private_bytes", "look_gradients")
FILE = "comparison.json"
TROUBLE = {"diverged_clients", "failed_rounds"}  # among the faults of a row


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of several methods, one row per method and seed.

    Attributes:
        rows: One per run, ordered by method, then by seed.
        data: Name of the data.
        split: Hash of the split that all methods used.
        rounds: Planned rounds of every run.
        cohort: Clients per round, as a fraction or a count.
        added: Labels of the references that were added automatically.
        failures: Runs without a result.
        federation: Sizes and labels of the clients.
        choose: Which round's test scores are reported: "last" or "validation".
        budget: Limits of every run, such as {"gradients": 1e6}; empty if there were none.
        search: How hyperparameters were searched; empty if they were not.
        contributions: What each client contributes to the others, if they were left out in turn.
        site_groups: Client -> group, where clients are not independent of each other.
        tried: The trials of the search: label, number, values and validation mean of each.
    """

    rows: tuple[Row, ...]
    data: str
    split: str
    rounds: int
    cohort: float | int
    added: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    federation: FederationSummary = field(default_factory=FederationSummary)
    choose: str = "last"
    budget: Mapping[str, float] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Mapping[str, Any], ...] = ()
    contributions: tuple[Mapping[str, Any], ...] = ()
    site_groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the methods with a result, without duplicates."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in ascending order, without duplicates."""
        return tuple(sorted({row.seed for row in self.rows}))

    @property
    def points(self) -> dict[str, str]:
        """The point at which each method was scored, by label."""
        return {row.label: row.evaluation.point for row in self.rows}

    @property
    def clients(self) -> tuple[int, int]:
        """Clients with a score of the deciding metric, and all clients of the federation."""
        if not self.rows:
            return 0, len(self.federation.sizes)
        first = self.rows[0].evaluation
        known = {score.client for score in (*first.rows, *first.undefined)}
        return len(first.rows), len(known | set(self.federation.sizes))

    def counted_clients(self) -> str:
        """Return the number of clients with a score in words: "54 clients", "37 of 54 clients"."""
        scored, everyone = self.clients
        if scored == everyone:
            return plural(scored, "client")
        return f"{scored:,} of {plural(everyone, 'client')}"

    def of(self, label: str) -> tuple[Row, ...]:
        """Return a method's rows, one per seed.

        Args:
            label: Label of a method.
        """
        return tuple(row for row in self.rows if row.label == label)

    def mean(self, label: str, number: Callable[[Row], float]) -> float:
        """Return the mean of a number over a method's seeds.

        Args:
            label: Label of a method.
            number: Takes the number from a row, such as `lambda row: row.evaluation.worst`.
        """
        return float(np.mean([number(row) for row in self.of(label)]))

    def harmed(self, label: str, reference: str | None) -> float | None:
        """Return the share of clients that do worse than with a reference, averaged over seeds.

        Args:
            label: Label of a method.
            reference: Label of the reference.

        Returns:
            A number from 0 to 1; None if the reference is missing or has no seed in common.
        """
        theirs = {row.seed: row.evaluation for row in self.rows if row.label == reference}
        shares = [
            row.evaluation.harmed(theirs[row.seed]) for row in self.of(label) if row.seed in theirs
        ]
        return float(np.mean(shares)) if shares else None

    def summary(self, label: str) -> dict[str, Any]:
        """Return a method's numbers, each averaged over the seeds.

        Args:
            label: Label of a method.
        """
        rows = self.of(label)
        return {
            "label": label,
            "method": rows[0].evaluation.method,
            "point": rows[0].evaluation.point,
            "added": label in self.added,
            **{name: self.mean(label, attrgetter(f"evaluation.{name}")) for name in SCORES},
            "seed_std": _deviation([row.evaluation.mean for row in rows]),
            "harmed_vs_local": self.harmed(label, self.label_of("local")),
            "harmed_vs_fedavg_ft": self.harmed(label, self.label_of("fedavg-ft")),
            "diverged": len(self.diverged(label)),
            "rounds": self.mean(label, attrgetter("rounds")),
            **{name: self.mean(label, attrgetter(f"cost.{name}")) for name in COSTS},
        }

    def diverged(self, label: str) -> tuple[str, ...]:
        """Return the clients with non-finite predictions under a method, with any seed.

        Args:
            label: Label of a method.
        """
        return tuple(sorted({c for row in self.of(label) for c in row.evaluation.diverged}))

    def has_trouble(self, label: str) -> bool:
        """Return whether a method diverged, in its predictions or while training, with any seed.

        Args:
            label: Label of a method.
        """
        trained = any(TROUBLE & row.faults.keys() for row in self.of(label))
        return trained or bool(self.diverged(label))

    def label_of(self, method: str) -> str | None:
        """Return the label of a method's first entry; None if it failed or was not compared.

        Args:
            method: Name of the method, such as "local".
        """
        return next((row.label for row in self.rows if row.evaluation.method == method), None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, including every client's score."""
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
            "contributions": [dict(one) for one in self.contributions],
            "site_groups": dict(self.site_groups),
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned.

        Args:
            written: Values that `to_dict` returned.
        """
        as_it_is = ("data", "rounds", "cohort", "choose", "budget", "search")
        return cls(
            **{key: written[key] for key in as_it_is},
            rows=over_common_clients([Row.from_dict(run) for run in written["runs"]]),
            split=written["split_hash"],
            tried=tuple(written["tried"]),
            contributions=tuple(written.get("contributions", ())),
            site_groups=written.get("site_groups", {}),
            added=tuple(written["added"]),
            failures=tuple(Failure(**failure) for failure in written["failures"]),
            federation=FederationSummary.from_dict(written["federation"]),
        )

    def _about(self) -> dict[str, Any]:
        if not self.rows:  # every run failed
            return {}
        first = self.rows[0].evaluation
        return {
            "metric": first.metric,
            "split": first.split,
            # The one point of all methods; where they differ, each method has its own.
            "point": first.point if len(set(self.points.values())) == 1 else None,
            "clients": self.clients[0],
            "clients_in_all": self.clients[1],
        }

    @classmethod
    def read(cls, directory: str | Path) -> Self:
        """Read the results in a directory of `motet compare`.

        Args:
            directory: The directory that `--out` named.

        Raises:
            StateError: It does not hold a finished comparison, or a file in it is damaged.
        """
        path = Path(directory) / FILE
        if not path.is_file():
            raise StateError(
                f"{directory} does not hold a finished comparison: {FILE} is missing. Make one "
                f"with `motet compare --out DIR`, or finish one with `motet resume {directory}`."
            )
        with reading(path, "comparison"):
            found = cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        return found.with_examples(read_examples(Path(directory) / EXAMPLES))

    def with_examples(self, known: Mapping[tuple[str, int], ExampleTable]) -> Self:
        """Attach the test examples of every run.

        Args:
            known: Examples by label and seed.

        Returns:
            The same results, with examples.
        """
        rows = tuple(
            replace(
                row,
                evaluation=replace(row.evaluation, examples=known.get((row.label, row.seed))),
            )
            for row in self.rows
        )
        return replace(self, rows=rows)


def _deviation(values: list[float]) -> float:
    """Return the standard deviation; NaN where a value is infinite."""
    return float(np.std(values)) if np.isfinite(values).all() else math.nan
