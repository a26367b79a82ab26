"""Worlds that nobody chose: every property is drawn at random, and the whole verdict is computed.

A world has 2 to 8 methods, 4 to 60 sites of very unequal size, one of five metrics, gains and luck
of several shapes, sites that belong together, methods that share their luck, exact copies of a
method, and references that are missing. Truth is planted in the units of the metric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from motet._engine.evaluation import Evaluation
from motet._engine.examples import ExampleTable, SiteExamples
from motet._engine.results import Cost, Row, over_common_clients
from motet._engine.scoring import Score
from motet._verdict.federation_summary import FederationSummary
from motet._verdict.results import Results
from motet.metrics import get
from motet.metrics._registry import About

Array = NDArray[np.float64]
SITES = (4, 6, 8, 10, 15, 25, 60)
METRICS = ("accuracy", "auroc", "log_loss", "rmse", "balanced_accuracy")
BASE = {"accuracy": 0.7, "auroc": 0.75, "log_loss": 0.8, "rmse": 12.0, "balanced_accuracy": 0.7}
SCALE = {"log_loss": 1.0, "rmse": 15.0}  # of gains and luck; 1 for shares
NAMES = ("local", "fedavg", "fedavg-ft", "fedper", "ditto", "fedprox", "apfl", "fedrep")
GAINS = ("normal", "t3", "laplace", "a few lose", "a few gain", "two peaks")
LUCKS = ("normal", "t3", "uniform", "two peaks")
SIZES = ("alike", "unequal", "one is wild")
FAMILIES = ("none", "all but the first", "two families")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties of a world. Amounts are in the metric's units, gains positive if better."""

    metric: str
    labels: tuple[str, ...]
    sites: int
    seeds: int
    effects: tuple[float, ...]  # of the methods
    spread: float  # standard deviation of a method's gain over sites
    gains: str
    luck: float  # standard deviation of a method's luck with a seed
    lucks: str
    sizes: str  # of methods' luck
    family: str  # which methods share most of their luck
    alone: float  # luck of single sites
    group: int  # sites that gain alike
    rows: tuple[float, float]  # median test examples of a site, and spread of its logarithm
    prevalence: float
    copies: int  # methods that are exact copies of the one before
    weigh: str
    difficulty: float  # share of an example's noise that methods have in common

    @property
    def is_equal(self) -> bool:
        """Whether all methods are equally good."""
        return len(set(self.effects)) == 1


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A world.

    Attributes:
        kind: Its properties.
        gains: True gain of each method at each site, [methods, sites].
        runs: The same over all sites, with the luck of these very runs, [methods].
        results: What a comparison sees of it.
        again: How the means and sites' means vary over other luck and examples: scores of several
            further draws, [draws, methods, sites]; larger is better.
    """

    kind: Kind
    gains: Array
    runs: Array
    results: Results
    again: Array


def kind_of(rng: np.random.Generator, *, sites: int, seeds: int, grouped: bool) -> Kind:
    """Draw the properties of a world."""
    metric = str(rng.choice(METRICS, p=(0.4, 0.2, 0.15, 0.15, 0.1)))
    count = int(rng.integers(2, 9))
    missing = int(rng.choice([0, 0, 0, 1, 3])) if count < 6 else 0
    scale = SCALE.get(metric, 1.0)
    effect = float(rng.uniform(0.03, 0.2)) * scale if rng.random() < 0.5 else 0.0
    effects = np.zeros(count)
    if effect:
        effects[rng.integers(0, count)] = effect
        effects[rng.random(count) < 0.2] = effect / 2
    return Kind(
        metric=metric,
        labels=NAMES[missing : missing + count],
        sites=sites,
        seeds=seeds,
        effects=tuple(effects.tolist()),
        spread=scale * float(rng.choice([0.0, 0.01, 0.03, 0.07])),
        gains=str(rng.choice(GAINS)),
        luck=scale * float(rng.choice([0.0, 0.003, 0.01, 0.03])),
        lucks=str(rng.choice(LUCKS)),
        sizes=str(rng.choice(SIZES, p=(0.5, 0.3, 0.2))),
        family=str(rng.choice(FAMILIES, p=(0.6, 0.2, 0.2))),
        alone=scale * float(rng.choice([0.0, 0.01, 0.03])),
        group=int(rng.integers(2, 6)) if grouped else 1,
        rows=(float(rng.choice([12, 40, 120])), float(rng.choice([0.2, 0.7, 1.2]))),
        prevalence=float(rng.choice([0.5, 0.2, 0.06])),
        copies=int(rng.choice([0, 0, 0, 1])),
        weigh=str(rng.choice(["clients", "clients", "clients", "examples"])),
        difficulty=float(rng.choice([0.3, 0.6, 0.9])),
    )


def shaped(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw variables with mean 0 and standard deviation 1."""
    if shape == "t3":
        return np.asarray(rng.standard_t(3, size=size) / np.sqrt(3))
    if shape == "laplace":
        return np.asarray(rng.laplace(size=size) / np.sqrt(2))
    if shape == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size=size)
    if shape == "two peaks":
        return rng.choice([-1.0, 1.0], size=size)
    if shape in ("a few lose", "a few gain"):  # one site in seven
        few = np.where(rng.random(size) < 1 / 7, 6.0, -1.0) / np.sqrt(6)
        return np.asarray(-few if shape == "a few lose" else few)
    return rng.normal(size=size)


