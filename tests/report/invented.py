"""An invented comparison that holds everything a page can show: every kind of study, a failure,
a warning, privacy, tuned hyperparameters, and seeds that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._compare.comparison import Comparison
from motet._core.studies import Study
from motet._engine.evaluation import Evaluation, Score
from motet._engine.examples import ExampleTable, SiteExamples
from motet._engine.results import Cost, Failure, Look, Row
from motet._verdict.federation_summary import FederationSummary
from motet.metrics._registry import About

HOSTILE = "</script><img src=x onerror=\"document.title='broken'\">"
LEVELS = {  # label -> (method, mean accuracy after the last round)
    "local": ("local", 0.83),
    "fedavg": ("fedavg", 0.71),
    "fedavg-ft": ("fedavg-ft", 0.88),
    "fedper": ("fedper", 0.925),
    "fedfomo": ("fedfomo", 0.90),
    "knn-per": ("knn-per", 0.895),
    "ditto": ("ditto", 0.91),
    "cfl": ("cfl", 0.86),
    "flow": ("flow", 0.905),
}


def invented(
    clients: int = 20,
    *,
    labels: Sequence[str] = tuple(LEVELS),
    seeds: Sequence[int] = (0, 1),
    rounds: int = 20,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Make a comparison; `names` renames clients."""
    ids = names or [f"clinic-{number:02d}" for number in range(clients)]
    sizes = np.random.default_rng(7).lognormal(4.2, 0.8, len(ids)).astype(int) + 8
    rows = [row(label, seed, ids, sizes, rounds) for label in labels for seed in seeds]
    return Comparison(
        rows=tuple(rows),
        data="invented",
        split="3f9a2c51d07be86414a5f2c90b7d1e6a8c3f5b2d9e0a7c4b1f8e5d2c9b6a3f0e",
        rounds=rounds,
        cohort=0.5,
        added=("local", "fedavg"),
        failures=(Failure(label="mocha", seed=1, reason="the dual step diverged in round 3"),),
        federation=picture(ids, sizes),
        search={"trials": 6},
    )


