"""A long run must not grow: memory over 2,000 rounds with a checkpoint after every one.

    python benchmarks/soak.py                            # a few minutes

FedPer on the digits with 20 clients, a look at the validation data every tenth round, private
states on disk, everything written to a run directory.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import motet
from motet._runs.recorded_run import begin
from motet.config import Experiment, ModelChoice, NamedData, RunChoice
from motet.data import Pathological

LOOKS = 10


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this benchmark reads /proc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--store", choices=["memory", "disk"], default="disk")
    chosen = parser.parse_args()
    experiment = Experiment(
        method=motet.FedPer(),
        data=NamedData(partition=Pathological(clients=20, classes=2)),
        model=ModelChoice(name="logistic"),
        run=RunChoice(
            rounds=chosen.rounds,
            cohort=5,
            store=chosen.store,
            evaluate_every=10,
            checkpoint_every=1,
        ),
    )
    every = max(1, chosen.rounds // LOOKS)
    with tempfile.TemporaryDirectory() as folder:
        session = begin(experiment, Path(folder) / "run")
        with session.directory:
            for done, _ in session.rounds():
                if done.number % every == 0:
                    files = [p for p in Path(folder).rglob("*") if p.is_file()]
                    size = sum(path.stat().st_size for path in files) / 1e6
                    print(f"round {done.number:6,}: {resident_mb():6.1f} MB, on disk {size:.2f} MB")


if __name__ == "__main__":
    main()
