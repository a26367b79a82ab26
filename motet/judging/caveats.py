"""What a comparison cannot tell, said before anybody relies on it."""

from __future__ import annotations

from collections.abc import Iterator

from motet.judging.chance import LEVEL, smallest_p
from motet.judging.findings import REFERENCES, Findings
from motet.judging.phrases import listed, plural, sentence

ENOUGH_SEEDS = 3  # from so many on, the noise of training is known well enough to correct for it


def caveats(found: Findings) -> Iterator[str]:
    """Name what is too few, what is missing and what went wrong."""
    if len(found.ranked) > 1:
        too_few = list(_too_few_clients(found))
        yield from too_few or _more_would_tell(found)
        yield from _too_few_seeds(found)
    yield from _missing_references(found)
    yield from _diverged(found)
    yield from _failed(found)


def _too_few_clients(found: Findings) -> Iterator[str]:
    clients = max(difference.clients for difference in found.differences.values())
    if clients < 2:
        yield "One client tells nothing about others: nothing was tested."
    elif (at_best := smallest_p(clients) * found.comparisons) >= LEVEL:
        yield (
            f"{clients} clients cannot support any difference, however large: even if all agree, p "
            f"is {smallest_p(clients):.2g}, and {min(at_best, 1.0):.2g} after correcting for "
            f"{plural(found.comparisons, 'comparison')}. The numbers describe these clients; they "
            "are no forecast for others."
        )


def _too_few_seeds(found: Findings) -> Iterator[str]:
    seeds = len(found.comparison.seeds)
    if seeds == 1:
        yield (
            "With one seed the noise of training is not in the intervals: another seed may say "
            "otherwise."
        )
    elif seeds < ENOUGH_SEEDS:
        yield (
            f"{seeds} seeds measure the noise of training only roughly: "
            f"{ENOUGH_SEEDS} or more would make this firmer."
        )


def _more_would_tell(found: Findings) -> Iterator[str]:
    seeds = len(found.comparison.seeds)
    if seeds >= ENOUGH_SEEDS and any(d.probable for d in found.differences.values()):
        yield f"More than {seeds} seeds, or more clients, would tell about what is only probable."


def _missing_references(found: Findings) -> Iterator[str]:
    missing = [method for method in REFERENCES if method not in found.references]
    if missing and found.ranked:
        yield f"Without scores of {listed(missing)} nothing is said about {_them(missing)}."


def _them(missing: list[str]) -> str:
    return "it" if len(missing) == 1 else "them"


def _diverged(found: Findings) -> Iterator[str]:
    for label, clients in found.diverged.items():
        yield f"{label} has no finite score for {plural(clients, 'client')} and is not ranked."


def _failed(found: Findings) -> Iterator[str]:
    seeds: dict[tuple[str, str], list[str]] = {}
    for failure in found.comparison.failures:
        seeds.setdefault((failure.label, failure.reason), []).append(str(failure.seed))
    for (label, reason), failed in seeds.items():
        word = "seed" if len(failed) == 1 else "seeds"
        yield f"{label} gave no result with {word} {listed(failed)}: {sentence(reason)}"
