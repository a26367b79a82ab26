"""Speed against named rivals, in one run: `python benchmarks/speed --workloads W1,W2,W3,W4`.

Every contestant gets the same data, first weights, cohorts and batches, and its last model is
compared with that of the hand-written loop. Repetitions are interleaved; the first round of each
is left out (compilation, first touches). What is printed are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from environments import python_of
from picture import plot
from prepare import WORKLOADS, write

HERE = Path(__file__).parent
CONTESTANTS = {  # name: environment, script, options
    "Motet": ("motet", "motet_run.py", []),
    "loop, 1 process": ("motet", "loop.py", ["threads=1"]),
    "loop, 1 process, 2 threads": ("motet", "loop.py", ["threads=2"]),
    "loop, 2 processes": ("motet", "loop.py", ["processes=2"]),
    "pfl-research 0.6.0": ("pfl", "pfl_run.py", ["threads=2"]),
    "pfl-research 0.6.0, 1 thread": ("pfl", "pfl_run.py", ["threads=1"]),
    "FedJAX 0.0.17": ("fedjax", "fedjax_run.py", ["how=fedjax"]),
    "JAX 0.10 scan by hand": ("jax", "fedjax_run.py", ["how=scan"]),
    "Flower 1.41 simulation": ("flower", "flower_run.py", []),
}
FEDPER = [name for name in CONTESTANTS if name == "Motet" or "loop" in name]  # who has FedPer
AGREE = 2e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="W1,W2,W3,W4")
    parser.add_argument(
        "--contestants", default="", help="names, or parts of them, comma-separated"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--home", type=Path, default=Path(".benchmarks"))
    options = parser.parse_args()
    parts = [part for part in options.contestants.split(",") if part]
    wanted = [c for c in CONTESTANTS if not parts or any(p.lower() in c.lower() for p in parts)]
    results = {}
    for name in options.workloads.split(","):
        folder = options.home.absolute() / name
        if not (folder / "initial.npz").exists():
            write(name, folder)
        results[name] = race(name, folder, wanted, options)
        print(table(name, results[name]), flush=True)
        save(options.home / "speed.json", results)
        (options.home / "speed.svg").write_text(plot(results), encoding="utf-8")


def race(name: str, folder: Path, wanted: list[str], options: argparse.Namespace) -> dict:
    fedper = WORKLOADS[name].get("method") == "fedper"
    racing = [c for c in wanted if c in FEDPER or not fedper]
    runs: dict[str, list[dict]] = {contestant: [] for contestant in racing}
    models: dict[str, dict] = {}
    for repetition in range(options.repetitions):
        # Everybody goes first in turn: whoever runs later finds a warmer or a busier machine.
        for contestant in racing[repetition % len(racing) :] + racing[: repetition % len(racing)]:
            done = run(contestant, folder, options.home)
            if done is not None:
                runs[contestant].append(done[0])
                models[contestant] = done[1]
    judge = next((c for c in models if c.startswith("loop")), None)
    return {
        contestant: summary(found, gap(models.get(contestant), models.get(judge or "")))
        for contestant, found in runs.items()
        if found
    }


def run(contestant: str, folder: Path, home: Path) -> tuple[dict, dict] | None:
    environment, script, extra = CONTESTANTS[contestant]
    out = folder / "result.json"
    command = [python_of(environment, home.absolute()), str(HERE / "contestants" / script)]
    quiet = {"OMP_NUM_THREADS": "2" if "threads=2" in extra else "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*command, str(folder), str(out), *extra], env={**os.environ, **quiet},
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode or not out.exists():
        print(f"{contestant} failed: {done.stderr[-800:]}", file=sys.stderr)
        return None
    found = json.loads(out.read_text()), dict(np.load(out.with_suffix(".npz")))
    out.unlink()
    return found


def summary(runs: list[dict], difference: float | None) -> dict:
    """Samples per second after the first round: one number per repetition, and their median."""
    speeds = [sum(r["samples"][1:]) / sum(r["seconds"][1:]) for r in runs]
    return {
        "median": statistics.median(speeds),
        "low": min(speeds),
        "high": max(speeds),
        "first_round": statistics.median(r["seconds"][0] for r in runs),
        "peak_mb": max(r["peak_mb"] for r in runs),
        "difference": difference,
        "repetitions": len(runs),
    }


def gap(model: dict | None, judge: dict | None) -> float | None:
    if not model or not judge:
        return None
    return max(float(np.abs(model[name] - judge[name]).max()) for name in model)


def table(name: str, found: dict) -> str:
    ours = found.get("Motet", {}).get("median")
    lines = [
        f"\n{name}: samples per second, median of {next(iter(found.values()))['repetitions']} "
        "interleaved repetitions (low - high), without the first round",
        f"{'':30}{'median':>9}{'low':>9}{'high':>9}{'Motet is':>10}{'round 1':>9}{'MB':>7}  same",
    ]
    for contestant, row in sorted(found.items(), key=lambda item: -item[1]["median"]):
        ratio = f"{ours / row['median']:.2f}x" if ours else "-"
        close = row["difference"] is None or row["difference"] < AGREE
        same = (
            "-"
            if row["difference"] is None
            else f"{row['difference']:.0e}" + ("" if close else " NOT")
        )
        lines.append(
            f"{contestant:30}{row['median']:9.0f}{row['low']:9.0f}{row['high']:9.0f}{ratio:>10}"
            f"{row['first_round']:8.1f}s{row['peak_mb']:7.0f}  {same}"
        )
    return "\n".join(lines)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")


def save(path: Path, results: dict) -> None:
    import torch

    about = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": processor(),
        "cores": os.cpu_count(),
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=1))


if __name__ == "__main__":
    main()
