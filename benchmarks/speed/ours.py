"""Figures of Motet alone: costs of methods, the first round, evaluation, the machine's ceiling.

python benchmarks/speed/ours.py [costs] [first] [evaluation] [ceiling]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import motet
from motet._engine.federation import start

sys.path.insert(0, str(Path(__file__).parent))
from networks import cnn, mlp

REPETITIONS = int(os.environ.get("SPEED_REPETITIONS", "5"))
LIMITS = {  # times a FedAvg round
    "Ditto": 2.1,
    "APFL": 2.2,
    "pFedMe (K=5)": 5.6,
    "FedRep (1+1)": 2.1,
    "Per-FedAvg FO": 2.2,
    "FedFomo (M=5)": 1.5,
}


def costs() -> dict:
    """A round of each method in FedAvg rounds, on the network and batches of W2."""
    rng = np.random.default_rng(0)

    def clients(rows: int) -> dict:
        x = rng.standard_normal((6, rows, 3, 32, 32), "float32")
        return {str(i): (x[i], rng.integers(0, 10, rows)) for i in range(6)}

    data = motet.data.from_arrays(train=clients(1000), val=clients(200), classes=10)
    shared = {"optimizer": motet.Sgd(lr=0.01), "batch_size": 32, "epochs": 1}
    methods = {
        "FedAvg": motet.FedAvg(**shared),
        "Ditto": motet.Ditto(**shared),
        "APFL": motet.APFL(**shared),
        "pFedMe (K=5)": motet.PFedMe(inner_steps=5, **shared),
        "FedRep (1+1)": motet.FedRep(head_epochs=1, **shared),
        "Per-FedAvg FO": motet.PerFedAvg(variant="fo", **shared),
        "FedFomo (M=5)": motet.FedFomo(models=5, **shared),
    }
    task = motet.Task(cnn)
    runs = {
        name: start(method, task, data, rounds=REPETITIONS + 2, measure=False)
        for name, method in methods.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(REPETITIONS + 2):
        for name, run in runs.items():
            spent = run.advance().seconds
            if repetition >= 2:  # tracing, and FedFomo's first round without any models to weigh
                seconds[name].append(spent)
    base = statistics.median(seconds["FedAvg"])
    found = {name: statistics.median(values) / base for name, values in seconds.items()}
    for name, ratio in found.items():
        limit = f"(at most {LIMITS[name]})" if name in LIMITS else ""
        print(f"{name:16} {ratio:5.2f} x a FedAvg round of {base:.2f} s {limit}")
    return found


def first() -> dict:
    """From the shell prompt to the end of round 1 of W1, imports included: `motet run`."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        _write_w1(Path(folder) / "data")
        for number in range(REPETITIONS):
            command = ["motet", "run", "--method", "fedavg", "--folder", f"{folder}/data"]
            command += ["--model", "mlp", "--cohort", "100", "--batch-size", "10", "--rounds", "1"]
            command += ["--lr", "0.01", "--quiet", "--out", f"{folder}/run{number}"]
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            spent.append(time.perf_counter() - started)
    print(f"motet run on W1, one round and the final scores: {statistics.median(spent):.1f} s")
    return {"seconds": statistics.median(spent)}


def evaluation() -> dict:
    """All 1,000 W1 clients' personalized models on their own test data."""
    data = _w1()
    method = motet.FedPer(optimizer=motet.Sgd(lr=0.01), batch_size=10)
    run = motet.run(method, motet.Task(mlp), data, rounds=2, cohort=0.5)
    run.evaluate(split="test")
    spent = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        run.evaluate(split="test")
        spent.append(time.perf_counter() - started)
    print(f"1,000 personalized models on their own test data: {statistics.median(spent):.2f} s")
    return {"seconds": statistics.median(spent)}


def ceiling() -> dict:
    """What a large matrix product reaches here, one thread on each core at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    def work(_: int) -> float:
        a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
        started = time.perf_counter()
        for _ in range(30):
            a @ b
        return 30 * 2 * 1024**3 / (time.perf_counter() - started)

    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        both = [sum(pool.map(work, range(2))) for _ in range(REPETITIONS)]
    print(f"two threads of matrix products: {statistics.median(both) / 1e9:.0f} GFLOP/s together")
    return {"flops": statistics.median(both)}


def _w1():
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 61, 1000)

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.standard_normal((rows, 784), "float32"), rng.integers(0, 10, rows)

    train = {f"{i:04d}": draw(n) for i, n in enumerate(sizes)}
    test = {f"{i:04d}": draw(10) for i in range(1000)}
    return motet.data.from_arrays(train=train, test=test, classes=10)


def _write_w1(folder: Path) -> None:
    data = _w1()
    for client in data.clients:
        place = folder / client
        place.mkdir(parents=True)
        for split in ("train", "test"):
            x, y = data.examples(client, split)
            np.savez(place / f"{split}.npz", x=x.numpy(), y=y.numpy())


if __name__ == "__main__":
    parts = {"costs": costs, "first": first, "evaluation": evaluation, "ceiling": ceiling}
    found = {name: parts[name]() for name in sys.argv[1:] or parts}
    Path(".benchmarks").mkdir(exist_ok=True)
    Path(".benchmarks/ours.json").write_text(json.dumps(found, indent=1))
