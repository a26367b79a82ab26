"""What the tests of the Ray back end share: runs, and a crew without Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from motet._engine.backends.ray_store import Sharded, ShardedStore, Shards
from motet._engine.backends.ray_worker import Blueprint, Shard
from motet._engine.federation import Run, start
from motet._engine.stores.memory import MemoryStore
from motet.method import AnyMethod
from motet.testing import World, ragged
from motet.testing._comparing import require_same

SEED, ROUNDS = 5, 3
WITH_RAY = [  # which leaves files and processes of its own to the garbage collector
    pytest.mark.distributed,
    pytest.mark.filterwarnings("ignore:unclosed file <_io.* name='/dev/null':ResourceWarning"),
    pytest.mark.filterwarnings(r"ignore:subprocess \d+ is still running:ResourceWarning"),
]


def started(
    method: AnyMethod, world: World | None = None, *, rounds: int = ROUNDS, **settings: Any
) -> Run:
    """A run that is ready for its first round."""
    world = world or ragged()
    return start(method, world.task, world.data, rounds=rounds, seed=SEED, **settings)


def finished(
    method: AnyMethod, world: World | None = None, *, rounds: int = ROUNDS, **settings: Any
) -> Run:
    """A run at its end."""
    run = started(method, world, rounds=rounds, **settings)
    for _ in range(rounds):
        run.advance()
    return run


class CrewOfOneProcess:
    """Shards that are called at once, and whose "process" dies before a call if the plan says so.

    Attributes:
        deaths: (call, shard) pairs, each used up by a death.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        folder: Path,
        *,
        size: int = 2,
        deaths: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.size = size
        self.blueprint, self.folder, self.deaths = blueprint, folder, list(deaths)
        self.shards = [self.new(number) for number in range(size)]
        self.calls = []

    def new(self, number: int) -> Shard:
        return Shard(self.blueprint, str(self.folder / f"shard-{number}"))

    def share(self, value: Any) -> Any:
        return value

    def call(self, name: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        self.calls.append(name)
        return {number: self._one(name, number, values) for number, values in calls.items()}

    def _one(self, name: str, number: int, values: tuple[Any, ...]) -> Any:
        if (name, number) in self.deaths:
            self.deaths.remove((name, number))
            self.shards[number].store.close()  # a dead process commits nothing
            self.shards[number] = self.new(number)
        return getattr(self.shards[number], name)(*values)


def sharded(
    method: AnyMethod,
    folder: Path,
    *,
    run: str = "a run",
    size: int = 2,
    deaths: Iterable[tuple[str, int]] = (),
    **settings: Any,
) -> tuple[Run, CrewOfOneProcess]:
    """A run whose shards are all in this process."""
    begun = started(method, **settings)
    setting, plan = begun.setting, getattr(begun.backend, "plan", None)
    blank = replace(setting, store=MemoryStore(), init_clients={})
    crew = CrewOfOneProcess(Blueprint(blank, plan), folder, size=size, deaths=deaths)
    store = ShardedStore(Shards(crew, setting.everybody, run))
    setting = replace(setting, store=store)
    return replace(begun, setting=setting, backend=Sharded(setting, store, plan)), crew


def require_same_runs(a: Run, b: Run) -> None:
    """Two runs have the same server and the same private states, to the last bit."""
    require_same(a.server, b.server, "the server")
    for client in a.clients:
        require_same(a.clients[client], b.clients[client], f"what {client} keeps")
