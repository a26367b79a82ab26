"""What every contestant needs, whatever its environment: the workload's files, and a report.

Only numpy and psutil are imported here. A workload is a folder:

    about.json    sizes, batch, rate, rounds
    data.npz      x, y (all clients' rows one after another), starts [clients + 1]
    orders.npz    cohorts [rounds, cohort], rows (one after another), starts [rounds, cohort + 1]
    initial.npz   the first model, by torch's names
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil


@dataclass(frozen=True)
class Workload:
    folder: Path
    about: dict
    x: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    cohorts: np.ndarray
    rows: np.ndarray
    row_starts: np.ndarray
    initial: dict

    @classmethod
    def read(cls, folder: Path) -> Workload:
        data, orders = np.load(folder / "data.npz"), np.load(folder / "orders.npz")
        initial = dict(np.load(folder / "initial.npz"))
        about = json.loads((folder / "about.json").read_text())
        return cls(folder, about, data["x"], data["y"], data["starts"], orders["cohorts"],
                   orders["rows"], orders["starts"], initial)  # fmt: skip

    def order(self, number: int, place: int) -> np.ndarray:
        """Rows of one client in the order it walks them in one round."""
        start, end = self.row_starts[number, place : place + 2]
        client = self.cohorts[number, place]
        return self.rows[start:end] + self.starts[client]

    def samples(self, number: int) -> int:
        return int(self.row_starts[number, -1] - self.row_starts[number, 0])


class Memory(threading.Thread):
    """Watches the resident memory of this process and of all its children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.start()

    def run(self) -> None:
        here = psutil.Process()
        while True:
            total = 0
            for process in [here, *here.children(recursive=True)]:
                try:
                    memory = process.memory_full_info()
                    total += memory.pss  # shared pages count once
                except (psutil.Error, AttributeError):
                    continue
            self.peak = max(self.peak, total)
            time.sleep(0.25)


def report(out: str, workload: Workload, seconds: list[float], final: dict, memory: Memory) -> None:
    """Write what was measured: seconds of each round, the last model, memory."""
    path = Path(out)
    np.savez(path.with_suffix(".npz"), **final)
    result = {
        "seconds": seconds,
        "samples": [workload.samples(number) for number in range(len(seconds))],
        "peak_mb": memory.peak / 1e6,
    }
    path.write_text(json.dumps(result))


def arguments() -> tuple[Workload, str, dict[str, str]]:
    """Read the command line: a workload's folder, where to write, and options."""
    folder, out, *options = sys.argv[1:]
    return Workload.read(Path(folder)), out, dict(option.split("=") for option in options)
