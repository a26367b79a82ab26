"""Write a workload's files: data, the first model, and the orders that Motet draws.

Everybody follows these orders, so that the last models can be compared number by number.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import motet
from motet._engine.federation import start

W1 = {
    "network": "mlp",
    "clients": 1000,
    "cohort": 100,
    "low": 20,
    "high": 60,
    "batch": 10,
    "rounds": 10,
}
W2 = {
    "network": "cnn",
    "clients": 15,
    "cohort": 15,
    "low": 1000,
    "high": 1000,
    "batch": 32,
    "rounds": 3,
}
W4 = {
    "network": "lstm",
    "clients": 100,
    "cohort": 10,
    "low": 64,
    "high": 64,
    "batch": 16,
    "rounds": 5,
}
WORKLOADS = {"W1": W1, "W2": W2, "W3": {**W2, "method": "fedper"}, "W4": W4}
SHAPES = {"mlp": (784,), "cnn": (3, 32, 32)}


def write(name: str, folder: Path) -> None:
    about = {"method": "fedavg", "rate": 0.01, "name": name, **WORKLOADS[name]}
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    sizes = rng.integers(about["low"], about["high"] + 1, about["clients"])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    x, y = _examples(about["network"], int(starts[-1]), rng)
    np.savez(folder / "data.npz", x=x, y=y, starts=starts)
    (folder / "about.json").write_text(json.dumps(about))
    _write_orders(about, folder, x, y, starts)


def _examples(network: str, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if network == "lstm":
        text = rng.integers(0, 80, (rows, 81))
        return text[:, :-1], text[:, 1:]
    return rng.standard_normal((rows, *SHAPES[network]), "float32"), rng.integers(0, 10, rows)


def federation(about: dict, x: np.ndarray, y: np.ndarray, starts: np.ndarray):
    """The same data as a federation; a client's id sorts as its number does."""
    slices = [slice(*starts[i : i + 2]) for i in range(about["clients"])]
    train = {f"{i:04d}": (x[cut], y[cut]) for i, cut in enumerate(slices)}
    return motet.data.from_arrays(train=train, classes=80 if about["network"] == "lstm" else 10)


def task(about: dict) -> motet.Task:
    from networks import BUILD

    if about["network"] == "lstm":
        return motet.Task(lambda: motet.models.CharLSTM((80,), 80))
    return motet.Task(BUILD[about["network"]])


def method(about: dict) -> motet.Method:
    fields = {"optimizer": motet.Sgd(lr=about["rate"]), "batch_size": about["batch"], "epochs": 1}
    kinds = {"fedavg": motet.FedAvg, "fedper": motet.FedPer}
    return kinds[about["method"]](**fields)


def _write_orders(about: dict, folder: Path, x, y, starts) -> None:
    run = start(method(about), task(about), federation(about, x, y, starts),
                rounds=about["rounds"], cohort=about["cohort"], seed=0)  # fmt: skip
    cohorts, rows, marks = [], [], []
    for number in range(about["rounds"]):
        run.rounds_done = number
        cohort = run._next_cohort()
        ends = [sum(map(len, rows))]
        for client in cohort:
            walk = run.setting.work(client, number)["train"]
            rows.append(walk.rows[walk.weight > 0].numpy())
            ends.append(ends[-1] + len(rows[-1]))
        cohorts.append([int(client) for client in cohort])
        marks.append(ends)
    np.savez(folder / "orders.npz", cohorts=cohorts, rows=np.concatenate(rows), starts=marks)
    initial = {k: v.numpy() for k, v in run.setting.initial.items()}
    np.savez(folder / "initial.npz", **initial)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
