"""kNN-Per over FedAvg on CIFAR-10, Dirichlet 0.3 (Marfoq et al., ICML 2022).

The paper trains an ImageNet-pretrained MobileNet-v2 with FedAvg on 200 clients, all of them in each
of 200 rounds. Here: a small CNN from scratch, 40 clients, 10 per round, 30 rounds. All rows serve
the same FedAvg model, so that they differ by the personalization alone.

    MOTET_DATA=... python benchmarks/papers/knn_per.py [--rounds 30] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from statistics import fmean, stdev

import numpy as np
from torch import Tensor

import motet
from motet import FedAvg, FedAvgFT, Sgd
from motet._engine.federation import Run
from motet.analysis._knn_studies import (
    follow_stream,
    knn_per_from,
    lambda_capacity_table,
    weak_and_strong,
)
from motet.data import Dirichlet, Examples
from motet.models import SmallCNN

LOCAL = {"optimizer": Sgd(lr=0.05), "epochs": 1, "batch_size": 32}
COUNTS = (5, 25, 100, 250, None)  # examples stored
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
POLICIES = ("first-in-first-out", "growing", "frozen")

ACCURACY = "test accuracy in %, weighted by test size"
DECILE = "bottom decile of the clients' test accuracies in %"
BY_SIZE = "mean lambda that clients choose, quarters of the clients by local data"
BY_CAPACITY = "mean lambda that clients choose, by examples stored"
STORED = "test accuracy in %, client mean, by examples stored"
GROUPS = "test accuracy in %, client mean: half of the clients store 1/2 - delta, half 1/2 + delta"
STREAM = "accuracy in % on a stream that becomes another client's, 200 examples stored"
HETEROGENEITY = "points that kNN-Per gains over FedAvg, weighted, by Dirichlet's alpha"
PAPER = {
    ACCURACY: "FedAvg 72.8, FedAvg+ 75.2, kNN-Per 83.0; a memory 4 times smaller costs 0.7",
    DECILE: "FedAvg 59.6, FedAvg+ 62.3, kNN-Per 71.4",
    BY_SIZE: "grows with local data; mostly kNN beyond about 100 examples",
    STREAM: "robust to distribution shift",
    HETEROGENEITY: "the gain is larger where clients differ more",
}
Row = tuple[str, str, float]  # table, row, value


def train(alpha: float, seed: int, rounds: int) -> Run:
    """Train FedAvg on 40 of 100 clients, to be small."""
    data = motet.data.load("cifar10", Dirichlet(clients=100, alpha=alpha), seed=seed)
    data = data.select(data.clients[:40])
    task = motet.Task(partial(SmallCNN, (3, 32, 32), 10))
    return motet.run(FedAvg(**LOCAL), task, data, rounds=rounds, cohort=10, seed=seed)


def served(base: Run) -> Iterator[tuple[str, Run]]:
    """Serve one FedAvg model in several ways."""
    task, data = base.setting.task, base.setting.federation
    yield "FedAvg", base
    tuned = FedAvgFT(adapt_epochs=1, **LOCAL)
    yield "FedAvg+, 1 epoch", motet.run(tuned, task, data, rounds=0, init=base.server)
    yield "kNN-Per", knn_per_from(base)
    yield "kNN-Per, 4 examples to a prototype", knn_per_from(base, prototypes=4)
    release = {"kernel": "gauss_dim", "interpolate": "logits"}
    yield "kNN-Per, kernel and mix of the released code", knn_per_from(base, **release)


def headline(base: Run) -> Iterator[Row]:
    for name, run in served(base):
        scored = run.evaluate()
        yield ACCURACY, name, scored.weighted_mean
        yield DECILE, name, scored.decile


def by_data(run: Run, seed: int) -> Iterator[Row]:
    """Look at lambda and accuracy as memory grows: each client's own choice, made on validation."""
    capacities = (*COUNTS, *FRACTIONS)
    chosen = lambda_capacity_table(run, capacities=capacities, split="val").best_lambdas()
    scored = lambda_capacity_table(run, capacities=capacities).at(chosen)
    sizes = run.setting.federation.sizes()
    ordered = sorted(chosen, key=lambda client: sizes[client])
    for quarter, members in enumerate(np.array_split(ordered, 4), start=1):
        yield BY_SIZE, f"quarter {quarter}", fmean(chosen[c][len(COUNTS) - 1] for c in members)
        yield "examples per client", f"quarter {quarter}", fmean(sizes[c] for c in members)
    for column, count in enumerate(COUNTS):
        name = "all" if count is None else str(count)
        yield BY_CAPACITY, name, fmean(chosen[client][column] for client in chosen)
        yield STORED, name, fmean(scored[client][column] for client in scored)
    for delta in (0.0, 0.25, 0.5):
        own = weak_and_strong(scored, delta=delta, seed=seed)
        column = {client: len(COUNTS) + FRACTIONS.index(own[client]) for client in own}
        yield GROUPS, f"delta {delta}", fmean(scored[c][column[c]] for c in scored)


