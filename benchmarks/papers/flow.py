"""Flow over FedAvg, and the share of clients it harms (Panchal et al., CrossFL 2022, NeurIPS 2023).

The poster's table is on StackOverflow and Reddit (word LSTMs, 2000 rounds), which are not at hand.
Here, smaller: Shakespeare by role (per-time-step routing in an LSTM), MNIST by writer (an MLP) and
CIFAR-10 by Dirichlet(0.1) and (0.6), as in the paper's image tasks (a small CNN).

    MOTET_DATA=... python benchmarks/papers/flow.py [--seeds 2] [--only shakespeare writers ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any

from torch import nn

import motet
from motet import DynamicRouting, FedAvgFT, Flow, Sgd
from motet.analysis import routing_shares, share_harmed
from motet.data import Dirichlet, Federation
from motet.models import MLP, CharLSTM, SmallCNN

POSTER = {  # StackOverflow / Reddit, test accuracy in per cent
    "FedAvg": "24.98 / 17.30",
    "FedAvg+": "not in the table",
    "Dynamic routing": "26.54 / 18.70",
    "Flow": "29.16 / 19.36",
}


@dataclass(frozen=True)
class RunSpec:
    """Data, a network for them, and how long to train it."""

    data: Callable[[int], Federation]
    network: Callable[[], nn.Module]
    local: dict[str, Any]  # what every method does at a client
    rounds: int
    cohort: int

    def methods(self) -> dict[str, motet.Method]:
        """FedAvg is FedAvg+ before it adapts."""
        passes = self.local["epochs"]
        return {
            "FedAvg+": FedAvgFT(adapt_epochs=passes, **self.local),
            "Dynamic routing": DynamicRouting(**self.local),
            "Flow": Flow(local_epochs=passes, **self.local),
        }


def roles(seed: int) -> Federation:
    """Take roles with 60 to 120 passages of 80 characters."""
    data = motet.data.load("shakespeare", seed=seed, val=0.0)
    middling = [c for c in data.clients if 60 <= data.size(c, "train") <= 120]
    return data.select(middling[16 * seed : 16 * seed + 16])


def writers(seed: int) -> Federation:
    data = motet.data.load("mnist-by-writer", seed=seed, val=0.0)
    return data.select(data.clients[50 * seed : 50 * seed + 50])


def images(alpha: float, seed: int) -> Federation:
    """Take 16 of 200 clients, to be small; each has its own class mix in training and test."""
    data = motet.data.load("cifar10", Dirichlet(clients=200, alpha=alpha), seed=seed, val=0.0)
    enough = [c for c in data.clients if data.size(c, "test") >= 10]
    return data.select(enough[:16])


SGD = {"optimizer": Sgd(lr=0.05, momentum=0.9), "batch_size": 20}  # the release's, for images
SETTINGS = {
    "shakespeare": RunSpec(
        data=roles,
        network=partial(CharLSTM, (80,), 74, hidden=64, layers=1),
        local={"optimizer": Sgd(lr=0.5, clip=5.0), "batch_size": 10, "epochs": 1},
        rounds=30,
        cohort=8,
    ),
    "writers": RunSpec(
        data=writers,
        network=partial(MLP, (1, 28, 28), 10, hidden=(64,)),
        local={**SGD, "epochs": 3},
        rounds=30,
        cohort=10,
    ),
    "cifar10 0.1": RunSpec(
        data=partial(images, 0.1),
        network=partial(SmallCNN, (3, 32, 32), 10),
        local={**SGD, "epochs": 2},
        rounds=12,
        cohort=6,
    ),
    "cifar10 0.6": RunSpec(
        data=partial(images, 0.6),
        network=partial(SmallCNN, (3, 32, 32), 10),
        local={**SGD, "epochs": 2},
        rounds=12,
        cohort=6,
    ),
}


@dataclass(frozen=True)
class Result:
    """What the paper reports of a run: accuracies weighted by test examples, and clients harmed."""

    personalized: float
    generalised: float
    harmed: float
    local_route: float


def result(setting: RunSpec, method: motet.Method, seed: int) -> Result:
    task = motet.Task(setting.network)
    run = motet.run(
        method, task, setting.data(seed), rounds=setting.rounds, cohort=setting.cohort, seed=seed
    )
    personal, alone = run.evaluate(), run.evaluate(point="after_broadcast")
    routed = hasattr(method, "routes")
    return Result(
        personalized=personal.weighted_mean,
        generalised=alone.weighted_mean,
        harmed=share_harmed(personal, alone),
        local_route=routing_shares(run, "test").share if routed else 0.0,
    )


def spread(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"


def rows(label: str, results: list[Result]) -> Iterator[list[str]]:
    """Write a method's row; FedAvg+ has two, for it is FedAvg before it adapts."""
    before = spread([r.generalised for r in results])
    if label == "FedAvg+":
        yield ["FedAvg", before, "-", "-", "-", POSTER["FedAvg"]]
    yield [
        label,
        spread([r.personalized for r in results]),
        "-" if label == "Dynamic routing" else before,
        "-" if label == "Dynamic routing" else spread([r.harmed for r in results]),
        "-" if label == "FedAvg+" else spread([r.local_route for r in results]),
        POSTER[label],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    asked = parser.parse_args()
    started = time.perf_counter()
    print("| data | method | accuracy | before adapting | harmed clients | local route | poster |")
    print("|---|---|---|---|---|---|---|")
    for name in asked.only:
        setting = SETTINGS[name]
        for label, method in setting.methods().items():
            results = [result(setting, method, seed) for seed in range(asked.seeds)]
            for cells in rows(label, results):
                print(f"| {' | '.join([name, *cells])} |", flush=True)
    print(f"\n{asked.seeds} seeds, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
