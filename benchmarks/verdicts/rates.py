"""How often the verdict on planted worlds is wrong, and how often it is right.

Right is counted where an oracle sees the truth: a test that knows the true variance, with the same
correction and the same level, would claim it in 99 of 100 worlds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from planted import Drawn, World, draw, mean_error, site_error, variances
from scipy.special import ndtri

from motet._verdict.chance import SURE
from motet._verdict.judging import Judgement, Pair, judged

MARGIN = 0.05
FEWEST = 20
REFERENCE, BEST = 0, 1


@dataclass
class Rates:
    """Counts over the worlds of one kind."""

    worlds: int = 0
    wrong: int = 0  # worlds with a sure claim about a mean that is false
    probably_wrong: int = 0  # worlds with a claim of any grade about a mean that is false
    visible: int = 0  # worlds whose oracle sees the better method
    right: int = 0  # of these, worlds with a true claim of any grade
    surely_right: int = 0
    sites: int = 0
    wrong_sites: int = 0  # sites with a sure claim that is false
    worlds_with_wrong_sites: int = 0
    visible_sites: int = 0
    right_sites: int = 0

    def share(self, count: str, of: str) -> float:
        """Return one count as a share of another; NaN if there is none."""
        total = getattr(self, of)
        return float(getattr(self, count)) / total if total else float("nan")


def measure(world: World, worlds: int, *, key: int = 0, means: bool = False) -> Rates:
    """Draw worlds and judge them: means and sites, or only means."""
    rates, error = Rates(), mean_error(world)
    for number in range(worlds):
        _count(rates, draw(world, np.random.default_rng([key, number])), error, means=means)
    return rates


def pairs_of(drawn: Drawn) -> tuple[list[tuple[int, int]], list[Pair]]:
    """Return what a comparison tests: all against the reference, the leader against all."""
    means = [np.mean([site.mean() for site in sites]) for sites in drawn.right]
    leader = int(np.argmax(means))
    methods = range(drawn.world.methods)
    names = [(method, REFERENCE) for method in methods if method != REFERENCE]
    names += [(leader, m) for m in methods if m not in (leader, REFERENCE)]
    return names, [_pair(drawn, *name) for name in dict.fromkeys(names)]


def _pair(drawn: Drawn, label: int, reference: int) -> Pair:
    sites = [a - b for a, b in zip(drawn.right[label], drawn.right[reference], strict=True)]
    gains = np.stack([site.mean(0) for site in sites])
    return Pair(gains=gains, examples=sites, names=(f"{label:03}", f"{reference:03}"))


def _count(rates: Rates, drawn: Drawn, error: float, *, means: bool) -> None:
    names, pairs = pairs_of(drawn)
    names = list(dict.fromkeys(names))
    methods = drawn.world.methods
    judged_sites = [(BEST, REFERENCE), (methods - 1, REFERENCE)]
    found = judged(
        pairs,
        methods=methods,
        margin=MARGIN,
        bounded=True,
        with_sites=[not means and name in judged_sites for name in names],
    )
    rates.worlds += 1
    false = [j for name, j in zip(names, found, strict=True) if _is_false(drawn, name, j)]
    rates.wrong += any(j.sure for j in false)
    rates.probably_wrong += bool(false)
    by_name = dict(zip(names, found, strict=True))
    _count_mean(rates, drawn, by_name[BEST, REFERENCE], error)
    if means:
        return
    wrong = [_count_sites(rates, drawn, by_name[name], name[0]) for name in set(judged_sites)]
    rates.worlds_with_wrong_sites += any(wrong)


def _is_false(drawn: Drawn, name: tuple[int, int], found: Judgement) -> bool:
    claimed = found.sure or found.probable
    truth = drawn.truth[name[0]] - drawn.truth[name[1]]
    return claimed and truth * found.mean.mean <= 0


def _count_mean(rates: Rates, drawn: Drawn, found: Judgement, error: float) -> None:
    methods, truth = drawn.world.methods, drawn.truth[BEST]
    family = methods * (methods - 1) / 2
    if abs(truth) / error < _needed(family):
        return
    rates.visible += 1
    alone = drawn.world.seed_count == 1
    true = truth * found.mean.mean > 0
    rates.right += true and (found.in_runs if alone else found.sure or found.probable)
    rates.surely_right += true and (found.in_runs if alone else found.sure)


def reachable(world: World, risk: float) -> float:
    """Return how often the best test that does not know the variance would claim the truth.

    It knows that all pairs of methods have the same variances and estimates them from all of them
    together: Student's test with as many degrees of freedom as there are, by Satterthwaite's rule.
    More is out of reach of any test that is wrong as rarely.
    """
    from scipy.stats import nct
    from scipy.stats import t as student

    clients, seeds = variances(world)
    independent, error = world.methods - 1, mean_error(world)
    freedom = (clients + seeds) ** 2 / (
        clients**2 / (independent * (world.sites - 1))
        + seeds**2 / (independent * max(world.seed_count - 1, 1e-9))
    )
    family = world.methods * (world.methods - 1) / 2
    least = student.ppf(1 - risk / 2 / family, freedom)
    return float(nct.sf(least, freedom, abs(world.effect) / error))


def _needed(tests: float) -> float:
    """Return how many standard errors a truth must have for the oracle to see it."""
    return float(ndtri(1 - SURE / 2 / tests) + ndtri(0.99))


def _count_sites(rates: Rates, drawn: Drawn, found: Judgement, method: int) -> bool:
    truths, any_wrong = drawn.site_truth[method], False
    alone = drawn.world.seed_count == 1
    shown = found.states_in_runs if alone else found.states
    for truth, gain, state, told in zip(truths, found.sites, found.states, shown, strict=True):
        rates.sites += 1
        wrong = (
            state.sure
            and {
                "helped": truth <= 0,
                "harmed": truth >= 0,
                "no difference": abs(truth) > MARGIN,
                "cannot tell": False,
            }[state.state]
        )
        rates.wrong_sites += wrong
        any_wrong |= bool(wrong)
        error = site_error(drawn.world, gain.examples)
        few = gain.examples < FEWEST  # then errors are not normal, and the oracle is wrong
        if method == BEST and not few and abs(truth) / error >= _needed(len(found.sites)):
            rates.visible_sites += 1
            rates.right_sites += told.state == ("helped" if truth > 0 else "harmed")
    return any_wrong
