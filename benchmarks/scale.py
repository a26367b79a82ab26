"""Round time and memory must not depend on how many clients are registered.

    python benchmarks/scale.py                          # 1,000, 100,000 and 1,000,000 clients
    python benchmarks/scale.py --heads independent      # a head is drawn for every newcomer

FedPer with a private head of 8 kB, 100 clients per round, private states on disk, the examples in a
file; a process for every size. Round time is the median in processor seconds: unlike the
clock's, they mean the same on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

SIZES = (1_000, 100_000, 1_000_000)
COHORT, EXAMPLES, LIMIT = 100, 10, 1.2


def make_files(folder: Path, clients: int) -> None:
    """Write 8x8 images for every client, a part at a time."""
    rng = np.random.Generator(np.random.Philox(0))
    rows = clients * EXAMPLES
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (rows, 64))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.uint8, (rows,))
    for start in range(0, rows, 2**18):
        part = x[start : start + 2**18]
        part[:] = rng.integers(0, 256, part.shape, np.uint8)
        y[start : start + 2**18] = rng.integers(0, 10, len(part))


def measure(folder: Path, clients: int, rounds: int, heads: str) -> None:
    """Run in this process, and print what it took."""
    import motet
    from motet._engine.stores.disk import DiskStore

    starts = np.arange(clients + 1, dtype=np.int32) * EXAMPLES
    data = motet.data.from_ranges(folder / "x.npy", folder / "y.npy", starts, test=2, classes=10)
    build = {"shape": (64,), "classes": 10, "hidden": (200,)}
    task = motet.Task(lambda: motet.models.build("mlp", **build), "cross_entropy")
    store, took, clock = DiskStore(folder / "states.sqlite"), [], []
    began = time.process_time()
    # Drawing a head for each newcomer makes a round dearer where more of them are new, and that is
    # not what is measured here, unless it is asked for.
    method = motet.FedPer(batch_size=4, head_init=heads)
    loop = motet.rounds(method, task, data, rounds=rounds, cohort=COHORT, store=store)
    for done in loop:
        took.append(time.process_time() - began)
        clock.append(done.seconds)
        began = time.process_time()
    kept = len(store)
    store.close()
    figures = {
        "clients": clients,
        "seen": kept,
        "start and round 1, s": took[0],
        "round, ms": 1000 * median(took[1:]),
        "clock, ms": 1000 * median(clock[1:]),
        "peak, MB": peak_mb(),
        "disk, MB": (folder / "states.sqlite").stat().st_size / 1e6,
    }
    print(json.dumps(figures))


def peak_mb() -> float:
    """Read the largest resident memory; `getrusage` would count that of the parent, too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this benchmark reads /proc")


def in_a_process(clients: int, rounds: int, heads: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), clients)
        command = [sys.executable, __file__, "--measure", folder, str(clients)]
        command += [str(rounds), heads]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--heads", choices=("common", "independent"), default="common")
    parser.add_argument("--out", type=Path, help="a file for the rows, as JSON")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        folder, clients, rounds, heads = chosen.measure
        measure(Path(folder), int(clients), int(rounds), heads)
        return
    rows = [in_a_process(clients, chosen.rounds, chosen.heads) for clients in chosen.sizes]
    if chosen.out:
        chosen.out.write_text(json.dumps(rows, indent=1))
    print("  ".join(f"{name:>20}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:20,.0f}" for value in row.values()))
    for name in ("round, ms", "peak, MB"):
        ratio = max(row[name] for row in rows) / min(row[name] for row in rows)
        print(f"{name}: largest / smallest = {ratio:.2f} (at most {LIMIT})")


if __name__ == "__main__":
    main()
