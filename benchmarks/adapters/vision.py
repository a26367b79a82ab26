"""Adapters of a frozen image network: what to share, on CIFAR-10 divided by Dirichlet(0.3).

python benchmarks/adapters/vision.py                 # all of it; run again, it goes on
python benchmarks/adapters/vision.py --out DIR       # keep finished runs there
python benchmarks/adapters/vision.py --small         # three clients, one seed: to try it

EfficientNet-Lite0 with its ImageNet weights is frozen. Its last three blocks get low-rank adapters
at every convolution (1x1 and depthwise), or convolutions of 1 x 1 behind the last one, or nothing;
the head is trained in each case. These are three networks, so three commands `motet compare`, with
the same images, clients, rounds and seeds. Every method chooses its learning rate on validation
data. Prints a table in Markdown. Needs pip install "motet[pretrained]" and the data of CIFAR-10.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import kept

import motet
from motet.config import write_tables

LAST = "backbone._blocks.1[3-5]"  # of 16: the last three
NONE = {"adapt_epochs": 0, "final_epochs": 0}  # a budget in rounds: nobody trains afterwards
CLIENTS, ROUNDS, SEEDS = 12, 6, 3
IMAGES = 100  # of a client on average: 40 to train on, 20 to choose the rate, 40 to test on
LOCAL = "head: nothing (Local)"  # what a client can do alone at the least cost

FROZEN = {"name": "motet.models:adapted", "of": "motet.models:efficientnet_lite0"}
NETWORKS: dict[str, dict[str, Any]] = {
    "lora": {**FROZEN, "kind": "lora", "rank": 4, "at": [f"{LAST}.*_conv"]},
    "conv": {**FROZEN, "kind": "conv", "at": [f"{LAST}._project_conv"]},
    "head": {"name": "mlp", "hidden": []},  # on features that are computed once
}
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "lora": {
        "A, B and head; own epoch at the end (FedAvg+)": {"name": "fedavg-ft", "adapt_epochs": 1},
        "A, B and head (FedAvg)": {"name": "fedavg"},
        "nothing (Local)": {"name": "local"},
        "A and B (FedPer: head personal)": {"name": "fedper", "personal": ["head"]},
        "A and head (FedSim: B personal)": {"name": "fedsim", "personal": ["lora_B"], **NONE},
        "B and head (FedSim: A personal)": {"name": "fedsim", "personal": ["lora_A"], **NONE},
    },
    "conv": {
        "adapters and head; own epoch at the end (FedAvg+)": {
            "name": "fedavg-ft",
            "adapt_epochs": 1,
        },
        "adapters and head (FedAvg)": {"name": "fedavg"},
        "nothing (Local)": {"name": "local"},
        "head (FedPer: adapters personal)": {"name": "fedper", "personal": ["adapters"]},
        "head (FedAlt: adapters personal)": {"name": "fedalt", "personal": ["adapters"], **NONE},
    },
    "head": {
        "head; own epoch at the end (FedAvg+)": {"name": "fedavg-ft", "adapt_epochs": 1},
        "head (FedAvg)": {"name": "fedavg"},
        "nothing (Local)": {"name": "local"},
        "head (kNN-Per on frozen features)": {"name": "knn-per", "features": "head"},
    },
}


def tables(network: str, *, small: bool) -> dict[str, Any]:
    """Return the config of one comparison."""
    clients = 3 if small else CLIENTS
    data: dict[str, Any] = {
        "name": "cifar10",
        "limit": IMAGES * clients,
        "size": 64,
        "val": 0.2,
        "test": 0.4,
        "partition": {"name": "dirichlet", "clients": clients, "alpha": 0.3},
    }
    labels = {f"{network}: {label}": method for label, method in METHODS[network].items()}
    gradients = ROUNDS * data["limit"] * 2 // 5  # as many as FedAvg's rounds take
    return {
        "compare": {
            "methods": list(labels),
            "seeds": 1 if small else SEEDS,
            "budget": {"gradients": gradients},
            "tune": {
                "space": {"optimizer.lr": [0.003, 0.01, 0.03]},
                "kind": "grid",
                "rounds": 1 if small else ROUNDS // 2,
            },
        },
        "run": {"rounds": 2 if small else ROUNDS, "evaluate_every": ROUNDS},
        "method": {"batch_size": 16, "lr": 0.01},
        "methods": labels,
        "data": data | ({"backbone": "efficientnet-lite0"} if network == "head" else {}),
        "model": NETWORKS[network],
    }


def compared(network: str, out: Path, *, small: bool) -> motet.Comparison:
    """Run a comparison, or what is left of it."""
    place = out / network
    if not (place / "comparison.json").exists():
        config = out / f"{network}.toml"
        config.write_text(write_tables(tables(network, small=small)))
        begun = (place / "config.toml").exists()
        asked = ["resume", str(place)] if begun else ["compare", str(config), "--out", str(place)]
        done = subprocess.run(["motet", *asked], check=False, stdout=sys.stderr)
        _keep_memory(out)
        if done.returncode:
            raise SystemExit(f"the comparison of {network} ended early; run this again.")
    return motet.Comparison.read(place)


def _keep_memory(out: Path) -> None:
    """Keep the most that a process has used, in GB."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    (out / "memory.txt").write_text(f"{max(used, memory(out)):.2f}")


def memory(out: Path) -> float:
    """Read the most that a process has used, in GB."""
    file = out / "memory.txt"
    return float(file.read_text()) if file.exists() else 0.0


def main(out: Path, *, small: bool) -> None:
    """Compare, and print one table of all networks."""
    out.mkdir(parents=True, exist_ok=True)
    parts = {network: compared(network, out, small=small) for network in ("head", "conv", "lora")}
    whole = replace(parts["head"], rows=tuple(r for part in parts.values() for r in part.rows))
    _check_same_images(whole)
    verdict = whole.verdict()
    print(kept.HEADER)
    for label in whole.labels:
        print(kept.line(whole, verdict, label, LOCAL))
    print(f"\n{memory(out):.2f} GB resident at most")
    print(f"\n{verdict}")


def _check_same_images(whole: motet.Comparison) -> None:
    """Make sure that all networks have seen the same test images, client by client."""
    seen = {tuple((row.client, row.examples) for row in run.evaluation.rows) for run in whole.rows}
    if len(seen) != 1:
        raise SystemExit("the comparisons have different clients; use an empty --out.")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; run this again."))  # and the child
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/vision"))
    parser.add_argument("--small", action="store_true")
    main(**vars(parser.parse_args()))
