"""How often whole verdicts on drawn worlds are wrong, and how often right: a line per seeds.

Something is to be seen where a test that knows the true variance, with the same correction, would
claim it in 99 of 100 worlds; that variance is estimated from further draws, with a tenth of room.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from drawn import SITES, Drawn, Kind, draw, kind_of
from scipy.special import ndtri

from motet._verdict.chance import SURE
from motet._verdict.findings import Findings, find
from motet._verdict.sites import SiteVerdict
from motet._verdict.verdict import grade

AGAIN, ROOM, FEWEST = 16, 1.1, 20
HEAD = (
    "| seeds | worlds | false | any grade false | in this run, false | right | without probably "
    "| worlds with a false site | probably, false | sites right |"
)


def print_drawn(
    worlds: int, *, key: int, seeds: tuple[int, ...], seconds: float, groups: str
) -> None:
    """Draw worlds until there are enough or time is up, and print what verdicts on them say.

    Args:
        worlds: Worlds, at most.
        key: Draws other worlds.
        seeds: Numbers of seeds, which worlds take in turn.
        seconds: Time, at most.
        groups: "none": sites are independent. "unknown": groups of sites gain alike. "known": the
            comparison knows these groups.
    """
    end, counts = time.monotonic() + seconds, {number: Counter[str]() for number in seeds}
    for number in range(worlds):
        if time.monotonic() > end:
            break
        rng = np.random.default_rng([key, number])
        kind = kind_of(
            rng,
            sites=int(rng.choice(SITES)),
            seeds=seeds[number % len(seeds)],
            grouped=groups != "none",
        )
        counts[kind.seeds].update(_counted(kind, rng, known=groups == "known"))
    print(HEAD)
    print("|---" * 10 + "|")
    for number, count in counts.items():
        shares = [
            ("false", "worlds"),
            ("any false", "worlds"),
            ("run false", "worlds"),
            ("right", "visible"),
            ("surely right", "visible"),
            ("false sites", "worlds"),
            ("probably false", "probably"),
            ("right sites", "visible sites"),
        ]
        texts = [f"{count[a]} of {count[b]}" if count[b] else "-" for a, b in shares]
        print(f"| {number} | {count['worlds']} | {' | '.join(texts)} |")


def _counted(kind: Kind, rng: np.random.Generator, *, known: bool) -> Counter[str]:
    # Nothing beyond the run is claimed with one seed, so there is nothing to see.
    drawn = draw(kind, rng, again=0 if kind.is_equal or kind.seeds == 1 else AGAIN)
    results = drawn.results
    if known:
        together = {f"s{site:02}": str(site // kind.group) for site in range(kind.sites)}
        results = replace(results, site_groups=together)
    found = find(results)
    count = Counter({"worlds": 1})
    wrong = set(_wrong_grades(drawn, found))
    count["false"] += "sure" in wrong
    count["any false"] += bool(wrong & {"sure", "probable"})
    count["run false"] += "in these runs" in wrong
    for pair, sites in found.sites.items():
        truths = _gains(drawn, pair)
        for site in sites:
            count["probably"] += not site.sure
            count["probably false"] += not site.sure and _is_false(site, truths)
    every = ((pair, site) for pair, sites in found.sites.items() for site in sites)
    count["false sites"] += any(s.sure and _is_false(s, _gains(drawn, p)) for p, s in every)
    if len(drawn.again):
        count.update(_seen(drawn, found))
    return count


def _wrong_grades(drawn: Drawn, found: Findings) -> Iterator[str]:
    kind = drawn.kind
    for (label, reference), difference in found.differences.items():
        first, second = kind.labels.index(label), kind.labels.index(reference)
        says = grade(difference)
        told = drawn.runs if says == "in these runs" else np.array(kind.effects)
        if says != "none" and (told[first] - told[second]) * difference.mean <= 1e-12:
            yield says


def _gains(drawn: Drawn, pair: tuple[str, str]) -> np.ndarray:
    first, second = (drawn.kind.labels.index(label) for label in pair)
    return drawn.gains[first] - drawn.gains[second]


def _is_false(site: SiteVerdict, truths: np.ndarray) -> bool:
    truth = truths[int(site.site[1:])]
    return {
        "helped": truth <= 1e-12,
        "harmed": truth >= -1e-12,
        "no difference": abs(truth) > site.margin,
        "cannot tell": False,
    }[site.state]


def _seen(drawn: Drawn, found: Findings) -> Counter[str]:
    """Count what an oracle sees, and what of it the verdict says."""
    kind, count = drawn.kind, Counter[str]()
    methods = len(kind.labels)
    for (label, reference), difference in found.differences.items():
        first, second = kind.labels.index(label), kind.labels.index(reference)
        truth = kind.effects[first] - kind.effects[second]
        if not truth or difference.clients < kind.sites or kind.weigh == "examples":
            continue
        gains = drawn.again[:, first] - drawn.again[:, second]
        sites = 2 * kind.spread**2 * kind.group / kind.sites
        error = np.sqrt(gains.mean(1).var(ddof=1) + sites)
        if abs(truth) > ROOM * error * _needed(methods * (methods - 1) / 2):
            says = grade(difference) if truth * difference.mean > 0 else "none"
            count["visible"] += 1
            count["right"] += says in ("sure", "probable")
            count["surely right"] += says == "sure"
        truths, errors = _gains(drawn, (label, reference)), gains.std(0, ddof=1)
        for site in found.sites.get((label, reference), ()):
            place = int(site.site[1:])
            needed = ROOM * errors[place] * _needed(kind.sites)
            if site.examples >= FEWEST and 0 < needed < abs(truths[place]):
                count["visible sites"] += 1
                count["right sites"] += site.state == ("helped" if truths[place] > 0 else "harmed")
    return count


def _needed(tests: float) -> float:
    """Return how many standard errors a truth must have for the oracle to see it."""
    return float(ndtri(1 - SURE / 2 / tests) + ndtri(0.99))
