"""Networks, clients and audits for the methods that route."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

import motet
from motet import Sgd, Task
from motet._core.tree import State
from motet._engine.federation import Run
from motet._training.batching import Batches
from motet.data import Federation
from motet.method import AnyMethod

LR = Sgd(lr=0.1, momentum=0.9)
STILL = Sgd(lr=0.0)
LSTM_WORLD = {"shape": (5,), "tokens": 7, "per_step": True}


class Net(nn.Module):
    """Two blocks, with dropout between them."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.body(x).tanh()))


class Normed(nn.Module):
    """A block with batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())


NET = Task(Net)


def world(
    sizes: Sequence[int] = (23, 14, 9, 1),
    seed: int = 0,
    shape: tuple[int, ...] = (4,),
    tokens: int | None = None,
    per_step: bool = False,
) -> Federation:
    """Clients of unequal size, each with its own idea of the classes."""
    rng = np.random.default_rng(seed)

    def draw(size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if tokens:
            x = rng.integers(0, tokens, (size, *shape))
            return x, rng.integers(0, tokens, (size, *shape) if per_step else size)
        x = rng.normal(size=(size, *shape)).astype(np.float32)
        return x, (x.reshape(size, -1)[:, :4] @ rng.normal(size=(4, 3))).argmax(1)

    train, val, test = ({f"c{i}": draw(max(n, k)) for i, n in enumerate(sizes)} for k in (0, 5, 6))
    return motet.data.from_arrays(train, val, test, classes=tokens or 3)


def finish(
    method: AnyMethod,
    task: Task = NET,
    data: Federation | None = None,
    backend: str = "serial",
    rounds: int = 2,
    **settings: Any,
) -> Run:
    data = data if data is not None else world()
    return motet.run(method, task, data, rounds=rounds, backend=backend, **settings)


def work(run: Run, client: str = "c0") -> tuple[Any, State, Mapping[str, Batches], Task]:
    """Return the arguments of a client's next local work."""
    method, setting = run.setting.method, run.setting
    info = setting.info(run.rounds_done, tuple(run.clients))
    data = setting.data(client, method.plans(), info.number)
    return method.broadcast(run.server, info), {}, data, setting.task


def parts(personal: State) -> list[State]:
    """Split a predictor into w_g, w_l and the policy."""
    return [
        {k.removeprefix(f"{part}."): v for k, v in personal.items() if k.startswith(f"{part}.")}
        for part in ("shared", "local", "policy")
    ]


def digest(state: State) -> dict[str, str]:
    return {k: hashlib.sha256(v.detach().numpy().tobytes()).hexdigest() for k, v in state.items()}


def changed(before: State, after: State) -> set[str]:
    mine, theirs = digest(before), digest(after)
    assert mine.keys() == theirs.keys()
    return {name for name in mine if mine[name] != theirs[name]}
