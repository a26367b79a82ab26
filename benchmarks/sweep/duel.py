"""One workload: Motet and the loop take turns, a round each. Prints one line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from loop import Loop
from workloads import NETWORKS, Workload, federation_of, method_of

import motet
from motet._engine.federation import Run, start

AGREE = 2e-3  # largest difference of a weight, of the largest weight; Adam divides by small numbers
EARLY = 2  # rounds after which models are compared: later, Adam has amplified what rounding began


def write_files(run: Run, workload: Workload, folder: Path) -> int:
    """Write data, first weights, and the cohorts and orders that Motet draws; count samples."""
    setting = run.setting
    rows, cohorts, names, lengths = [], [], [], []
    for number in range(workload.rounds):
        run.rounds_done = number
        cohort = run._next_cohort()
        cohorts.append([int(client) for client in cohort])
        for place, client in enumerate(cohort):
            for phase, walk in setting.work(client, number).items():
                rows.append(walk.rows[walk.weight > 0].numpy())
                names.append(f"{phase}/{number}/{place}")
                lengths.append(len(rows[-1]))
    run.rounds_done = 0
    joined = np.concatenate(rows)
    np.savez(folder / "orders.npz", cohorts=cohorts, rows=joined, names=names, lengths=lengths)
    examples = [setting.federation.examples(c, "train") for c in setting.everybody]
    starts = np.concatenate([[0], np.cumsum([len(e.y) for e in examples])])
    head = sorted(setting.task.select(("head",)))
    initial = {f"initial/{k}": v.numpy() for k, v in setting.initial.items()}
    x, y = (np.concatenate([e[i].numpy() for e in examples]) for i in (0, 1))
    np.savez(folder / "data.npz", x=x, y=y, starts=starts, head=head, **initial)
    return len(joined)


def difference(run: Run, loop: Loop) -> float:
    """Compare what the servers have: the largest difference, in units of the largest weight."""
    server = run.server if isinstance(run.server, dict) else {}
    pairs = [(server[k], loop.model[k]) for k in server if k in loop.model]
    apart = [float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) for a, b in pairs]
    return max(apart, default=0.0)


def where_time_goes(run: Run) -> dict[str, float]:
    """Profile one more round: shares of two cores, by torch's operations."""
    from torch.profiler import ProfilerActivity, profile

    run.rounds_done = 0
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        started = time.perf_counter()
        run.advance()
        cores = 2e6 * (time.perf_counter() - started)
    spent = {event.key: event.self_cpu_time_total / cores for event in seen.key_averages()}
    most = sorted(spent, key=spent.__getitem__)[:-6:-1]
    return {"outside torch": 1 - sum(spent.values()), **{name: spent[name] for name in most}}


def main() -> None:
    workload = Workload(**json.loads(sys.argv[1]))
    backend = sys.argv[2] if len(sys.argv) > 2 else "auto"
    data = federation_of(workload)
    task = motet.Task(NETWORKS[workload.network].build)
    settings = {"rounds": workload.rounds, "cohort": workload.cohort, "backend": backend}
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        run = start(method_of(workload), task, data, **settings)
        planning = time.perf_counter() - began
        samples = write_files(run, workload, Path(place))
        loop = Loop(workload, Path(place), dict(run.setting.initial))
        ours, theirs, cpu = [], [], []
        for number in range(workload.rounds):
            busy = time.process_time()
            ours.append(run.advance().seconds)
            cpu.append(time.process_time() - busy)
            theirs.append(loop.advance())
            if number < EARLY:
                apart = difference(run, loop)
        loop.close()
    same = loop.samples == samples and apart < AGREE
    # Round by round, side by side: what disturbs one of them disturbs its neighbour, too.
    pairs = [b / a for a, b in zip(ours[1:], theirs[1:], strict=True)]
    found = {
        "workload": workload.as_dict(),
        "plan": str(run.backend.plan or "serial"),
        "ratio": statistics.median(pairs),
        "cpu": sum(loop.cpu[2:]) / sum(cpu[1:]),
        "whole": sum(theirs) / (sum(ours) + planning),
        "ours": loop.samples / workload.rounds / statistics.median(ours[1:]),
        "loop": loop.samples / workload.rounds / statistics.median(theirs[1:]),
        "planning": planning,
        "first": ours[0],
        "spread": [min(pairs), max(pairs)],
        "difference": apart,
        "difference at the end": difference(run, loop),
        "same": same,
    }
    if os.environ.get("SWEEP_PROFILE"):
        found["profile"] = where_time_goes(run)
    torch.set_num_threads(1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
