"""Time and memory of opening a large table: a million rows of 5,000 sites, against pyarrow alone.

Usage: python benchmarks/table_reading.py [--rows 1000000] [--sites 5000] [--columns 20]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow

PYARROW = """
import resource, sys, time
import pyarrow as pa
from pyarrow import csv
pa.array([1])  # loads pandas, if it is installed
start, used = time.perf_counter(), time.process_time()
table = csv.read_csv(sys.argv[1])
seconds, cpu = time.perf_counter() - start, time.process_time() - used
print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
MOTET = """
import resource, sys, time
from motet.data import from_table
import pyarrow as pa, pyarrow.csv, pyarrow.compute
pa.array([1])  # loads pandas, if it is installed
start, used = time.perf_counter(), time.process_time()
data = from_table(
    sys.argv[1], client="site", target="outcome", categorical=["sex"], missing="mean",
    standardize=True,
)
seconds, cpu = time.perf_counter() - start, time.process_time() - used
assert len(data.clients) == int(sys.argv[2])
print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write(path: Path, rows: int, sites: int, columns: int) -> None:
    """Write a table with numbers, some of them missing, a category and a site per row."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    site = rng.integers(0, sites, rows)
    numbers = {
        f"x{n}": pa.array(
            np.round(rng.normal(100, 20, rows), 2), mask=rng.random(rows) < 0.01 * (n % 3)
        )
        for n in range(columns - 3)
    }
    names = pa.array([f"hospital {n:04d}" for n in range(sites)])
    table = pa.table(
        {
            "site": names.take(pa.array(site)),
            "sex": pa.array(["f", "m"]).take(pa.array(rng.integers(0, 2, rows))),
            **numbers,
            "outcome": rng.integers(0, 2, rows),
        }
    )
    csv.write_csv(table, path)


def measured(program: str, *arguments: str) -> list[float]:
    """Run a program in a fresh process; return seconds, processor seconds and most memory in MB."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [float(number) for number in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 1_000_000), ("sites", 5000), ("columns", 20), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.csv"
        write(path, given.rows, given.sites, given.columns)
        size = path.stat().st_size / 1e6
        print(f"{given.rows:,} rows, {given.sites:,} sites, {given.columns} columns, {size:.0f} MB")
        # OMP_NUM_THREADS limits pyarrow, too: with one thread the ratio is another one.
        print(f"threads of pyarrow: {pyarrow.cpu_count()}")
        programs = {"pyarrow": PYARROW, "motet": MOTET}
        runs: dict[str, list[list[float]]] = {name: [] for name in programs}
        for _ in range(given.repeats):  # in turn, so that both meet the same load
            for name, program in programs.items():
                runs[name].append(measured(program, str(path), str(given.sites)))
        for name, found in runs.items():
            seconds, cpu = (min(run[place] for run in found) for place in (0, 1))
            memory = max(run[2] for run in found)
            print(f"{name:8} {seconds:6.2f} s  {cpu:6.2f} s of processor  {memory:7.0f} MB")
        for place, what in enumerate(("seconds", "processor")):
            pairs = zip(runs["motet"], runs["pyarrow"], strict=True)
            ratio = statistics.median(one[place] / other[place] for one, other in pairs)
            print(f"ratio of {what}, median of {given.repeats} pairs: {ratio:.2f}")


if __name__ == "__main__":
    main()
