"""A run whose clients are divided among processes: shards, their store and their commits.

How a process is reached is up to a `Crew`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from motet._core import tree
from motet._engine.backends.backend import Outcome, combine
from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.backends.ray_worker import Mark
from motet._engine.run_spec import Point, RunSpec
from motet.data._numbered import Numbered
from motet.errors import StateError
from motet.method import PerClient, RoundInfo

ATTEMPTS = 5  # at the commit of a round: so often may a process die between its work and this
AT_ONCE = 256  # clients in one call that carries states or inputs: bounds the memory it takes


class Crew(Protocol):
    """Processes that hold a shard each."""

    size: int

    def share(self, value: Any) -> Any:
        """Put a value where every process can read it; the result stands for it in calls."""
        ...

    def call(self, name: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method of several shards at once, and wait for all."""
        ...


class Shards:
    """The shards of one run, each in the state that the run has left it in.

    Args:
        crew: Who holds them.
        clients: All clients of the run, in the order of their ids.
        run: Names the run.
    """

    def __init__(self, crew: Crew, clients: Sequence[str], run: str) -> None:
        self.crew = crew
        self._position = _positions(clients)
        self._marks = [Mark(run, 1) for _ in range(crew.size)]  # `begin` commits once
        self.call("begin", dict.fromkeys(range(crew.size), ()))

    def of(self, clients: Iterable[str]) -> dict[int, list[str]]:
        """Group clients by shard, both in order. Clients are dealt out like cards, for good."""
        groups: dict[int, list[str]] = {}
        for client in sorted(clients):
            groups.setdefault(self._position(client) % self.crew.size, []).append(client)
        return dict(sorted(groups.items()))

    def call(self, name: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call several shards, telling each which state it should be in."""
        marked = {shard: (self._marks[shard], *values) for shard, values in calls.items()}
        return self.crew.call(name, marked)

    def train(self, work: Mapping[int, tuple[Any, ...]]) -> dict[int, Outcome]:
        """Do the work of a round. It counts once every shard has answered: then all commit."""
        outcomes = self.call("train", work)
        left = dict(work)
        for _ in range(ATTEMPTS):
            committed = self.call("commit", dict.fromkeys(left, ()))
            self._advance(shard for shard in left if committed[shard])
            left = {shard: work[shard] for shard in left if not committed[shard]}
            if not left:
                return outcomes
            self.call("train", left)  # its process is a new one: equal work leaves equal states
        raise StateError(
            f"shards {sorted(left)} lost their process {ATTEMPTS} times between the work of a "
            "round and its commit; see why in their logs."
        )

    def push(self, states: Mapping[str, Any]) -> None:
        """Hand clients what they keep from now on."""
        groups = self.of(states)
        rows = {shard: tree.stack([states[c] for c in cs]) for shard, cs in groups.items()}
        self.call("push", {shard: (groups[shard], rows[shard]) for shard in groups})
        self._advance(groups)

    def _advance(self, shards: Iterable[int]) -> None:
        for shard in shards:
            mark = self._marks[shard]
            self._marks[shard] = mark._replace(commits=mark.commits + 1)


class ShardedStore:
    """What clients keep, seen from the driver: read from the shards when it is asked for.

    Attributes:
        changed: Who was put or trained since the last commit: what a checkpoint has to write.
    """

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.changed: set[str] = set()
        self.damaged: Mapping[str, str] = {}  # a shard refuses what is damaged
        self._waiting: dict[str, Any] = {}  # put, and not sent yet

    def expect(self, template: Callable[[], Any]) -> None:
        """Nothing to learn: trees travel whole."""

    def __contains__(self, client: str) -> bool:
        return client in self._read([client])

    def __iter__(self) -> Iterator[str]:
        self.flush()
        everywhere = dict.fromkeys(range(self.shards.crew.size), ())
        kept = self.shards.call("keeping", everywhere)
        return iter(sorted(client for clients in kept.values() for client in clients))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, client: str) -> Any:
        """Read what a client keeps."""
        return self._read([client])[client]

    def put(self, client: str, state: Any) -> None:
        """Keep a copy; it is sent with others."""
        self._waiting[client] = tree.clone(state)
        self.changed.add(client)
        if len(self._waiting) >= AT_ONCE:
            self.flush()

    def rows(self, clients: Sequence[str], fresh: Callable[[str], Any]) -> Any:
        """Read what several clients keep into one stack."""
        found = self._read(clients)
        return tree.stack([found[c] if c in found else fresh(c) for c in clients])

    def put_rows(self, clients: Sequence[str], stacked: Any) -> None:
        """Keep the rows of a stack."""
        for position, client in enumerate(clients):
            self.put(client, tree.row(stacked, position))

    def flush(self) -> None:
        """Send what was put to its shards, where it is durable at once."""
        if self._waiting:
            self.shards.push(self._waiting)
            self._waiting = {}

    def commit(self) -> None:
        """Send what was put, and forget which states are new."""
        self.flush()
        self.changed.clear()

    def close(self) -> None:
        """Nothing to let go of: the shards are the backend's."""

    def _read(self, clients: Sequence[str]) -> dict[str, Any]:
        here = {client: self._waiting[client] for client in clients if client in self._waiting}
        groups = self.shards.of(client for client in clients if client not in here)
        found = self.shards.call("read", {shard: (cs,) for shard, cs in groups.items()})
        return here | {client: state for part in found.values() for client, state in part.items()}


@dataclass(frozen=True)
class Sharded:
    """Lets every shard run its part of the cohort, and merges their partial sums in order.

    Attributes:
        store: The setting's own.
        plan: How a shard stacks its clients; None if the method cannot be stacked.
    """

    setting: RunSpec
    store: ShardedStore
    plan: ExecutionPlan | None
    name: ClassVar[str] = "ray"
    failures: ClassVar[tuple[Exception, ...]] = ()  # a shard logs its own

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort; no shard moves on before all have done their part."""
        self.store.flush()
        groups = self.store.shards.of(info.cohort)
        downs = self._downs(down, groups)
        work = {shard: (downs[shard], info.number, groups[shard]) for shard in groups}
        outcomes = self.store.shards.train(work)
        self.store.changed.update(info.cohort)
        return combine(self.setting.method.reduce, [outcomes[shard] for shard in groups])

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Serve all shards' clients side by side, some of each at a time."""
        self.store.flush()
        for groups in _in_turns(self.store.shards.of(inputs)):
            downs = self._downs(down, groups)
            own = {s: {c: _alone(inputs[c]) for c in clients} for s, clients in groups.items()}
            calls = {shard: (downs[shard], info.number, own[shard], point) for shard in groups}
            for served in self.store.shards.call("predict", calls).values():
                yield from served

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Fetch one client's predictor."""
        self.store.flush()
        groups = self.store.shards.of([client])
        downs = self._downs(down, groups)
        calls = {shard: (downs[shard], info.number, client, point) for shard in groups}
        (personal,) = self.store.shards.call("predictor", calls).values()
        return personal

    def _downs(self, down: Any, groups: Mapping[int, Sequence[str]]) -> dict[int, Any]:
        """Share what goes down: once for all, or one bank per shard where clients get their own."""
        share = self.store.shards.crew.share
        if not isinstance(down, PerClient):
            return dict.fromkeys(groups, share(tree.tree_map(_alone, down)))
        banks = {s: PerClient({c: down[c] for c in clients}) for s, clients in groups.items()}
        return {shard: share(tree.tree_map(_alone, bank)) for shard, bank in banks.items()}


def _positions(clients: Sequence[str]) -> Callable[[str], int]:
    if isinstance(clients, Numbered):
        return clients.position
    return {client: position for position, client in enumerate(clients)}.__getitem__


def _in_turns(groups: Mapping[int, list[str]]) -> Iterator[dict[int, list[str]]]:
    for start in range(0, max(map(len, groups.values()), default=0), AT_ONCE):
        turn = {shard: clients[start : start + AT_ONCE] for shard, clients in groups.items()}
        yield {shard: clients for shard, clients in turn.items() if clients}


def _alone(leaf: Tensor) -> Tensor:
    """Copy a tensor that is a part of a larger one: else all of that would travel with it."""
    whole = leaf.untyped_storage().nbytes()
    return leaf if whole == leaf.numel() * leaf.element_size() else torch.clone(leaf)