def picture(ids: Sequence[str], sizes: NDArray[Any], classes: int = 10) -> FederationSummary:
    rng = np.random.default_rng(3)
    shares = rng.dirichlet([0.25] * classes, len(ids))
    counts = np.floor(shares * sizes[:, None]).astype(int)
    counts[:, 0] += 1
    own = counts / counts.sum(axis=1, keepdims=True)
    everybody = counts.sum(axis=0) / counts.sum()
    return FederationSummary(
        name="invented",
        labels=tuple(f"class {number}" for number in range(classes)),
        sizes={
            c: {"train": int(n), "val": int(n) // 4 + 1, "test": int(n) // 3 + 2}
            for c, n in zip(ids, sizes, strict=True)
        },
        histograms={c: tuple(r) for c, r in zip(ids, counts.tolist(), strict=True)},
        emd=dict(zip(ids, np.abs(own - everybody).sum(axis=1).tolist(), strict=True)),
    )


def row(label: str, seed: int, ids: Sequence[str], sizes: NDArray[Any], rounds: int) -> Row:
    method, level = LEVELS.get(label, (label, 0.85))
    rng = np.random.default_rng([seed, sum(label.encode())])
    own = np.random.default_rng(11).normal(0, 0.05, len(ids)) + 0.03 * np.log(sizes / sizes.mean())
    values = np.clip(level + own + rng.normal(0, 0.035, len(ids)), 0.05, 1.0)
    sites = {c: examples(c, int(n) // 3 + 2, v) for c, n, v in zip(ids, sizes, values, strict=True)}
    scores = tuple(
        Score(c, len(site.correct), float(site.correct.mean()), float(site.loss.mean()))
        for c, site in sites.items()
    )
    kept = ExampleTable(About("multiclass", 10), sites)
    spent = 0 if method == "local" else 50_000 + 1_000 * (sum(label.encode()) % 90)
    return Row(
        label=label,
        seed=seed,
        evaluation=Evaluation(
            method, "accuracy", "test", "after_adapt", rounds, scores, examples=kept
        ),
        cost=Cost(
            bytes_up=spent * rounds,
            bytes_down=spent * rounds,
            gradients=1000.0 * rounds,
            seconds=0.2 * rounds + rng.random(),
            private_bytes=0.0 if method == "fedavg" else 2_600.0,
        ),
        warnings=("its temperature is so high that it is FedAvg.",) if label == "flow" else (),
        rounds=rounds,
        curve=tuple(curve(level, spent, rounds, rng)),
        studies=tuple(studies(label, ids, rng, rounds)),
        tuned={"optimizer.lr": 0.05, "lam": 0.3} if label == "ditto" else {},
        privacy=privacy(ids, sizes) if label == "fedper" else {},
    )


def examples(client: str, count: int, accuracy: float) -> SiteExamples:
    """Test examples of which the first ones are right."""
    places = np.arange(count)
    correct = (places < round(accuracy * count)).astype(float)
    return SiteExamples(client, places, places % 10, None, 1.3 * (1 - correct) + 0.1, correct)


def curve(level: float, spent: int, rounds: int, rng: np.random.Generator) -> Iterator[Look]:
    for number in range(rounds + 1):
        mean = level - (level - 0.12) * np.exp(-number / 4) + rng.normal(0, 0.006)
        yield Look(
            round=number,
            mean=float(mean),
            std=0.08,
            decile=float(mean - 0.11),
            worst=float(mean - 0.2),
            loss=float(2.2 * (1 - mean)),
            bytes_up=spent * number,
            bytes_down=spent * number,
            gradients=1000.0 * number,
            seconds=0.2 * number,
        )


def privacy(ids: Sequence[str], sizes: NDArray[Any]) -> dict[str, Any]:
    spent = {c: float(60 / n + 0.8) for c, n in zip(ids, sizes, strict=True)}
    return {"epsilon": spent, "delta": 1e-5, "protects": "one example of one client"}


def studies(
    label: str, ids: Sequence[str], rng: np.random.Generator, rounds: int
) -> Iterator[Study]:
    """One study of each kind, each under the method it suits."""
    some = ids[:40]
    if label == "fedfomo":
        frames = [
            {"label": f"round {n}", "values": affinity(len(some), n / rounds, rng)}
            for n in (1, rounds // 2, rounds)
        ]
        data = {"names": some, "frames": frames, "quantity": "affinity"}
        yield Study("matrix", "Who learns from whom", "Row: receives. Column: gives.", data)
    if label == "cfl":
        yield Study("tree", "How the clients split", "A branch is a group.", {"nodes": tree(some)})
    if label == "knn-per":
        chosen = {c: float(v) for c, v in zip(some, rng.random(len(some)).round(1), strict=True)}
        data = {"quantity": "lambda", "values": chosen}
        yield Study("per_client", "Chosen interpolation", "1: only the neighbours.", data)
        series = {
            name: [[x, float(0.8 + gain * x / 100)] for x in (0, 25, 50, 75, 100)]
            for name, gain in (("k = 5", 0.08), ("k = 10", 0.1))
        }
        data = {"x": "capacity (%)", "y": "accuracy", "series": series}
        yield Study("lines", "Accuracy against capacity", "How much storage is needed.", data)
    if label == "flow":
        data = {
            "quantity": "share routed to the local model",
            "parts": ["conv1", "conv2", "dense", "head"],
            "clients": some,
            "values": rng.random((len(some), 4)).tolist(),
        }
        yield Study("shares", "Where the local model is used", "1: always the local layer.", data)


def affinity(count: int, progress: float, rng: np.random.Generator) -> list[list[float | None]]:
    values = rng.random((count, count)) * 0.3
    group = np.arange(count) % 3
    values += progress * 0.7 * (group[:, None] == group[None])
    return [[None if i == j else float(values[i, j]) for j in range(count)] for i in range(count)]


def tree(ids: Sequence[str]) -> list[dict[str, Any]]:
    halves = ids[::2], ids[1::2]
    quarters = halves[0][::2], halves[0][1::2]
    return [
        {"id": 0, "parent": None, "label": f"all {len(ids)} clients", "round": 0, "clients": ids},
        *(
            {"id": i, "parent": 0, "label": f"{len(h)} clients", "round": 6, "clients": h}
            for i, h in enumerate(halves, 1)
        ),
        *(
            {"id": i, "parent": 1, "label": f"{len(q)} clients", "round": 13, "clients": q}
            for i, q in enumerate(quarters, 3)
        ),
    ]
