"""What one run within a comparison left behind: scores, costs, and how they came about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from motet.evaluate import Evaluation, Score
from motet.studies import Study

ABOUT = ("method", "metric", "split", "point", "round")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run took, over all rounds and clients, as if it had been run alone."""

    bytes_up: int
    bytes_down: int
    gradients: float  # single-example gradient evaluations while training
    seconds: float  # of training, without evaluation
    private_bytes: float  # what a client keeps between rounds, mean over clients that trained


@dataclass(frozen=True)
class Look:
    """What was known after a round: the validation data, client by client, after_adapt.

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
            "curve": [asdict(look) for look in self.curve],
            "notes": [dict(note) for note in self.notes],
            "studies": [study.to_dict() for study in self.studies],
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Row:
        """Read what `to_dict` wrote."""
        about = {key: written["evaluation"][key] for key in ABOUT}
        scores = tuple(Score(**_numbers(score)) for score in written["scores"])
        as_it_is = ("label", "seed", "rounds", "tuned", "shared_with", "faults", "privacy")
        return cls(
            **{key: written[key] for key in as_it_is},
            evaluation=Evaluation(**about, rows=scores),
            cost=Cost(**written["cost"]),
            warnings=tuple(written["warnings"]),
            curve=tuple(Look(**_numbers(look)) for look in written["curve"]),
            notes=tuple(written["notes"]),
            studies=tuple(Study.from_dict(study) for study in written["studies"]),
        )


def _numbers(written: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what JSON did to numbers: it has no NaN, so that of a diverged model became null."""
    return {key: math.nan if value is None else value for key, value in written.items()}
