"""The findings behind a verdict: ranking, differences and their certainty, without words.

Tested are each method against each reference, and the leader against every other method. The leader
is found by looking at all methods, so the correction counts all pairs of methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from motet._verdict.example_scores import ExampleScores, bounded, largest_gain, margin
from motet._verdict.judging import Judgement, Pair, comparisons, judged
from motet._verdict.results import Results
from motet._verdict.site_groups import group_names
from motet._verdict.sites import SMALL, SiteVerdict, site_verdicts
from motet._verdict.statistics import Gains, PairedDifference, difference, gains

REFERENCES = ("local", "fedavg", "fedavg-ft")  # methods, from no federation to the simplest one
FEWEST = 6  # clients of a half that is judged on its own
MOST_SITES = 6000  # verdicts on sites; beyond, only the best methods get them


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Different winners for clients with few examples and for clients with many."""

    few: PairedDifference  # the winner for small clients, over the winner for large ones
    many: PairedDifference  # the winner for large clients, over the winner for small ones
    most_of_few: int  # training examples of the largest small client

    @property
    def supported(self) -> bool:
        """Whether both halves support their winner, each on its own."""
        return self.few.better and self.many.better


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The facts that a verdict reports.

    Attributes:
        ranked: Labels with finite scores, the best mean over clients first.
        best: The leader and the methods without a clear difference from it.
        references: Method -> label, for references with finite scores.
        diverged: Label -> number of clients without a finite score.
        contrast: The winners for small and for large clients, if they differ.
        differences: (label, reference) -> the difference, corrected for the whole family.
        sites: (label, reference) -> the verdict on each site, where test examples were kept.
        without_small: (label, reference) -> mean gain without small sites, where there are some.
    """

    comparison: Results
    ranked: tuple[str, ...]
    best: tuple[str, ...]
    references: Mapping[str, str]
    diverged: Mapping[str, int]
    contrast: Contrast | None
    differences: Mapping[tuple[str, str], PairedDifference]
    sites: Mapping[tuple[str, str], tuple[SiteVerdict, ...]]
    without_small: Mapping[tuple[str, str], float]

    @property
    def comparisons(self) -> int:
        """The number of differences that the correction counts."""
        return comparisons(len(self.ranked)) + (0 if self.contrast is None else 2)

    @property
    def one_seed(self) -> bool:
        """Whether there is one seed only, so that nothing is claimed beyond this run."""
        return len(self.comparison.seeds) < 2

    @property
    def independent(self) -> int:
        """The number of clients, or groups of clients, that are independent of each other."""
        clients = [score.client for score in self.comparison.rows[0].evaluation.rows]
        return len(set(group_names(clients, self.comparison.site_groups)))

    @property
    def federated(self) -> str | None:
        """The best method that is not training alone; None if there is none."""
        alone = self.references.get("local")
        return next((label for label in self.ranked if label != alone), None)

    @property
    def answer(self) -> tuple[SiteVerdict, ...]:
        """The verdicts on sites that say whether federating helps each of them."""
        return self.sites.get((self.federated or "", self.references.get("local", "")), ())

    @property
    def metric(self) -> str:
        """The metric of the scores."""
        return self.comparison.rows[0].evaluation.metric

    @property
    def higher_is_better(self) -> bool:
        """Whether higher scores are better."""
        return self.comparison.rows[0].evaluation.higher_is_better

    def mean(self, label: str, number: str) -> float:
        """Average one of an evaluation's numbers over a method's seeds."""
        return self.comparison.mean(label, attrgetter(f"evaluation.{number}"))

    def difference(self, label: str, reference: str) -> PairedDifference:
        """Return the difference between two labels, in either order."""
        known = self.differences.get((label, reference))
        return known if known is not None else self.differences[reference, label].reversed()

    def against(self, label: str, method: str) -> PairedDifference | None:
        """Return the difference from a reference; None if it is missing or is the label itself."""
        reference = self.references.get(method)
        if reference is None or reference == label or label not in self.ranked:
            return None
        return self.difference(label, reference)

    def losers(self, label: str, reference: str) -> list[tuple[str, float]]:
        """List the clients that are worse off than with a reference, the largest loss first."""
        gained = gains(self.comparison, label, reference).by_client()
        return sorted(((c, g) for c, g in gained.items() if g < 0), key=lambda pair: pair[1])


def find(comparison: Results) -> Findings:
    """Compare every method with every reference, and the leader with every other method."""
    diverged = _diverged(comparison)
    ranked = _ranked(comparison, [label for label in comparison.labels if label not in diverged])
    named = {method: comparison.label_of(method) for method in REFERENCES}
    references = {method: label for method, label in named.items() if label in ranked}
    pairs = _pairs(ranked, list(references.values()))
    halves = _halves(comparison, ranked)
    table = {pair: gains(comparison, *pair) for pair in pairs}
    judgements = _judgements(comparison, table, halves, ranked)
    differences = {
        pair: difference(*pair, table[pair], judgements[place]) for place, pair in enumerate(pairs)
    }
    examples = _examples(comparison)
    return Findings(
        comparison=comparison,
        ranked=ranked,
        best=_best(ranked, differences),
        references=references,
        diverged=diverged,
        contrast=_contrast(halves, judgements[len(pairs) :]),
        differences=differences,
        sites={
            pair: tuple(
                site_verdicts(
                    pair,
                    table[pair].by_client(),
                    found,
                    examples=examples,
                    margin=margin(comparison, pair[1]),
                    most=largest_gain(comparison),
                )
            )
            for pair, found in zip(pairs, judgements, strict=False)
            if found.sites
        },
        without_small=dict(_without_small(comparison, table)),
    )


@dataclass(frozen=True, kw_only=True)
class _Halves:
    """The winners for small and for large clients, and their gains over each other."""

    winners: tuple[str, str]
    few: Gains
    many: Gains
    most_of_few: int


def _judgements(
    comparison: Results,
    table: Mapping[tuple[str, str], Gains],
    halves: _Halves | None,
    ranked: Sequence[str],
) -> list[Judgement]:
    """Judge all pairs, then both halves, as one family."""
    if not table:
        return []
    scores, examples = ExampleScores(comparison), _examples(comparison)
    pairs = [
        Pair(
            gains=found.counted(),
            examples=scores.differences(*pair, found.clients, found.seeds),
            counts=[examples.get(client, 1) for client in found.clients],
            groups=_groups(comparison, found.clients),
            names=pair,
        )
        for pair, found in table.items()
    ]
    parts = [] if halves is None else [halves.few, halves.many]
    small = [
        Pair(
            gains=part.counted(),
            counts=[examples[c] for c in part.clients],
            groups=_groups(comparison, part.clients),
        )
        for part in parts
    ]
    sites = max((len(found.clients) for found in table.values()), default=0)
    several = sites * len(pairs) > MOST_SITES
    few = (ranked[:2], [comparison.label_of(method) for method in REFERENCES])
    shown = [not several or (pair[0] in few[0] and pair[1] in few[1]) for pair in table]
    margins = [margin(comparison, pair[1]) for pair in table]
    return judged(
        [*pairs, *small],
        methods=len(ranked),
        margin=[*margins, *(0.0 for _ in small)],
        bounded=bounded(comparison.rows[0].evaluation.metric),
        extra=len(small),
        with_sites=[*shown, *(False for _ in small)],
    )


def _groups(comparison: Results, clients: Sequence[str]) -> list[str]:
    """Return the group of each client; empty if all clients are independent."""
    return group_names(clients, comparison.site_groups) if comparison.site_groups else []


def _examples(comparison: Results) -> dict[str, int]:
    return {s.client: s.examples for row in comparison.rows for s in row.evaluation.rows}


def _without_small(
    comparison: Results, table: Mapping[tuple[str, str], Gains]
) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the mean gain over the other clients, where some have few test examples."""
    examples = _examples(comparison)
    for pair, found in table.items():
        large = np.array([examples[client] >= SMALL for client in found.clients], dtype=bool)
        if large.any() and not large.all() and found.values.size:
            weights = None if found.weights is None else found.weights[large]
            part = found._replace(values=found.values[large], weights=weights)
            yield pair, float(part.counted().mean())


