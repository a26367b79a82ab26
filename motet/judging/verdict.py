"""The verdict on a comparison: what its numbers allow to say, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from motet.comparing.comparison import Comparison
from motet.judging.findings import Findings, find
from motet.judging.sentences import sentences
from motet.judging.statistics import PairedDifference


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which method, for whom, by how much, at what cost. `str` gives it as one paragraph.

    Attributes:
        sentences: In the order in which they are to be read; the first says what they are about.
        best: The method with the best mean, and those that cannot be told from it.
        simplest: The one of `best` that asks for the least: training alone, one model for all,
            plain fine-tuning, or else the leader. None if nothing could be ranked.
        differences: Every method against local, fedavg and fedavg-ft, corrected for their number.
        harmed: Label -> clients that are worse off than training alone, the worst first, with
            their loss (negative). Training alone itself is not in it.
        comparisons: How many differences the correction counts.
    """

    sentences: tuple[str, ...]
    best: tuple[str, ...]
    simplest: str | None
    differences: tuple[PairedDifference, ...]
    harmed: Mapping[str, tuple[tuple[str, float], ...]]
    comparisons: int

    def against(self, label: str, reference: str | None) -> PairedDifference | None:
        """Look up how a label compares with a reference's label; None if they were not compared."""
        for found in self.differences:
            if (found.label, found.reference) == (label, reference):
                return found
        return None

    def __str__(self) -> str:
        return " ".join(self.sentences)


def verdict(comparison: Comparison) -> Verdict:
    """Say which method is best for these clients, and where nobody can know."""
    found = find(comparison)
    return Verdict(
        sentences=tuple(sentences(found)),
        best=found.best,
        simplest=_simplest(found),
        differences=tuple(_against_references(found)),
        harmed=_harmed(found),
        comparisons=found.comparisons,
    )


def _simplest(found: Findings) -> str | None:
    plain = [label for label in found.references.values() if label in found.best]
    return next(iter([*plain, *found.best]), None)


def _against_references(found: Findings) -> Iterator[PairedDifference]:
    for label in found.comparison.labels:
        for method in found.references:
            difference = found.against(label, method)
            if difference is not None:
                yield difference


def _harmed(found: Findings) -> dict[str, tuple[tuple[str, float], ...]]:
    alone = found.references.get("local")
    if alone is None:
        return {}
    return {label: tuple(found.losers(label, alone)) for label in found.ranked if label != alone}
