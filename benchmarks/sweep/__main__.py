"""Motet beside the loop everybody writes, on workloads drawn at random or named.

    python benchmarks/sweep --draws 40 --seed 0         # about an hour on a quiet machine
    python benchmarks/sweep --named                     # the lines of docs/speed.md
    python benchmarks/sweep --named adam,logistic --repetitions 3

Both sides train the same clients on the same batches, and take turns round by round: the ratio is
the median over rounds of the loop's seconds over Motet's, the first round left out. "Whole" counts
the first round and planning, too; "processor" compares processor seconds of steady rounds, which
mean something on a busy machine as well, but do not see a thread that idles. Models are
compared number by number after two rounds, and the samples counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from workloads import NAMED, SECONDS, Workload, drawn

HERE = Path(__file__).parent


def duel(workload: Workload, backend: str, cache: str | None, *, profiled: bool = False) -> dict:
    """Run one workload in a process of its own; plans are not remembered unless asked for."""
    with tempfile.TemporaryDirectory() as fresh:
        environment = os.environ | {"MOTET_CACHE": cache or fresh}
        if profiled:
            environment["SWEEP_PROFILE"] = "1"
        command = [sys.executable, str(HERE / "duel.py"), json.dumps(workload.as_dict()), backend]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        raise SystemExit(f"{workload} failed")
    return json.loads(done.stdout.splitlines()[-1])


def line(found: dict) -> str:
    low, high = found["spread"]
    note = "" if found["same"] else f"  DIFFERS by {found['difference']:.1e}"
    return (
        f"{found['ratio']:5.2f} ({low:.2f}-{high:.2f})  whole {found['whole']:5.2f}  "
        f"processor {found['cpu']:5.2f}  "
        f"{found['ours']:8,.0f} / {found['loop']:8,.0f} samples/s  "
        f"{Workload(**found['workload'])}{note}\n{'':20}{found['plan']}"
    )


def summary(results: list[dict]) -> None:
    for what in ("ratio", "whole", "cpu"):
        ratios = sorted(found[what] for found in results)
        tenth = ratios[max(0, round(0.1 * len(ratios)) - 1)]
        below = sum(ratio < 1 for ratio in ratios)
        print(
            f"{what}: median {statistics.median(ratios):.2f}, 10th percentile {tenth:.2f}, worst "
            f"{ratios[0]:.2f}, best {ratios[-1]:.2f}; {below} of {len(ratios)} below 1"
        )
    print(f"equal arithmetic: {sum(found['same'] for found in results)} of {len(results)}")


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the loop, per draw")
    parser.add_argument("--named", nargs="?", const="all", help="lines by name, or all of them")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--cache", help="a folder in which plans are remembered")
    parser.add_argument("--worst", type=int, default=10, help="how many to profile")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/sweep.json"))
    asked = parser.parse_args()
    if asked.named:
        names = list(NAMED) if asked.named == "all" else asked.named.split(",")
        workloads = [NAMED[name] for name in names]
    else:
        numbers = range(asked.first, asked.first + asked.draws)
        workloads = [drawn(asked.seed, number, asked.seconds) for number in numbers]
    results: list[dict] = []
    asked.out.parent.mkdir(exist_ok=True, parents=True)
    for _ in range(asked.repetitions):
        for workload in workloads:
            results.append(duel(workload, asked.backend, asked.cache))
            print(line(results[-1]), flush=True)
            asked.out.write_text(json.dumps(results, indent=1))
    summary(results)
    for found in sorted(results, key=lambda found: found["ratio"])[: asked.worst]:
        again = duel(Workload(**found["workload"]), asked.backend, asked.cache, profiled=True)
        goes = ", ".join(f"{name} {share:.0%}" for name, share in again["profile"].items())
        print(f"{found['ratio']:.2f}  {Workload(**found['workload'])}\n{'':6}{goes}")


if __name__ == "__main__":
    main()