def site_gains(kind: Kind, rng: np.random.Generator) -> Array:
    """Draw the gains of methods at sites, [methods, sites]."""
    methods, groups = len(kind.labels), -(-kind.sites // kind.group)
    drawn = shaped(kind.gains, (methods, groups), rng).repeat(kind.group, 1)[:, : kind.sites]
    return np.array(kind.effects)[:, None] + kind.spread * drawn


def lucks(kind: Kind, rng: np.random.Generator) -> Array:
    """Draw the luck of methods with seeds, which all sites share: [methods, seeds]."""
    methods = len(kind.labels)
    size = np.ones((methods, 1))
    if kind.sizes == "unequal":
        size = np.exp(0.8 * rng.normal(size=(methods, 1)))
    elif kind.sizes == "one is wild":
        size[rng.integers(0, methods)] = 7.0
    own = shaped(kind.lucks, (methods, kind.seeds), rng)
    if kind.family == "none":
        return kind.luck * size * own
    members = np.arange(methods) >= (1 if kind.family == "all but the first" else methods // 2)
    shared = shaped(kind.lucks, (2, kind.seeds), rng)[members.astype(int)]
    return np.asarray(kind.luck * size * (0.4 * own + 0.9 * shared))


def site_sizes(kind: Kind, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of test examples of each site."""
    middle, width = kind.rows
    return np.maximum(2, middle * np.exp(width * rng.normal(size=kind.sites))).astype(int)


def draw(kind: Kind, rng: np.random.Generator, *, again: int) -> Drawn:
    """Draw a world, and its luck and examples several times again."""
    planted, luck, counts = site_gains(kind, rng), lucks(kind, rng), site_sizes(kind, rng)
    levels, gains = _levels(kind, planted, luck, rng)
    seen = results(kind, levels, counts, rng)
    more = [_redrawn(kind, planted, counts, rng) for _ in range(again)]
    return Drawn(
        kind=kind,
        gains=gains,
        runs=np.array(kind.effects) + luck.mean(1),
        results=seen,
        again=np.array(more),
    )


def _redrawn(
    kind: Kind, planted: Array, counts: NDArray[np.int64], rng: np.random.Generator
) -> Array:
    levels, _ = _levels(kind, planted, lucks(kind, rng), rng)
    table = results(kind, levels, counts, rng)
    scores = np.full((len(kind.labels), kind.sites, kind.seeds), np.nan)
    sign = 1 if get(kind.metric).higher_is_better else -1
    for row in table.rows:
        for score in row.evaluation.rows:
            place = kind.labels.index(row.label), int(score.client[1:]), row.seed
            scores[place] = sign * score.value
    return np.asarray(scores.mean(2))


def _levels(
    kind: Kind, planted: Array, luck: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return expected scores [methods, sites, seeds] and true gains [methods, sites]."""
    sign = 1.0 if get(kind.metric).higher_is_better else -1.0
    scale = SCALE.get(kind.metric, 1.0)
    alone = kind.alone * rng.normal(size=(len(kind.labels), kind.sites, kind.seeds))
    base = BASE[kind.metric] + 0.05 * scale * rng.normal(size=(1, kind.sites))
    true = base + sign * planted
    levels = true[..., None] + sign * (luck[:, None] + alone)
    for method in range(1, kind.copies + 1):
        if kind.effects[method] == kind.effects[method - 1]:
            levels[method], true[method] = levels[method - 1], true[method - 1]
    ends = (0.01 * scale, np.inf) if kind.metric in SCALE else (0.02, 0.99)
    return np.clip(levels, *ends), sign * np.clip(true, *ends)


def results(
    kind: Kind,
    levels: Array,
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> Results:
    """Draw predictions and put them into a comparison."""
    metric = get(kind.metric)
    about = About("regression") if kind.metric == "rmse" else About("binary", 2)
    names = [f"s{site:02}" for site in range(kind.sites)]
    tables: dict[tuple[int, int], dict[str, SiteExamples]] = {}
    for site, count in enumerate(counts):
        targets = (rng.random(count) < kind.prevalence).astype(int)
        example, before = rng.normal(size=count), None
        for method in range(len(kind.labels)):
            noise = rng.normal(size=(count, kind.seeds))
            if before is not None and np.array_equal(levels[method], levels[method - 1]):
                noise = before  # a copy
            before = noise
            mixed = np.sqrt(kind.difficulty) * example[:, None]
            mixed = mixed + np.sqrt(1 - kind.difficulty) * noise
            for seed in range(kind.seeds):
                level = float(levels[method, site, seed])
                made = _examples(kind.metric, names[site], targets, mixed[:, seed], level)
                tables.setdefault((method, seed), {})[names[site]] = made
    rows = []
    for (method, seed), sites in tables.items():
        scores = [_score(made, kind.metric) for made in sites.values()]
        evaluation = Evaluation(
            kind.labels[method],
            kind.metric,
            "test",
            "after_adapt",
            1,
            rows=tuple(score for score in scores if not score.undefined),
            undefined=tuple(score for score in scores if score.undefined),
            higher=metric.higher_is_better,
            weigh="examples" if kind.weigh == "examples" else "clients",
            examples=ExampleTable(about, sites),
        )
        cost = Cost(bytes_up=0, bytes_down=0, gradients=0, seconds=0, private_bytes=0)
        rows.append(Row(label=kind.labels[method], seed=seed, evaluation=evaluation, cost=cost))
    sizes = {
        name: {"train": int(4 * count), "val": 1, "test": int(count)}
        for name, count in zip(names, counts, strict=True)
    }
    return Results(
        rows=over_common_clients(rows),
        data="drawn",
        split="",
        rounds=1,
        cohort=1.0,
        federation=FederationSummary(sizes=sizes),
    )


def _examples(
    metric: str, client: str, labels: NDArray[np.int64], noise: Array, level: float
) -> SiteExamples:
    """Make the examples of one site whose expected score is `level`."""
    count = len(labels)
    loss, correct = np.zeros(count), np.full(count, np.nan)
    if metric == "rmse":
        place = np.arange(count)
        return SiteExamples(client, place, np.zeros(count), level * noise, loss, correct)
    if metric in ("accuracy", "balanced_accuracy"):
        correct = (noise < ndtri(level)).astype(float)
        positive = np.where(correct > 0, labels, 1 - labels) * 0.8 + 0.1
    elif metric == "auroc":
        positive = expit(np.sqrt(2) * ndtri(level) * labels + noise)
    else:
        loss = level * np.exp(0.8 * noise - 0.32)
        positive = np.abs(1 - labels - np.exp(-loss))
    both = np.stack([1 - positive, positive], 1)
    return SiteExamples(client, np.arange(count), labels, both, loss, correct)


def _score(site: SiteExamples, metric: str) -> Score:
    assert site.predictions is not None
    if metric == "accuracy":
        value = float(site.correct.mean())
    elif metric == "log_loss":
        value = float(site.loss.mean())
    else:
        value = get(metric).score(site.targets, site.predictions)
    return Score(site.client, len(site.example), value, 0.0, undefined=bool(np.isnan(value)))
