"""Large models over the real programs: do they pass, how long does it take, how much memory.

    python benchmarks/flower_sizes.py 60 300

SuperLink, path filter and two sites on loopback, over TLS with keys. Each site takes one step of
FedAvg per round; the network is as many megabytes as asked for.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil

from motet.config import experiment_from_dict
from motet.deploy import _results as results
from motet.deploy._processes import MARK
from motet.deploy._trial import RoundDone, Trial
from motet.deploy._writing import Draft

SITES, ROUNDS = 2, 2
BYTES_PER_UNIT = 4 * (64 + 1 + 10)  # of the hidden layer: digits have 64 inputs and 10 classes
ROLES = ("flower-superlink", "flwr-serverapp", "flower-supernode", "flwr-clientapp", "motet")


class Peaks(threading.Thread):
    """Watches the memory of every process of a trial."""

    def __init__(self, mark_file: Path) -> None:
        super().__init__(daemon=True)
        self.mark_file, self.over = mark_file, threading.Event()
        self.peaks: dict[str, int] = defaultdict(int)

    def run(self) -> None:
        while not self.over.wait(0.2):
            if self.mark_file.exists():
                self.look(self.mark_file.read_text())

    def look(self, mark: str) -> None:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == mark:
                    role = next((r for r in ROLES if r in " ".join(process.cmdline()[:2])), "other")
                    self.peaks[role] = max(self.peaks[role], process.memory_info().rss)
            except (psutil.Error, OSError):
                continue


def measure(megabytes: int, folder: Path) -> None:
    width = megabytes * 10**6 // BYTES_PER_UNIT
    tables = {
        "run": {"rounds": ROUNDS, "evaluate_every": ROUNDS},
        "method": {"name": "fedavg", "steps": 1, "batch_size": 8},
        "data": {"name": "digits", "partition": {"name": "iid", "clients": SITES}},
        "model": {"name": "mlp", "hidden": [width]},
    }
    experiment = experiment_from_dict(tables)
    draft = Draft.of(experiment, folder / "net", name="sizes", host="localhost", port=8443)
    draft.write()
    trial = Trial(draft.deployment, draft.deployment.sites, deadline_s=1800.0)
    watch = Peaks(draft.deployment.trial / "mark")
    watch.start()
    started = time.monotonic()
    for event in trial.events():
        if isinstance(event, RoundDone):
            print(f"  round {event.line['round']}: {event.line['seconds']:.1f} s", flush=True)
    watch.over.set()
    replied = [len(line["replied"]) for line in results.rounds(trial.out)]
    assert replied == [SITES] * ROUNDS, replied
    peaks = ", ".join(f"{role} {rss / 1e6:.0f} MB" for role, rss in sorted(watch.peaks.items()))
    print(f"  passed in {time.monotonic() - started:.0f} s; peak memory of a process: {peaks}")


def main() -> None:
    for megabytes in map(int, sys.argv[1:] or ["60", "300"]):
        print(f"{megabytes} MB each way, {SITES} sites, {ROUNDS} rounds, TLS and keys", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            measure(megabytes, Path(folder))


if __name__ == "__main__":
    main()
