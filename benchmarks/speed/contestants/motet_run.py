"""Motet's default backend."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import prepare
import shared

from motet._engine.federation import start


def main() -> None:
    memory = shared.Memory()
    workload, out, options = shared.arguments()
    about = workload.about
    data = prepare.federation(about, workload.x, workload.y, workload.starts)
    run = start(
        prepare.method(about), prepare.task(about), data,
        rounds=about["rounds"], cohort=about["cohort"], seed=0, init=workload.initial,
        workers=int(options.get("workers", 2)),
    )  # fmt: skip
    seconds = []
    for _ in range(about["rounds"]):
        started = time.perf_counter()
        run.advance()
        seconds.append(time.perf_counter() - started)
    shared.report(out, workload, seconds, {k: v.numpy() for k, v in run.server.items()}, memory)


main()
