"""FedPer over FedAvg on CIFAR-10, 4 and 10 classes per client (Arivazhagan et al., Figure 2).

The paper trains ResNet-34 and MobileNet-v1 for 100 rounds of 4 epochs on 50,000 images and prints
curves, no numbers; K_P = 2 (the classifier and the block before it) in its main comparison. Here: a
small CNN, 10 clients with 500 images each, 20 rounds of one epoch.

    MOTET_DATA=... python benchmarks/papers/fedper.py [--rounds 20] [--seeds 2]
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import fmean, stdev

import motet
from motet import Blocks, FedAvg, FedPer, Sgd
from motet.models import SmallCNN
from motet.models._surgery.ablations import linear_base

SHAPE, CLASSES = (3, 32, 32), 10
PAPER = {
    "k=4": "FedPer far above FedAvg, and a smaller spread over clients",
    "k=10": "FedPer close to FedAvg",
    "k=4, no base": "a linear layer instead of the base is clearly worse (CIFAR-100)",
}
LOCAL = {"optimizer": Sgd(lr=0.05), "epochs": 1, "batch_size": 25}


def clients_with(classes: int, seed: int) -> motet.data.Federation:
    """Take 10 of 100 clients, to be small; each has its own class mix in training and test."""
    partition = motet.data.Pathological(clients=100, classes=classes)
    data = motet.data.load("cifar10", partition, seed=seed, val=0.0)
    return data.select(data.clients[:10])


def score(method, build, classes: int, seed: int, rounds: int):
    """Accuracy right after the last broadcast: new base, stored head."""
    data = clients_with(classes, seed)
    run = motet.run(method, motet.Task(build), data, rounds=rounds, seed=seed)
    return run.evaluate(split="test", point="after_broadcast")


def rows():
    network = partial(SmallCNN, SHAPE, CLASSES)
    for classes in (4, 10):
        yield f"k={classes}", "FedAvg", FedAvg(**LOCAL), network, classes
        for blocks in (2, 1):
            fedper = FedPer(personal=Blocks(last=blocks), **LOCAL)
            yield f"k={classes}", f"FedPer, K_P={blocks}", fedper, network, classes
    shallow = linear_base(network, shape=SHAPE, keep=Blocks(last=2))
    without = FedPer(personal=Blocks(last=2), **LOCAL)
    yield "k=4, no base", "FedPer, K_P=2", without, shallow, 4


def spread(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    started = time.perf_counter()
    print("| setting | method | accuracy, mean over clients | std over clients | the paper |")
    print("|---|---|---|---|---|")
    for setting, name, method, build, classes in rows():
        tables = [score(method, build, classes, seed, asked.rounds) for seed in range(asked.seeds)]
        mean, std = spread([t.mean for t in tables]), spread([t.std for t in tables])
        print(f"| {setting} | {name} | {mean} | {std} | {PAPER[setting]} |", flush=True)
    print(f"\n{asked.seeds} seeds, {asked.rounds} rounds, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
