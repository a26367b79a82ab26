"""What should clients share of an adapter? Answers on chat messages, per user, three seeds.

python benchmarks/adapters/sharing.py            # 16 users, 3 seeds, 6 rounds
python benchmarks/adapters/sharing.py 6 1 1      # users, seeds, rounds: a small one, to try it

Finished runs are kept in runs/sharing; after an interruption, the same command goes on.
Everybody has the same encoder, the same kind of head, the same number of rounds, epochs and the
same learning rate; nobody is tuned. FedAvg+ adds five epochs at the end. Prints a table in
Markdown, and what can be said of each user.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import chat
import kept

import motet

MESSAGES = 64  # of a user: half to train on, half to test on, where an interval needs many
LOCAL, HEAD = "Local (nothing shared)", "kNN-Per on the frozen features"
USUAL = {"batch_size": 8, "optimizer": motet.Sgd(lr=0.1)}
NONE = {"adapt_epochs": 0, "final_epochs": 0}


class Told(motet.tracking.Watcher):
    """Says how far the comparison is."""

    def finished(self, label: str, seed: int, row: Any) -> None:
        """Print a result."""
        told = f"seed {seed}, {label}: {row.evaluation.mean:.3f} in {row.cost.seconds:.0f} s"
        print(told, file=sys.stderr, flush=True)


def compared(users: int, seeds: int, rounds: int) -> motet.Comparison:
    """Compare what to share of adapters, and kNN-Per, which has none, on the same messages."""
    data = chat.federation(MESSAGES, MESSAGES, users, test=0.5)
    given = {"rounds": rounds, "seeds": seeds}
    folder = Path("runs/sharing") / f"{users}-users-{seeds}-seeds-{rounds}-rounds"
    methods = {
        LOCAL: motet.Local(**USUAL),
        "share A, B and the head (FedAvg)": motet.FedAvg(**USUAL),
        "FedAvg+ (FedAvg, then five epochs of its own)": motet.FedAvgFT(**USUAL, adapt_epochs=5),
        "share A and the head (B personal)": motet.FedSim(personal="lora_B", **USUAL, **NONE),
        "share B and the head (A personal)": motet.FedSim(personal="lora_A", **USUAL, **NONE),
        "share the head (A and B personal)": motet.FedSim(personal="lora", **USUAL, **NONE),
    }
    watcher = Told()
    found = kept.compared(folder / "adapters", methods, chat.task(), data, watcher=watcher, **given)
    neighbours = {HEAD: motet.KNNPer(features="head", **USUAL)}
    other = kept.compared(
        folder / "head", neighbours, chat.task(adapted=False), data, watcher=watcher, **given
    )
    return replace(found, rows=found.rows + other.of(HEAD))


def main(users: int = 16, seeds: int = 3, rounds: int = 6) -> None:
    """Print means over users with intervals, and the verdicts on users."""
    found = compared(users, seeds, rounds)
    verdict = found.verdict()
    print(f"{users} users, {rounds} rounds, {seeds} seeds (weights and order)\n")
    print(kept.HEADER)
    for label in found.labels:
        print(kept.line(found, verdict, label, LOCAL))
    print("\nabove, below: users whose mean over seeds is above or below that of Local.")
    print("helped, harmed: those of whom that can be said, with other messages and other seeds.")
    print("a user's interval: half the width of the 95% interval of a gain, median over users.")
    print(f"\n{verdict}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
