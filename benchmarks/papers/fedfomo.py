"""FedFomo over FedAvg and Local on CIFAR-10 with latent distributions (Zhang et al., ICLR 2021).

The paper clusters the features of a VGG-11 that was trained on CIFAR-10 into 5 groups, gives 15
clients 3,333 images each, and trains 20 rounds of 5 epochs. Then it moves the (validation, test)
pairs between clients, so that everybody wants to be good at what somebody else has.
Here, to be done in minutes: 15 of 60 such clients, 666 + 167 images on average, averaged to 16x16
pixels, a small CNN, 12 rounds of 1 epoch. The features come from the same small CNN, trained on all
training images for 5 epochs: weaker than VGG-11's, so the groups are less pure, and one of the five
is a mixture of all classes.

    MOTET_DATA=... python benchmarks/papers/fedfomo.py [--rounds 12] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import fmean, stdev

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import motet
from motet import FedAvg, FedFomo, Local, Sgd
from motet._core.schedules import Exponential
from motet.data import Federation
from motet.data._convert import to_inputs
from motet.models import SmallCNN

GROUPS, CLIENTS = 5, 15
LOCAL = {
    "optimizer": Sgd(lr=0.1, weight_decay=1e-4),
    "epochs": 1,
    "batch_size": 50,
    "schedule": Exponential(factor=0.99),
}
METHODS = {
    "Local": Local(**LOCAL),
    "FedAvg": FedAvg(**LOCAL),
    "FedFomo, 5 models": FedFomo(models=5, **LOCAL),
}
PAPER = {  # accuracy in %, Tables 2 and 3
    "own target": {"Local": "76.5", "FedAvg": "32.1", "FedFomo, 5 models": "85.1"},
    "shifted target": {"Local": "20.4", "FedAvg": "23.1", "FedFomo, 5 models": "64.1"},
}


def network() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(2), SmallCNN((3, 16, 16), 10))


def make_embedding(epochs: int) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    """Train the network on all of CIFAR-10; its hidden layer is the embedding."""
    data = motet.data.load("cifar10", motet.data.IID(clients=1), val=0.0)
    task = motet.Task(network)
    centre = FedAvg(epochs=epochs, batch_size=64, optimizer=Sgd(lr=0.03, momentum=0.9))
    run = motet.run(centre, task, data, rounds=1)
    print(f"embedding: {epochs} epochs, accuracy {100 * run.evaluate().mean:.1f} %", flush=True)

    def embed(x: NDArray[np.uint8]) -> NDArray[np.float32]:
        parts = np.array_split(np.arange(len(x)), 120)
        with torch.no_grad():
            features = [
                task.features(run.server, to_inputs(x[rows], data.normalize), "1.head")
                for rows in parts
            ]
        return torch.cat(features).numpy()

    return embed


def federations(seed: int, embed: Callable[..., NDArray[np.float32]]) -> dict[str, Federation]:
    """Take 15 of 60 clients, 3 of each group; then judge each on another client's data."""
    latent = motet.data.Latent(clients=4 * CLIENTS, groups=GROUPS, components=64, embed=embed)
    data = motet.data.load("cifar10", latent, seed=seed, val=0.2)
    own = data.select(data.clients[:CLIENTS])
    return {"own target": own, "shifted target": own.retarget(seed=seed, fixed_points=True)}


def scores(seed: int, rounds: int, embed: Callable[..., NDArray[np.float32]]) -> Iterator[tuple]:
    task = motet.Task(network)
    for target, data in federations(seed, embed).items():
        if target == "own target":
            emd = data.heterogeneity().emd
            print(f"seed {seed}: EMD {np.mean(emd):.2f} (L1 distance of label mixes)", flush=True)
        for name, method in METHODS.items():
            # Two stacks of clients, so that two cores have work.
            run = motet.run(method, task, data, rounds=rounds, seed=seed, chunk_size=8)
            table = run.evaluate()
            print(f"seed {seed}, {target}, {name}: {100 * table.mean:.1f} %", flush=True)
            if isinstance(method, FedFomo) and target == "own target":
                print(affinities(run), flush=True)
            yield target, name, table


def affinities(run: motet.Run) -> str:
    """Compare P within groups and across; client number n draws from group n modulo 5."""
    group = np.array([int(client) % GROUPS for client in sorted(run.clients)])
    same, p = group[:, None] == group, run.server.affinity.numpy()
    peers = ~np.eye(len(p), dtype=bool)
    within, across = p[same & peers].mean(), p[~same].mean()
    return f"  affinity to clients of the same group {within:.2f}, to others {across:.2f}"


def spread(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--embedding-epochs", type=int, default=5)
    asked = parser.parse_args()
    started = time.perf_counter()
    found: dict[tuple[str, str], list[motet.Evaluation]] = defaultdict(list)
    embed = make_embedding(asked.embedding_epochs)
    for seed in range(asked.seeds):
        for target, name, table in scores(seed, asked.rounds, embed):
            found[target, name].append(table)
    print(f"\naccuracy in %, mean over clients; mean ± std over {asked.seeds} seeds")
    print("| target | method | paper | ours | worst client | log loss |\n|---|---|---|---|---|---|")
    for (target, name), tables in found.items():
        ours, worst = spread([t.mean for t in tables]), spread([t.worst for t in tables])
        loss = fmean([t.loss for t in tables])
        print(f"| {target} | {name} | {PAPER[target][name]} | {ours} | {worst} | {loss:.2f} |")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
