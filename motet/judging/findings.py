"""What a comparison found, before it is put into words: who leads, and by what right.

Every difference that is looked at here is part of one family, and Holm's correction counts them
all: each method against each reference, and the leader against everyone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import attrgetter

import numpy as np

from motet.comparing.comparison import Comparison
from motet.judging.statistics import PairedDifference, corrected, gains, paired

REFERENCES = ("local", "fedavg", "fedavg-ft")  # methods; from no federation to the simplest one
FEWEST = 6  # clients that a test can say anything about: five that agree are no proof


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Clients with few and with many examples, for whom different methods win."""

    few: PairedDifference  # the winner for the small clients, over the other one
    many: PairedDifference  # the winner for the large clients, over the other one
    most_of_few: int  # training examples of the largest small client

    @property
    def supported(self) -> bool:
        """Whether both halves say so, each by itself."""
        return self.few.better and self.many.better


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The facts that a verdict is about.

    Attributes:
        ranked: Labels with finite scores, the best mean over clients first.
        best: The leader, and whoever cannot be told from it: not even probably worse.
        references: Method -> label, of those references that gave finite scores.
        diverged: Label -> clients without a finite score.
        contrast: Methods that win for small and for large clients, if they are different ones.
        differences: (label, reference) -> the difference, corrected for all that were looked at.
    """

    comparison: Comparison
    ranked: tuple[str, ...]
    best: tuple[str, ...]
    references: Mapping[str, str]
    diverged: Mapping[str, int]
    contrast: Contrast | None
    differences: Mapping[tuple[str, str], PairedDifference]

    @property
    def comparisons(self) -> int:
        """How many differences were looked at."""
        return len(self.differences) + (0 if self.contrast is None else 2)

    @property
    def metric(self) -> str:
        """What the scores measure."""
        return self.comparison.rows[0].evaluation.metric

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger score is a better one."""
        return self.comparison.rows[0].evaluation.higher_is_better

    def mean(self, label: str, number: str) -> float:
        """Average one of an evaluation's numbers over a method's seeds."""
        return self.comparison.mean(label, attrgetter(f"evaluation.{number}"))

    def difference(self, label: str, reference: str) -> PairedDifference:
        """Look a difference up, from either side."""
        known = self.differences.get((label, reference))
        return known if known is not None else self.differences[reference, label].reversed()

    def against(self, label: str, method: str) -> PairedDifference | None:
        """Compare with a reference; None if it is missing, or compared with itself."""
        reference = self.references.get(method)
        if reference is None or reference == label or label not in self.ranked:
            return None
        return self.difference(label, reference)

    def losers(self, label: str, reference: str) -> list[tuple[str, float]]:
        """List the clients that are worse off than under a reference, the worst first."""
        gained = gains(self.comparison, label, reference).by_client()
        return sorted(((c, g) for c, g in gained.items() if g < 0), key=lambda pair: pair[1])


def find(comparison: Comparison) -> Findings:
    """Compare every method with every reference, and the leader with everyone."""
    diverged = _diverged(comparison)
    ranked = _ranked(comparison, [label for label in comparison.labels if label not in diverged])
    named = {method: comparison.label_of(method) for method in REFERENCES}
    references = {method: label for method, label in named.items() if label in ranked}
    pairs = _pairs(ranked, set(references.values()))
    plain = [paired(comparison, *pair) for pair in pairs]
    found, contrast = _corrected_together(plain, _contrast(comparison, ranked))
    differences = dict(zip(pairs, found, strict=True))
    return Findings(
        comparison=comparison,
        ranked=ranked,
        best=_best(ranked, differences),
        references=references,
        diverged=diverged,
        contrast=contrast,
        differences=differences,
    )


def _corrected_together(
    differences: Sequence[PairedDifference], contrast: Contrast | None
) -> tuple[list[PairedDifference], Contrast | None]:
    """Correct everything that was looked at as one family."""
    halves = [] if contrast is None else [contrast.few, contrast.many]
    family = [*differences, *halves]
    values = corrected([found.p_value for found in family])
    family = [replace(found, corrected=p) for found, p in zip(family, values, strict=True)]
    if contrast is None:
        return family, None
    return family[:-2], replace(contrast, few=family[-2], many=family[-1])


def _diverged(comparison: Comparison) -> dict[str, int]:
    without = {
        label: {s.client for row in rows for s in row.evaluation.rows if not math.isfinite(s.value)}
        for label in comparison.labels
        if (rows := comparison.of(label))
    }
    return {label: len(clients) for label, clients in without.items() if clients}


def _ranked(comparison: Comparison, labels: Sequence[str]) -> tuple[str, ...]:
    def badness(label: str) -> float:
        mean = comparison.mean(label, attrgetter("evaluation.mean"))
        return -mean if comparison.rows[0].evaluation.higher_is_better else mean

    return tuple(sorted(labels, key=badness))


def _pairs(ranked: Sequence[str], references: set[str]) -> list[tuple[str, str]]:
    return [
        pair for pair in combinations(ranked, 2) if pair[0] == ranked[0] or references & set(pair)
    ]


def _best(
    ranked: Sequence[str], differences: Mapping[tuple[str, str], PairedDifference]
) -> tuple[str, ...]:
    leader = ranked[:1]
    others = {label: differences[leader[0], label] for label in ranked[1:]}
    return (*leader, *(o for o, lead in others.items() if not (lead.supported or lead.probable)))


def _contrast(comparison: Comparison, ranked: Sequence[str]) -> Contrast | None:
    """Find the winner of each half; None if it is the same one, or the halves are too small."""
    sizes = _sizes(comparison)
    middle = float(np.median(list(sizes.values()))) if sizes else 0.0
    few = {client for client, size in sizes.items() if size <= middle}
    many = set(sizes) - few
    if min(len(few), len(many)) < FEWEST or not ranked:
        return None
    small, large = (_winner(comparison, ranked, half) for half in (few, many))
    if small == large:
        return None
    return Contrast(
        few=paired(comparison, small, large, few),
        many=paired(comparison, large, small, many),
        most_of_few=max(sizes[client] for client in few),
    )


def _winner(comparison: Comparison, ranked: Sequence[str], clients: set[str]) -> str:
    """Find who gains most over the leader; the earlier in the ranking, if equal."""

    def gain(label: str) -> float:
        values = gains(comparison, label, ranked[0], clients).values
        return float(values.mean()) if values.size else -math.inf  # no seed in common

    return max(ranked, key=gain)


def _sizes(comparison: Comparison) -> dict[str, int]:
    """Return the training examples of each client, as far as they are known."""
    return {client: sizes["train"] for client, sizes in comparison.federation.sizes.items()}
