"""The verdict on a comparison: which conclusions its results support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from motet._verdict.findings import Findings, find
from motet._verdict.results import Results
from motet._verdict.sentences import answer, sentences
from motet._verdict.sites import SiteVerdict
from motet._verdict.statistics import PairedDifference


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which method is best, for which clients, by how much and at what cost.

    `str` returns it as one paragraph.

    Attributes:
        sentences: The verdict in reading order; the first sentence describes the setup.
        best: The method with the best mean, and those without a clear difference from it.
        simplest: The simplest of `best`: training alone, one model for all, plain fine-tuning, or
            else the leader. None if no method could be ranked.
        differences: Every method against local, fedavg and fedavg-ft, corrected for their number.
        harmed: Label -> clients that are worse off than training alone, the largest loss first,
            with their loss (negative). Training alone is not a key.
        comparisons: Number of differences that the correction counts.
        sites: For every method and reference, the verdict on each site, where test examples were
            kept.
        answer: The one sentence on which sites federating helps and harms; "" without examples.
        main: The method and the reference that `answer` is about.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> found = motet.compare([motet.FedAvg()], world.task, world.data, rounds=1, seeds=1)
        >>> verdict = found.verdict()
        >>> verdict.comparisons, sorted(verdict.harmed)
        (3, ['fedavg', 'fedavg-ft'])
    """

    sentences: tuple[str, ...]
    best: tuple[str, ...]
    simplest: str | None
    differences: tuple[PairedDifference, ...]
    harmed: Mapping[str, tuple[tuple[str, float], ...]]
    comparisons: int
    sites: tuple[SiteVerdict, ...] = ()
    answer: str = ""
    main: tuple[str, str] | None = None

    def of_sites(self, label: str, reference: str) -> tuple[SiteVerdict, ...]:
        """Return the verdict on each site for one method and one reference.

        Args:
            label: Label of a method.
            reference: Label of the method to compare with.
        """
        return tuple(s for s in self.sites if (s.label, s.reference) == (label, reference))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "sentences": list(self.sentences),
            "answer": self.answer,
            "main": None if self.main is None else list(self.main),
            "best": list(self.best),
            "simplest": self.simplest,
            "differences": [{**asdict(found), "grade": grade(found)} for found in self.differences],
            "harmed": {
                label: [{"client": client, "gain": gain} for client, gain in losers]
                for label, losers in self.harmed.items()
            },
            "comparisons": self.comparisons,
            "sites": [site.to_dict() for site in self.sites],
        }

    def against(self, label: str, reference: str | None) -> PairedDifference | None:
        """Return the difference between two labels; None if they were not compared.

        Args:
            label: Label of a method.
            reference: Label of the method to compare with.
        """
        for found in self.differences:
            if (found.label, found.reference) == (label, reference):
                return found
        return None

    def __str__(self) -> str:
        return " ".join(self.sentences)


def verdict(comparison: Results) -> Verdict:
    """Judge which method is best for these clients, and what cannot be decided."""
    found = find(comparison)
    return Verdict(
        sentences=tuple(sentences(found)),
        best=found.best,
        simplest=_simplest(found),
        differences=tuple(_against_references(found)),
        harmed=_harmed(found),
        comparisons=found.comparisons,
        sites=tuple(site for pair in found.sites.values() for site in pair),
        answer=next(answer(found), ""),
        main=_main(found),
    )


def grade(difference: PairedDifference) -> str:
    """Return how certain a difference is: "sure", "probable", "in these runs" or "none"."""
    if difference.supported:
        return "sure"
    if difference.probable:
        return "probable"
    return "in these runs" if difference.in_runs else "none"


def _main(found: Findings) -> tuple[str, str] | None:
    alone = found.references.get("local")
    return None if found.federated is None or alone is None else (found.federated, alone)


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
