"""What should clients share of an adapter? Seven answers on chat messages, per user, three seeds.

python benchmarks/adapters/sharing.py            # 24 users, 3 seeds
python benchmarks/adapters/sharing.py 6 1 1      # users, seeds, rounds: a small one, to try it

Everybody has the same encoder, the same kind of head, the same number of rounds, epochs and the
same learning rate; nobody is tuned. Prints a table in Markdown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import chat
import numpy as np

import motet

LEAST, MOST = 32, 32  # messages of a user
LOCAL = "Local (nothing shared)"


def methods() -> Mapping[str, tuple[motet.Method, bool]]:
    """Name the answers; the second entry says whether there are adapters at all."""
    usual = {"batch_size": 8, "optimizer": motet.Sgd(lr=0.05)}
    none = {"adapt_epochs": 0, "final_epochs": 0}
    return {
        "share A and the head (B personal)": (
            motet.FedSim(personal="lora_B", **usual, **none),
            True,
        ),
        "share B and the head (A personal)": (
            motet.FedSim(personal="lora_A", **usual, **none),
            True,
        ),
        "share A, B and the head (FedAvg)": (motet.FedAvg(**usual), True),
        "share the head (A and B personal)": (motet.FedSim(personal="lora", **usual, **none), True),
        LOCAL: (motet.Local(**usual), True),
        "FedAvg+ (FedAvg, then an epoch of its own)": (motet.FedAvgFT(**usual), True),
        "kNN-Per on the frozen features": (motet.KNNPer(features="head", **usual), False),
    }


def scores(seed: int, users: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return test accuracy by answer and user."""
    data = chat.federation(LEAST, MOST, users, seed=seed)
    found: dict[str, dict[str, float]] = {}
    for name, (method, adapted) in methods().items():
        started = time.perf_counter()
        run = motet.run(method, chat.task(adapted=adapted), data, rounds=rounds, seed=seed)
        found[name] = {row.client: row.value for row in run.evaluate("test").rows}
        took = time.perf_counter() - started
        mean = np.mean(list(found[name].values()))
        print(f"seed {seed}, {name}: {mean:.3f} in {took:.0f} s", file=sys.stderr, flush=True)
    return found


def main(users: int = 24, seeds: int = 3, rounds: int = 4) -> None:
    """Print means over users, their spread over seeds, and how many users do better than alone."""
    runs = [scores(seed, users, rounds) for seed in range(seeds)]
    print(f"{users} users, {rounds} rounds, {seeds} seeds (splits and weights)\n")
    print("| answer | test accuracy, mean over users | worst to best seed | better | worse |")
    print("|---|---|---|---|---|")
    for name in runs[0]:
        means = [float(np.mean(list(run[name].values()))) for run in runs]
        gains = [
            float(np.mean([run[name][user] - run[LOCAL][user] for run in runs]))
            for user in runs[0][name]
        ]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        spread = f"{min(means):.3f} to {max(means):.3f}"
        told = "- | -" if name == LOCAL else f"{better} | {worse}"
        print(f"| {name} | {np.mean(means):.3f} | {spread} | {told} |")
    print("\nbetter, worse: users whose mean over seeds is above or below that of Local.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
