"""The result of one run of a comparison: scores, costs and the validation curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from motet._core.studies import Study
from motet._engine.evaluation import Evaluation, Score

ABOUT = ("method", "metric", "split", "point", "round")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run took, over all rounds and clients, as if it had been run alone."""

    bytes_up: int
    bytes_down: int
    gradients: float  # single-example gradient evaluations while training
    seconds: float  # of training, without evaluation
    private_bytes: float  # what a client keeps between rounds, mean over clients that trained
    look_gradients: float = 0.0  # gradient evaluations of looks at the validation data


@dataclass(frozen=True)
class Look:
    """What was known after a round: the validation data, client by client, scored as the result is.

    What was spent is counted from the start of the run.
    """

    round: int
    mean: float
    std: float
    decile: float
    worst: float
    loss: float
    bytes_up: int
    bytes_down: int
    gradients: float
    seconds: float
    diverged: int = 0  # clients whose predictions were not finite
    also: Mapping[str, float] = field(default_factory=dict)  # means of further metrics


@dataclass(frozen=True)
class Failure:
    """A run that gave no result."""

    label: str
    seed: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method with one seed.

    Attributes:
        evaluation: Test scores of the chosen round.
        cost: Of all rounds that were run, also those after the chosen one.
        rounds: How many were run: fewer than planned, if a budget ended the run.
        curve: Looks at the validation data.
        notes: What the method remembered of its rounds: {"round": n, ...}.
        studies: What the method wants shown about the finished run.
        tuned: Hyperparameters that a search chose, by dotted name.
        shared_with: Label of the entry whose training served this one, too.
        faults: What went wrong on the way, as values for JSON.
        privacy: What was spent of it, as values for JSON.
    """

    label: str
    seed: int
    evaluation: Evaluation
    cost: Cost
    warnings: tuple[str, ...] = ()
    rounds: int = 0
    curve: tuple[Look, ...] = ()
    notes: tuple[Mapping[str, Any], ...] = ()
    studies: tuple[Study, ...] = ()
    tuned: Mapping[str, Any] = field(default_factory=dict)
    shared_with: str | None = None
    faults: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen_round(self) -> int:
        """The round whose test scores are reported: the last, unless validation chose another."""
        return self.evaluation.round

    def to_dict(self) -> dict[str, Any]:
        """Write the row down as values for JSON, down to the single client."""
        return {
            "label": self.label,
            "seed": self.seed,
            "cost": asdict(self.cost),
            "warnings": list(self.warnings),
            "rounds": self.rounds,
            "chosen_round": self.chosen_round,
            "tuned": dict(self.tuned),
            "shared_with": self.shared_with,
            "faults": dict(self.faults),
            "privacy": dict(self.privacy),
            "evaluation": self.evaluation.summary(),
            "scores": [score._asdict() for score in self.evaluation.rows],
            "undefined_clients": [score._asdict() for score in self.evaluation.undefined],
            "also": [_table_to_dict(table) for table in self.evaluation.also],
            "curve": [asdict(look) for look in self.curve],
            "notes": [dict(note) for note in self.notes],
            "studies": [study.to_dict() for study in self.studies],
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Row:
        """Read what `to_dict` wrote."""
        as_it_is = ("label", "seed", "rounds", "tuned", "shared_with", "faults", "privacy")
        return cls(
            **{key: written[key] for key in as_it_is},
            evaluation=_evaluation(written),
            cost=Cost(**written["cost"]),
            warnings=tuple(written["warnings"]),
            curve=tuple(Look(**_numbers(look)) for look in written["curve"]),
            notes=tuple(written["notes"]),
            studies=tuple(Study.from_dict(study) for study in written["studies"]),
        )


def over_common_clients(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Leave a client out of a metric's tables in all runs if the metric is undefined in any run.

    A metric of predictions (a correlation, say) may have no value under some methods only. Means
    over different clients cannot be compared. Left-out clients are in `Evaluation.undefined`; the
    score's own flag tells the runs without a value.
    """
    missing: dict[str, set[str]] = {}
    for row in rows:
        for table in row.evaluation.metrics:
            found = missing.setdefault(table.metric, set())
            found.update(score.client for score in table.undefined)
    return tuple(replace(row, evaluation=_without(row.evaluation, missing)) for row in rows)


def _without(table: Evaluation, missing: Mapping[str, set[str]]) -> Evaluation:
    left_out = missing[table.metric]
    scores = sorted((*table.rows, *table.undefined), key=lambda score: score.client)
    return replace(
        table,
        rows=tuple(score for score in table.rows if score.client not in left_out),
        undefined=tuple(score for score in scores if score.client in left_out),
        also=tuple(_without(other, missing) for other in table.also),
    )


def _table_to_dict(table: Evaluation) -> dict[str, Any]:
    return {
        **table.summary(),
        "scores": [score._asdict() for score in table.rows],
        "undefined_clients": [score._asdict() for score in table.undefined],
    }


def _evaluation(written: Mapping[str, Any]) -> Evaluation:
    """Read the tables of all metrics; results of 0.1 have one, and say less about it."""
    clients = {key: written.get(key, ()) for key in ("scores", "undefined_clients")}
    others = tuple(_table(one) for one in written.get("also", ()))
    return replace(_table({**written["evaluation"], **clients}), also=others)


def _table(written: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        **{key: written[key] for key in ABOUT},
        rows=tuple(Score(**_numbers(score)) for score in written["scores"]),
        undefined=tuple(Score(**_numbers(score)) for score in written.get("undefined_clients", ())),
        higher=written.get("higher_is_better"),
        weigh=written.get("weigh", "clients"),
    )


def _numbers(written: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what JSON did to numbers: it has no NaN, so that of a diverged model became null."""
    return {key: math.nan if value is None else value for key, value in written.items()}
