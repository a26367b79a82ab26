"""Strong scaling from one to two nodes of a real Ray cluster, and a node that is killed.

    python benchmarks/ray_nodes.py [--rounds 4] [--clients 16]

Both nodes are on this machine, with one core each (`ray.cluster_utils`), so that what is seen is
the cost of dividing a run, without that of a network. The same clients train on one actor on one
node, and on two actors on two nodes; then the second node is killed, and the run goes on.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import ray
from ray.cluster_utils import Cluster

import motet
from motet._engine.federation import start

SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
ROWS, CLASSES = 100, 62


def federation(clients: int) -> motet.data.Federation:
    """Draw images of 28 x 28 pixels from noise."""
    rng = np.random.default_rng(0)
    shape = (ROWS, 1, 28, 28)
    train = {
        f"{i:04d}": (rng.standard_normal(shape, "float32"), rng.integers(0, CLASSES, ROWS))
        for i in range(clients)
    }
    return motet.data.from_arrays(train=train, classes=CLASSES)


def begun(data: motet.data.Federation, rounds: int, **where):
    """Start a run whose plan is not measured, so that both have the same."""
    build = {"shape": (1, 28, 28), "classes": CLASSES}
    task = motet.Task(lambda: motet.models.build("emnist-cnn", **build))
    method = motet.FedPer(batch_size=20, optimizer=motet.Sgd(lr=0.01))
    return start(method, task, data, rounds=rounds, backend="ray", measure=False, **where)


def megabytes(run) -> list[float]:
    """Return the resident memory of every actor."""

    def resident(_) -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096

    actors = run.setting.store.shards.crew._actors
    return [size / 1e6 for size in ray.get([a.__ray_call__.remote(resident) for a in actors])]


def rounds_of(run, rounds: int) -> tuple[float, float]:
    """Return the median seconds of rounds after the first, and the driver's processor time."""
    run.advance()
    busy = time.process_time()
    spent = [run.advance().seconds for _ in range(rounds)]
    return statistics.median(spent), 1000 * (time.process_time() - busy) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/ray_nodes.json"))
    asked = parser.parse_args()
    data, found = federation(asked.clients), {}
    one_core = {"num_cpus": 1, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args=one_core)
    try:
        with tempfile.TemporaryDirectory() as folder:
            where = {"address": cluster.address, "rounds": asked.rounds + 4}
            run = begun(data, actors=1, state_dir=f"{folder}/one", **where)
            one, driver_one = rounds_of(run, asked.rounds)
            del run
            gc.collect()
            second = cluster.add_node(num_cpus=1)
            run = begun(data, actors=2, state_dir=f"{folder}/two", **where)
            two, driver_two = rounds_of(run, asked.rounds)
            found["actor, MB"] = max(megabytes(run))
            cluster.remove_node(second, allow_graceful=False)
            began = time.perf_counter()
            run.advance()
            found["the round in which a node died, s"] = time.perf_counter() - began
            run.advance()
            del run
            gc.collect()
    finally:
        ray.shutdown()
        cluster.shutdown()
    found |= {"one node, s": one, "two nodes, s": two, "faster": one / two}
    found |= {"driver, processor ms, 1 actor": driver_one}
    found |= {"driver, processor ms, 2 actors": driver_two}
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=1))
    for name, value in found.items():
        print(f"{name:36} {value:12,.2f}")


if __name__ == "__main__":
    main()
