"""Workloads: those with a name, and those drawn from a grid."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

import motet


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What both sides run; `low` to `high` are the rows of a client."""

    name: str
    network: str
    method: str
    optimizer: str
    batch: int
    clients: int
    cohort: int
    low: int
    high: int
    rounds: int

    @property
    def mean_rows(self) -> float:
        return (self.low + self.high) / 2

    def __str__(self) -> str:
        rows = f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"
        who = (
            f"{self.cohort} of {self.clients}" if self.cohort < self.clients else f"{self.clients}"
        )
        return (
            f"{self.network}, {self.method}, {self.optimizer}, batch {self.batch}, "
            f"{who} clients x {rows}, {self.rounds} rounds"
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Network:
    """A network, the shape of its examples, and about how many samples a second a core trains."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    speed: float
    tokens: bool = False


def _model(
    name: str, shape: tuple[int, ...], classes: int, **options: Any
) -> Callable[[], nn.Module]:
    return lambda: motet.models.build(name, shape=shape, classes=classes, **options)


def _network(
    name: str, shape: tuple[int, ...], classes: int, speed: float, **options: Any
) -> Network:
    tokens = options.pop("tokens", False)
    return Network(_model(name, shape, classes, **options), shape, classes, speed, tokens)


NETWORKS = {
    "logistic": _network("logistic", (60,), 10, 15_000),
    "mlp": _network("mlp", (784,), 10, 8_000, hidden=[200]),
    "tabular": _network("mlp", (30,), 2, 12_000, hidden=[64, 64]),
    "small-cnn": _network("small-cnn", (1, 8, 8), 10, 8_000),
    "emnist-cnn": _network("emnist-cnn", (1, 28, 28), 62, 1_200),
    "mcmahan-cnn": _network("mcmahan-cnn", (3, 32, 32), 10, 600),
    "sensor-cnn": _network("sensor-cnn", (128, 9), 6, 8_000),
    "mobilenet-v1": _network("mobilenet-v1", (3, 32, 32), 10, 80),
    "resnet-18": _network("resnet-18", (3, 32, 32), 10, 16),
    "char-lstm": _network("char-lstm", (40,), 80, 250, tokens=True),
    "char-lstm-80": _network("char-lstm", (80,), 80, 120, tokens=True),
    "transformer": _network(
        "transformer", (40,), 80, 450, tokens=True,
        layers=2, width=128, heads=4, feedforward=256, tied=False,
    ),
}  # fmt: skip
METHODS = ("fedavg", "fedprox", "fedper", "ditto", "fedrep", "fedalt", "local")
OPTIMIZERS = ("sgd", "decay", "momentum", "adam")


def _line(name: str, network: str, method: str, optimizer: str, **sizes: int) -> Workload:
    sizes = {"cohort": sizes["clients"], "low": sizes["high"], **sizes}
    return Workload(name=name, network=network, method=method, optimizer=optimizer, **sizes)


def _lines() -> dict[str, Workload]:
    """Workloads outside the race, which docs/speed.md has a line for."""
    five_hundred = {"clients": 500, "high": 60, "batch": 20}
    few = {"clients": 6, "high": 96, "batch": 32}
    sensors = {"clients": 30, "high": 200, "batch": 32, "rounds": 15}
    many = {"clients": 10_000, "cohort": 1_000, "high": 20, "batch": 10, "rounds": 20}
    text = {"clients": 40, "high": 64, "batch": 16, "rounds": 5}
    lines = (
        _line("cnn", "emnist-cnn", "fedper", "momentum", clients=100, high=100, batch=20, rounds=4),
        _line("ditto", "mlp", "ditto", "sgd", **five_hundred, rounds=15),
        _line("ditto-short", "mlp", "ditto", "sgd", **five_hundred, rounds=5),
        _line("mobilenet", "mobilenet-v1", "fedper", "momentum", **few, rounds=4),
        _line("resnet", "resnet-18", "fedavg", "sgd", **few, rounds=3),
        _line("adam", "mlp", "fedavg", "adam", **five_hundred, rounds=10),
        _line("sensor", "sensor-cnn", "fedrep", "momentum", **sensors),
        _line("logistic", "logistic", "fedavg", "sgd", **many),
        _line("transformer", "transformer", "fedalt", "sgd", **text),
        *_race(),
    )
    return {line.name: line for line in lines}


def _race() -> tuple[Workload, ...]:
    """The workloads of the race, beside the loop alone."""
    small = {"clients": 1_000, "cohort": 100, "low": 20, "high": 60, "batch": 10, "rounds": 10}
    images = {"clients": 15, "high": 1_000, "batch": 32, "rounds": 3}
    text = {"clients": 100, "cohort": 10, "high": 64, "batch": 16, "rounds": 5}
    return (
        _line("W1", "mlp", "fedavg", "sgd", **small),
        _line("W2", "mcmahan-cnn", "fedavg", "sgd", **images),
        _line("W3", "mcmahan-cnn", "fedper", "sgd", **images),
        _line("W4", "char-lstm-80", "fedavg", "sgd", **text),
    )


NAMED = _lines()
DRAWN = sorted(NETWORKS.keys() - {"char-lstm-80"})
SECONDS = 12.0  # of the loop, about, for a drawn workload


def drawn(seed: int, number: int, seconds: float = SECONDS) -> Workload:
    """Draw one workload; the sizes are such that the loop needs about as many seconds."""
    dice = random.Random(f"{seed}/{number}")
    network, method = dice.choice(DRAWN), dice.choice(METHODS)
    optimizer, batch = dice.choice(OPTIMIZERS), dice.choice((8, 10, 16, 20, 32, 64))
    rounds = dice.choice((3, 5, 10, 20, 40))
    passes = 2 if method in ("ditto", "fedrep", "fedalt") else 1
    per_round = max(2 * NETWORKS[network].speed * seconds / rounds / passes, 2 * batch)
    rows = dice.choice([r for r in (20, 40, 60, 100, 200, 500) if r <= per_round / 2] or [20])
    cohort = min(max(2, int(per_round / rows)), dice.choice((5, 10, 30, 100, 300, 1_000)))
    ragged, everybody = dice.random() < 0.5, dice.random() < 0.5
    return Workload(
        name=f"draw {number}",
        network=network,
        method=method,
        optimizer=optimizer,
        batch=batch,
        clients=cohort if everybody else 4 * cohort,
        cohort=cohort,
        low=rows // 2 if ragged else rows,
        high=rows * 3 // 2 if ragged else rows,
        rounds=rounds,
    )


def method_of(workload: Workload) -> motet.Method:
    """Make Motet's method."""
    rates = {"sgd": 0.01, "decay": 0.01, "momentum": 0.01, "adam": 0.001}
    rate = rates[workload.optimizer]
    optimizer = {
        "sgd": motet.Sgd(lr=rate),
        "decay": motet.Sgd(lr=rate, weight_decay=1e-3),
        "momentum": motet.Sgd(lr=rate, momentum=0.9),
        "adam": motet.Adam(lr=rate),
    }[workload.optimizer]
    shared = {"optimizer": optimizer, "batch_size": workload.batch, "epochs": 1}
    return {
        "fedavg": lambda: motet.FedAvg(**shared),
        "fedprox": lambda: motet.FedProx(mu=0.1, **shared),
        "fedper": lambda: motet.FedPer(head_init="common", **shared),
        "ditto": lambda: motet.Ditto(lam=1.0, **shared),
        "fedrep": lambda: motet.FedRep(head_epochs=1, **shared),
        "fedalt": lambda: motet.FedAlt(personal=("head",), **shared),
        "local": lambda: motet.Local(**shared),
    }[workload.method]()


def federation_of(workload: Workload) -> motet.data.Federation:
    """Make data of the right shape from noise."""
    rng, network = np.random.default_rng(7), NETWORKS[workload.network]
    sizes = rng.integers(workload.low, workload.high + 1, workload.clients)

    def examples(rows: int) -> tuple[np.ndarray, np.ndarray]:
        if network.tokens:
            text = rng.integers(0, network.classes, (rows, network.shape[0] + 1))
            return text[:, :-1], text[:, 1:]
        x = rng.standard_normal((rows, *network.shape), "float32")
        return x, rng.integers(0, network.classes, rows)

    train = {f"{i:05d}": examples(int(rows)) for i, rows in enumerate(sizes)}
    return motet.data.from_arrays(train=train, classes=network.classes)
