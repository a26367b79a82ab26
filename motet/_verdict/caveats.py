"""Caveats of a verdict: too few clients or seeds, missing references, divergence, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet._core.text import gain, listed, plural, sentence, unit
from motet._engine.divergence import named
from motet._engine.results import Row
from motet._verdict.chance import SURE
from motet._verdict.findings import REFERENCES, Findings
from motet._verdict.judging import unanimous
from motet._verdict.sites import SMALL

ENOUGH_SEEDS = 3  # with this many, the luck of a seed is known well enough


def caveats(found: Findings) -> Iterator[str]:
    """Yield a sentence per limitation of the comparison."""
    if len(found.ranked) > 1:
        yield from _few_clients(found)
        yield from _small_clients(found)
        yield from _few_seeds(found)
    yield from _undefined_clients(found)
    yield from _untested_clients(found)
    yield from _missing_references(found)
    yield from diverged(found)
    yield from _failed(found)


def _few_clients(found: Findings) -> Iterator[str]:
    clients = max(difference.clients for difference in found.differences.values())
    if (groups := found.independent) < clients:
        yield (
            f"The {plural(clients, 'client')} belong to {plural(groups, 'group')} that are "
            "independent of each other; tests of means count groups, not clients."
        )
        if groups < 2:
            yield "One group says nothing about others, so no mean was tested."
        elif unanimous(groups) >= SURE:
            yield (
                f"{groups} groups are few: what a mean over them says about others is probable at "
                "best. Read the verdict on each client first."
            )
    elif clients < 2:
        yield "One client says nothing about others, so no mean was tested."
    elif unanimous(clients) >= SURE:
        yield (
            f"{clients} clients are few: what a mean over them says about other clients is "
            "probable at best. Read the verdict on each client first."
        )


def _small_clients(found: Findings) -> Iterator[str]:
    """Say which clients have few test examples, and what the mean is without them."""
    rows = found.comparison.rows[0].evaluation.rows
    small = sorted(score.client for score in rows if score.examples < SMALL)
    if not small:
        return
    have = "has" if len(small) == 1 else "have"
    first = f"{plural(len(small), 'client')} {have} fewer than {SMALL} test examples"
    pair = (found.federated or "", found.references.get("local", ""))
    without, whole = found.without_small.get(pair), found.differences.get(pair)
    if without is None or whole is None:
        yield f"{first} ({named(small)}): their scores are rough."
        return
    metric = found.metric
    yield (
        f"{first} ({named(small)}); without {'it' if len(small) == 1 else 'them'} the mean gain of "
        f"{pair[0]} over {pair[1]} is {gain(without, metric)} instead of "
        f"{gain(whole.mean, metric)} {unit(metric)}."
    )


def _undefined_clients(found: Findings) -> Iterator[str]:
    """Say which clients have data on which the deciding metric has no value."""
    if not found.comparison.rows:
        return
    rows = found.comparison.rows
    without = {
        (row.label, row.seed): {s.client for s in row.evaluation.undefined if s.undefined}
        for row in rows
    }
    always = set.intersection(*without.values())
    sometimes = set.union(*without.values()) - always
    metric = rows[0].evaluation.metric
    if always:
        yield (
            f"{metric} is undefined for {plural(len(always), 'client')} "
            f"({named(sorted(always))}), which the verdict leaves out."
        )
    if sometimes:
        labels = [
            label
            for label in found.comparison.labels
            if any(sometimes & clients for (name, _), clients in without.items() if name == label)
        ]
        yield (
            f"{metric} is undefined for {plural(len(sometimes), 'client')} "
            f"({named(sorted(sometimes))}) in some runs of {listed(labels)}; the verdict leaves "
            f"{'it' if len(sometimes) == 1 else 'them'} out for every method."
        )


def _untested_clients(found: Findings) -> Iterator[str]:
    """Say which clients of the federation have no scores at all."""
    if not found.comparison.rows:
        return
    first = found.comparison.rows[0].evaluation
    scored = {score.client for score in (*first.rows, *first.undefined)}
    missing = sorted(set(found.comparison.federation.sizes) - scored)
    if missing:
        have = "has" if len(missing) == 1 else "have"
        yield (
            f"{plural(len(missing), 'client')} {have} no {first.split} data and no scores "
            f"({named(missing)})."
        )


def _few_seeds(found: Findings) -> Iterator[str]:
    seeds = len(found.comparison.seeds)
    if seeds == 1:
        yield (
            "One seed supports statements about this run only: another seed may give a different "
            f"result. Use {ENOUGH_SEEDS} seeds or more."
        )
        return
    grades = found.differences.values()
    if any(difference.in_runs for difference in grades):
        yield (
            f"{plural(seeds, 'seed')} cannot settle whether the differences 'in these runs' would "
            "be there with other seeds, too; more seeds may."
        )
    elif any(difference.probable for difference in grades):
        yield "More seeds or more clients would settle what is only probable."


def _missing_references(found: Findings) -> Iterator[str]:
    missing = [method for method in REFERENCES if method not in found.references]
    if missing and found.ranked:
        have, them = ("has", "it") if len(missing) == 1 else ("have", "them")
        yield f"{listed(missing)} {have} no scores, so no method is compared with {them}."


def diverged(found: Findings) -> Iterator[str]:
    """Yield a sentence per method that diverged, for all clients or for some."""
    for label, clients in found.diverged.items():
        yield f"{label} has no finite score for {plural(clients, 'client')} and is not ranked."
    for label in found.ranked:
        blind = found.comparison.diverged(label)
        if blind:
            yield (
                f"{label} has diverged for {plural(len(blind), 'client')} ({named(blind)}): their "
                "predictions are not finite, and count as wrong."
            )
    for label in found.comparison.labels:
        yield from _discarded(label, found.comparison.of(label))


def _discarded(label: str, rows: Sequence[Row]) -> Iterator[str]:
    """Describe the non-finite parts of a training run that were left out."""
    clients = {client for row in rows for client in row.faults.get("diverged_clients", ())}
    if clients:
        yield (
            f"Training of {label} diverged at {plural(len(clients), 'client')} "
            f"({named(sorted(clients))}), which keep their last finite state; a smaller learning "
            "rate may help."
        )
    failed = [row.faults.get("failed_rounds", {}) for row in rows]
    for reason in dict.fromkeys(why for one in failed for why in [*one.values()][:1]):
        count = plural(sum(len(one) for one in failed), "round")
        yield f"{label} kept the server's old state in {count}: {sentence(reason)}"
        return


def _failed(found: Findings) -> Iterator[str]:
    seeds: dict[tuple[str, str], list[str]] = {}
    for failure in found.comparison.failures:
        seeds.setdefault((failure.label, failure.reason), []).append(str(failure.seed))
    for (label, reason), failed in seeds.items():
        word = "seed" if len(failed) == 1 else "seeds"
        yield f"{label} gave no result with {word} {listed(failed)}: {sentence(reason)}"