def streams(run: Run, pairs: int = 10) -> Iterator[Row]:
    """Let rich clients get another rich client's data from some moment on."""
    data = run.setting.federation
    rich = sorted(data.clients, key=lambda c: (-data.size(c, "train"), c))[: 2 * pairs]
    for policy in POLICIES:
        scored = []
        for before, after in zip(rich[::2], rich[1::2], strict=True):
            own, other = data.examples(before, "test"), data.examples(after, "train")
            stream = batches(own, 2) + batches(other, 12)
            scored.append(list(follow_stream(run, before, stream, policy=policy, capacity=200)))
        accuracy = np.array(scored).mean(0)  # [batches]
        yield STREAM, f"{policy}, before", accuracy[:2].mean()
        yield STREAM, f"{policy}, the first 50 examples after", accuracy[2:4].mean()
        yield STREAM, f"{policy}, 200 examples later", accuracy[-4:].mean()


def batches(examples: Examples, count: int, size: int = 25) -> list[tuple[Tensor, Tensor]]:
    return list(zip(examples.x.split(size), examples.y.split(size), strict=True))[:count]


def gain(base: Run) -> float:
    return knn_per_from(base).evaluate().weighted_mean - base.evaluate().weighted_mean


def everything(rounds: int, seeds: int) -> Iterator[Row]:
    for seed in range(seeds):
        base = train(0.3, seed, rounds)
        yield from headline(base)
        yield from by_data(knn_per_from(base), seed)
        yield from streams(knn_per_from(base))
        print(f"seed {seed} done", flush=True)
    for seed in range(min(seeds, 2)):
        for alpha in (0.1, 1.0):
            yield HETEROGENEITY, f"alpha {alpha}", gain(train(alpha, seed, rounds))


def show(title: str, rows: dict[str, list[float]]) -> None:
    print(f"\n{title}" + (f"\npaper: {PAPER[title]}" if title in PAPER else ""))
    factor = 100 if "%" in title or "points" in title else 1
    for name, values in rows.items():
        spread = f" ± {factor * stdev(values):.2f}" if len(values) > 1 else ""
        print(f"| {name} | {factor * fmean(values):.2f}{spread} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    started = time.perf_counter()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for table, row, value in everything(asked.rounds, asked.seeds):
        found[table][row].append(value)
    accuracy = found[ACCURACY]
    gains = zip(accuracy["kNN-Per"], accuracy["FedAvg"], strict=True)
    found[HETEROGENEITY]["alpha 0.3"] = [ours - base for ours, base in gains]
    found[HETEROGENEITY] = dict(sorted(found[HETEROGENEITY].items()))
    print(f"mean ± standard deviation over {asked.seeds} seeds (2 for the other alphas)")
    for title, rows in found.items():
        show(title, rows)
    seconds, work = time.perf_counter() - started, time.process_time()
    print(f"\n{seconds:.0f} s, {work:.0f} s of processor time")


if __name__ == "__main__":
    main()
