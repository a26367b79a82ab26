"""What a checkpoint costs beside a round: FedPer with the McMahan CNN, 15 clients (workload W3).

    python benchmarks/checkpoint_cost.py                # one round, then 20 saves: about a minute

The round trains 15 clients on 1,000 images of 3x32x32 each. Each save follows a change of the
server's whole state and of every client's head, as after a round; `--store disk` keeps the heads in
the database during training as well.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

import motet
from motet._core import tree
from motet._core.keys import Key
from motet._engine.federation import start
from motet._runs.checkpoint import Checkpoint, disk_store
from motet.data import from_arrays

CLIENTS, EXAMPLES, SAVES = 15, 1_000, 20


def world(store: str, folder: Path) -> motet._engine.federation.Run:
    rng = Key(0).numpy()
    x = rng.standard_normal((CLIENTS, EXAMPLES, 3, 32, 32), dtype="float32")
    y = rng.integers(0, 10, (CLIENTS, EXAMPLES))
    data = from_arrays(train={str(c): (x[c], y[c]) for c in range(CLIENTS)}, classes=10)
    task = motet.Task(
        lambda: motet.models.build("mcmahan-cnn", shape=(3, 32, 32), classes=10), "cross_entropy"
    )
    method = motet.FedPer(optimizer=motet.Sgd(lr=0.01))
    kept = disk_store(folder) if store == "disk" else None
    return start(method, task, data, rounds=100, store=kept)


def changed(value):
    return tree.tree_map(lambda t: t + 1e-3 if t.is_floating_point() else t.clone(), value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=["memory", "disk"], default="memory")
    store = parser.parse_args().store
    with tempfile.TemporaryDirectory() as folder:
        run = world(store, Path(folder))
        checkpoint, took = Checkpoint(run, Path(folder)), []
        round_s = run.advance().seconds
        for _ in range(SAVES):
            run.server = changed(run.server)
            for client in run.setting.federation.clients:
                run.setting.store.put(client, changed(run.setting.client(client)))
            started = time.perf_counter()
            checkpoint.save()
            took.append(time.perf_counter() - started)
        checkpoint.close()
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    state = tree.count_bytes(run.server) + CLIENTS * tree.count_bytes(run.clients["0"])
    print(
        f"{store}: a round {round_s:.1f} s, a save {1000 * median(took):.0f} ms (worst "
        f"{1000 * max(took):.0f} ms), {median(took) / round_s:.2%} of the round; state "
        f"{state / 1e6:.1f} MB, on disk {size / 1e6:.1f} MB, {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