def _diverged(comparison: Results) -> dict[str, int]:
    without = {
        label: {s.client for row in rows for s in row.evaluation.rows if not math.isfinite(s.value)}
        for label in comparison.labels
        if (rows := comparison.of(label))
    }
    return {label: len(clients) for label, clients in without.items() if clients}


def _ranked(comparison: Results, labels: Sequence[str]) -> tuple[str, ...]:
    def badness(label: str) -> float:
        mean = comparison.mean(label, attrgetter("evaluation.mean"))
        return -mean if comparison.rows[0].evaluation.higher_is_better else mean

    return tuple(sorted(labels, key=badness))


def _pairs(ranked: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    """List each method against each reference, then the leader against the others."""
    against = [(label, ref) for ref in references for label in ranked if label != ref]
    # Two references meet once: the better one against the other, unless that one is "local".
    pairs = dict.fromkeys(pair for pair in against if not _turned(pair, references))
    leading = [(ranked[0], label) for label in ranked[1:]]
    return [*pairs, *(pair for pair in leading if pair not in pairs and pair[::-1] not in pairs)]


def _turned(pair: tuple[str, str], references: Sequence[str]) -> bool:
    """Return whether a pair of references has the simpler one first."""
    label, reference = pair
    return label in references and references.index(label) < references.index(reference)


def _best(
    ranked: Sequence[str], differences: Mapping[tuple[str, str], PairedDifference]
) -> tuple[str, ...]:
    leader = ranked[:1]
    known = {frozenset(pair): found for pair, found in differences.items()}
    return (*leader, *(o for o in ranked[1:] if not known[frozenset((leader[0], o))].apart))


def _halves(comparison: Results, ranked: Sequence[str]) -> _Halves | None:
    """Find the winner of each half; None if they are the same or the halves are too small."""
    sizes = _sizes(comparison)
    middle = float(np.median(list(sizes.values()))) if sizes else 0.0
    few = {client for client, size in sizes.items() if size <= middle}
    many = set(sizes) - few
    if min(len(few), len(many)) < FEWEST or not ranked:
        return None
    small, large = (_winner(comparison, ranked, half) for half in (few, many))
    if small == large:
        return None
    return _Halves(
        winners=(small, large),
        few=gains(comparison, small, large, few),
        many=gains(comparison, large, small, many),
        most_of_few=max(sizes[client] for client in few),
    )


def _contrast(halves: _Halves | None, found: Sequence[Judgement]) -> Contrast | None:
    if halves is None:
        return None
    small, large = halves.winners
    return Contrast(
        few=difference(small, large, halves.few, found[0]),
        many=difference(large, small, halves.many, found[1]),
        most_of_few=halves.most_of_few,
    )


def _winner(comparison: Results, ranked: Sequence[str], clients: set[str]) -> str:
    """Return the label with the largest gain over the leader; ties go to the higher rank."""

    def gain(label: str) -> float:
        values = gains(comparison, label, ranked[0], clients).values
        return float(values.mean()) if values.size else -math.inf  # no seed in common

    return max(ranked, key=gain)


def _sizes(comparison: Results) -> dict[str, int]:
    """Return the number of training examples of each client, where known."""
    return {client: sizes["train"] for client, sizes in comparison.federation.sizes.items()}
