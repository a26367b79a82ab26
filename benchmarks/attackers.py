"""Do robust combinations hold when a fifth of the clients attacks in every round, for good?

20 clients, all of them in every round; 4 of them, drawn by seed, send corrupt uploads in each of 20
rounds. Accuracy is the mean over the 16 honest clients, also where nobody attacks. Two kinds of
clients: writers of MNIST, who are much alike, and digits dealt by class (Dirichlet, alpha 0.5), who
are not. Every combination knows how many attackers to reckon with.

    nobody      the 4 are honest, too
    scaled      their changes count 10 times
    flipped     their changes point the other way, and count 10 times
    stale       they send the model of the very start
    NaN         they send no numbers (an infinity is refused in the same way)

    MOTET_DATA=... python benchmarks/attackers.py [--rounds 20] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import fmean, stdev

import motet
from motet import Ditto, FedAvg, FedPer, Key, Sgd
from motet._core.aggregation.robust import ClippedMean, Krum, Median, TrimmedMean
from motet._engine.faults import NO_FAULTS, Faults
from motet.data import Dirichlet, Federation
from motet.method import AnyMethod
from motet.models import MLP

CLIENTS, ATTACKERS = 20, 4
LOCAL = {"optimizer": Sgd(lr=0.1), "epochs": 1, "batch_size": 10}
TRIMMED = TrimmedMean(trim=ATTACKERS / CLIENTS)
METHODS: dict[str, AnyMethod] = {
    "FedAvg, mean": FedAvg(**LOCAL),
    "FedAvg, median": FedAvg(reduce=Median(), **LOCAL),
    "FedAvg, trimmed mean": FedAvg(reduce=TRIMMED, **LOCAL),
    "FedAvg, Krum": FedAvg(reduce=Krum(attackers=ATTACKERS), **LOCAL),
    "FedAvg, Multi-Krum": FedAvg(
        reduce=Krum(attackers=ATTACKERS, keep=CLIENTS - ATTACKERS), **LOCAL
    ),
    "FedAvg, clipped mean": FedAvg(reduce=ClippedMean(), **LOCAL),
    "FedPer, mean": FedPer(**LOCAL),
    "FedPer, trimmed mean": FedPer(reduce=TRIMMED, **LOCAL),
    "Ditto, mean": Ditto(**LOCAL),
    "Ditto, trimmed mean": Ditto(reduce=TRIMMED, **LOCAL),
}
ATTACKS = {"nobody": None, "scaled": "scaled", "flipped": "flipped", "stale": "stale", "NaN": "nan"}


def writers(seed: int) -> Federation:
    """Take 20 writers of MNIST, other ones for every seed."""
    data = motet.data.load("mnist-by-writer", seed=seed, val=0.0)
    return data.select(data.clients[CLIENTS * seed : CLIENTS * (seed + 1)])


def dealt_by_class(seed: int) -> Federation:
    return motet.data.load("digits", Dirichlet(clients=CLIENTS, alpha=0.5), seed=seed, val=0.0)


WORLDS: dict[str, Callable[[int], Federation]] = {
    "MNIST by writer": writers,
    "digits by class": dealt_by_class,
}


def accuracy(method: AnyMethod, attack: str | None, data: Federation, seed: int, rounds: int):
    """Return the mean accuracy of the honest clients after the last round."""
    drawn = Key(seed).fold("attackers").numpy().choice(data.clients, ATTACKERS, replace=False)
    attackers = tuple(sorted(map(str, drawn)))
    faults = Faults(corrupt=attackers, corruption=attack) if attack else NO_FAULTS
    task = motet.Task(lambda: MLP(data.shape, 10, hidden=(64,)))
    run = motet.run(method, task, data, rounds=rounds, seed=seed, faults=faults)
    return fmean(row.value for row in run.evaluate().rows if row.client not in attackers)


def spread(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    started = time.perf_counter()
    for name, make in WORLDS.items():
        worlds = [make(seed) for seed in range(asked.seeds)]
        print(f"\n{name}: accuracy of honest clients in %, mean ± std over {asked.seeds} seeds\n")
        print("|".join(["", " method ", *(f" {attack} " for attack in ATTACKS), ""]))
        print("|---" * (1 + len(ATTACKS)) + "|")
        for label, method in METHODS.items():
            print(f"| {label} |", end="")
            for attack in ATTACKS.values():
                found = [accuracy(method, attack, w, s, asked.rounds) for s, w in enumerate(worlds)]
                print(f" {spread(found)} |", end="", flush=True)
            print()
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
