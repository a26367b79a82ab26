"""Adapters of a frozen image network: what to share, on CIFAR-10 divided by Dirichlet(0.3).

python benchmarks/adapters/vision.py                            # 10 clients, 5 rounds, 3 seeds
python benchmarks/adapters/vision.py --clients 50 --rounds 40   # for more than a few minutes
python benchmarks/adapters/vision.py --clients 3 --rounds 2 --seeds 1   # to try it

EfficientNet-Lite0 with its ImageNet weights is frozen. Its last three blocks get low-rank adapters
at every convolution (1x1 and depthwise), or convolutions of 1 x 1 behind the last one, or nothing;
the head is trained in each case. What the blocks before them make of an image never changes, so it
is computed once. Every method may compute as many gradients as FedAvg, and chooses its learning
rate on validation data. Finished runs are kept in --out; after an interruption, the same command
goes on. Prints a table in Markdown.

Needs pip install "motet[pretrained]", and the files of CIFAR-10 where MOTET_DATA says.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import kept
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

import motet
from motet.models import efficientnet_lite0, with_conv_adapters, with_lora

SIZE, CLASSES, FIRST = 64, 10, 13  # FIRST of 16 blocks that is adapted
IMAGES = 80  # of a client on average: 32 to train on, 16 to choose the rate, 32 to test on
LOCAL = "head: nothing (Local)"  # what a client can do alone at the least cost
RATES = [0.003, 0.01, 0.03]
USUAL: dict[str, Any] = {"batch_size": 16, "optimizer": motet.Sgd(lr=0.01)}
NONE: dict[str, Any] = {"adapt_epochs": 0, "final_epochs": 0, **USUAL}  # no training afterwards


class Trunk(nn.Module):
    """The blocks before the first adapter: images to [192, 2, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.of = efficientnet_lite0((3, SIZE, SIZE), CLASSES).backbone.eval()

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu6(self.of._bn0(self.of._conv_stem((x - 127 / 255) / (128 / 255))))
        for block in self.of._blocks[:FIRST]:
            out = block(out)
        return out


class Tail(nn.Module):
    """The blocks that are adapted, and a new head."""

    def __init__(self) -> None:
        super().__init__()
        whole = efficientnet_lite0((3, SIZE, SIZE), CLASSES)
        self.blocks = whole.backbone._blocks[FIRST:]
        self.conv, self.norm = whole.backbone._conv_head, whole.backbone._bn1
        self.head = whole.head

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(functional.relu6(self.norm(self.conv(x))).mean((2, 3)))
        return scores


def _trained(build: Callable[[], nn.Module]) -> nn.Module:
    """Freeze everything but the head and convolutions of adapters."""
    network = build()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head.") or ".adapter." in name)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "head": partial(_trained, Tail),
    "conv": partial(_trained, with_conv_adapters(Tail, ["blocks.*._project_conv"])),
    "LoRA": with_lora(Tail, "blocks.*_conv", rank=4, train="head"),
}
METHODS: dict[str, dict[str, Any]] = {
    "head": {
        "nothing (Local)": motet.Local(**USUAL),
        "head (FedAvg)": motet.FedAvg(**USUAL),
        "head, then an own epoch (FedAvg+)": motet.FedAvgFT(adapt_epochs=1, **USUAL),
        "head (kNN-Per on frozen features)": motet.KNNPer(features="head", **USUAL),
    },
    "conv": {
        "nothing (Local)": motet.Local(**USUAL),
        "adapters, head (FedAvg)": motet.FedAvg(**USUAL),
        "adapters, head, then an own epoch (FedAvg+)": motet.FedAvgFT(adapt_epochs=1, **USUAL),
        "head (FedPer)": motet.FedPer(personal="adapters", **USUAL),
        "head (FedAlt)": motet.FedAlt(personal="adapters", **NONE),
    },
    "LoRA": {
        "nothing (Local)": motet.Local(**USUAL),
        "A, B, head (FedAvg)": motet.FedAvg(**USUAL),
        "A, B, head, then an own epoch (FedAvg+)": motet.FedAvgFT(adapt_epochs=1, **USUAL),
        "A, head (FedSim)": motet.FedSim(personal="lora_B", **NONE),
        "B, head (FedSim)": motet.FedSim(personal="lora_A", **NONE),
        "A, B (FedPer)": motet.FedPer(personal="head", **USUAL),
    },
}


class Told(motet.tracking.Watcher):
    """Says how far the comparison is."""

    def finished(self, label: str, seed: int, row: Any) -> None:
        """Print a result."""
        told = f"seed {seed}, {label}: {row.evaluation.mean:.3f} in {row.cost.seconds:.0f} s"
        print(told, file=sys.stderr, flush=True)


def federation(clients: int, file: Path) -> motet.data.Federation:
    """Divide images among clients, as what the trunk makes of them."""
    if not file.exists():
        partition = motet.data.Dirichlet(clients=clients, alpha=0.3)
        limit = {"limit": IMAGES * clients, "size": SIZE}
        images = motet.data.load("cifar10", partition, val=0.2, test=0.4, seed=0, **limit)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(_features(images), file)
    features = load_file(file)
    splits: dict[str, dict[str, Any]] = {"train": {}, "val": {}, "test": {}}
    for name in sorted(features):
        split, client, kind = name.split("/")
        if kind == "x":
            arrays = (features[name].numpy(), features[f"{split}/{client}/y"].numpy())
            splits[split][client] = arrays
    return motet.data.from_arrays(**splits, classes=CLASSES)


def _features(images: motet.data.Federation) -> dict[str, Tensor]:
    trunk, made = Trunk(), {}
    for client in images.clients:
        for split in ("train", "val", "test"):
            x, y = images.examples(client, split)
            if len(y):
                with torch.no_grad():
                    made |= {f"{split}/{client}/x": trunk(x), f"{split}/{client}/y": y}
    return made


def main(out: Path, *, clients: int, rounds: int, seeds: int) -> None:
    """Compare, and print one table of all networks."""
    folder = out / f"{clients}-clients-{rounds}-rounds"
    data = federation(clients, folder / "features.safetensors")
    sizes = [data.size(client, "train") for client in data.clients]
    given = {
        "rounds": rounds,
        "seeds": seeds,
        "evaluate_every": rounds,
        "budget": motet.Budget(gradients=rounds * sum(sizes)),
        "tune": motet.Search(
            space={"optimizer.lr": RATES}, kind="grid", rounds=max(1, rounds // 2)
        ),
    }
    parts = []
    for network, build in NETWORKS.items():
        methods = {f"{network}: {label}": method for label, method in METHODS[network].items()}
        place, task = folder / network, motet.Task(build)
        parts.append(kept.compared(place, methods, task, data, watcher=Told(), **given))
    whole = replace(parts[0], rows=tuple(row for part in parts for row in part.rows))
    verdict = whole.verdict()
    print(f"{clients} clients, {rounds} rounds, {seeds} seeds (weights and order)\n")
    print(kept.HEADER)
    for label in whole.labels:
        print(kept.line(whole, verdict, label, LOCAL))
    rates = {row.label: row.tuned for row in whole.rows}
    print(f"\nrates: {rates}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{peak:.2f} GB resident at most\n\n{verdict}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/vision"))
    for name, usual in (("clients", 10), ("rounds", 5), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    main(**vars(parser.parse_args()))
