"""Shards on Ray actors, and the connection to Ray.

An actor holds one shard. Ray starts a new process for one that died and repeats the call it was in;
the shard's own file says from where.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.backends.ray_store import Sharded, ShardedStore, Shards
from motet._engine.backends.ray_worker import Blueprint, Shard
from motet._engine.run_spec import RunSpec
from motet._engine.stores.memory import MemoryStore
from motet.data._chain import Block, Chain
from motet.data._federation import Federation
from motet.errors import RequestError, StateError

LOCAL = "local"
RETRIES = 3  # of one call, each in a new process: what kills four in a row kills the fifth
CONNECT_S = 10.0  # until a machine that does not answer counts as unreachable
# Of a core, per actor: so little that no run waits for ever for what another one holds, and enough
# for Ray to heed where an actor shall be.
CLAIM = 0.01
Session = tuple[str, str]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class _Actor(Shard):
    """A shard that reads its blueprint when its process starts, also when it starts again."""

    def __init__(self, blueprint: list[Any], folder: str, modules: list[str]) -> None:
        # Methods and networks of the caller's own are found where the caller found them.
        sys.path.extend(place for place in modules if place not in sys.path)
        torch.set_num_threads(1)  # a sum split over threads would be rounded differently
        super().__init__(ray.get(blueprint[0]), folder)


class RayCrew:
    """Actors with a shard each. They end, and what was started for them, when this is let go.

    Args:
        blueprint: What they run.
        address: Where Ray is; "local" starts it here. A connection that this process already has is
            used instead.
        actors: How many.
        folder: Where the shards' files are, on the machine of each actor; None: in a temporary
            folder here.
    """

    def __init__(
        self, blueprint: Blueprint, *, address: str, actors: int, folder: Path | None
    ) -> None:
        self.size = actors
        self._actors: list[Any] = []
        session = _connection.join(address)
        temporary: list[Path] = []
        weakref.finalize(self, _end, session, self._actors, temporary)
        if folder is None:
            folder = _temporary_folder()
            temporary.append(folder)
        self._blueprint = ray.put(blueprint)  # held, because a new process reads it again
        actor = ray.remote(num_cpus=CLAIM, max_restarts=-1, max_task_retries=RETRIES)(_Actor)
        for number, place in enumerate(_places(actors)):
            where = str(folder / f"shard-{number}")
            placed = actor.options(scheduling_strategy=place)
            self._actors.append(placed.remote([self._blueprint], where, sys.path))

    def share(self, value: Any) -> Any:
        """Put a value into Ray's store: once per machine, however many actors read it."""
        return ray.put(value)

    def call(self, name: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call several shards, and wait for all."""
        asked = [getattr(self._actors[n], name).remote(*given) for n, given in calls.items()]
        return dict(zip(calls, _answers(asked), strict=True))


class _Connection:
    """The connection of this process to Ray, left when the last crew has gone."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.crews = 0
        self.is_ours = False

    def join(self, address: str) -> Session:
        """Connect unless connected, and return the session."""
        has_begun = ray.is_initialized()
        if not has_begun:
            _connect(address)
        session = _session()
        if session != self.session:  # the one before was shut down, by us or by others
            self.session, self.is_ours, self.crews = session, not has_begun, 0
        self.crews += 1
        return session

    def leave(self) -> None:
        self.crews -= 1
        if self.is_ours and self.crews <= 0:
            self.is_ours = False
            ray.shutdown()


_connection = _Connection()


def ray_backend(
    setting: RunSpec,
    plan: ExecutionPlan | None,
    *,
    address: str = LOCAL,
    actors: int = 2,
    state_dir: str | Path | None = None,
) -> Sharded:
    """Divide a run among Ray actors.

    Args:
        setting: What is run; its states will live in the shards.
        plan: How an actor stacks its clients; None: one after another.
        address: "local", or of a cluster: "auto", "host:port", "ray://host:port".
        actors: How many; they change a result only as the size of chunks does.
        state_dir: Where the shards keep what clients keep, on the machine of each actor; None: a
            temporary folder, where there is one machine only.
    """
    if actors < 1:
        raise RequestError(f"actors must be 1 or more; got {actors}.", option="actors")
    blank = replace(
        setting, federation=plain(setting.federation), store=MemoryStore(), init_clients={}
    )
    folder = None if state_dir is None else Path(state_dir).absolute()
    crew = RayCrew(Blueprint(blank, plan), address=address, actors=actors, folder=folder)
    store = ShardedStore(Shards(crew, setting.everybody, uuid4().hex))
    return Sharded(replace(setting, store=store), store, plan)


def _connect(address: str) -> None:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {}
    try:
        _check_listening(address)
        ray.init(address, log_to_driver=False, logging_level=logging.WARNING, **options)
    except (OSError, ValueError, RuntimeError) as reason:
        raise RequestError(
            f'Ray cannot be reached at "{address}": {reason}. Start it there with `ray start`, or '
            f'use address="{LOCAL}".'
        ) from reason


def _check_listening(address: str) -> None:
    """Fail at once if nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


def _places(actors: int) -> list[NodeAffinitySchedulingStrategy]:
    """Deal actors out to machines; a new process comes back to its files while they are there."""
    nodes = sorted(node["NodeID"] for node in _machines())
    chosen = (nodes[number % len(nodes)] for number in range(actors))
    return [NodeAffinitySchedulingStrategy(node, soft=True) for node in chosen]


def _machines() -> list[dict[str, Any]]:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]


def _temporary_folder() -> Path:
    machines = len(_machines())
    if machines > 1:
        raise RequestError(
            f"Ray has {machines} machines here, so state_dir= must say where on each of them "
            'clients\' states are kept, such as "/var/lib/motet".'
        )
    return Path(tempfile.mkdtemp(prefix="motet-shards-"))


def _answers(asked: Sequence[Any]) -> list[Any]:
    """Wait; what a shard raises is raised here as it was, with the traceback from there."""
    try:
        answers: list[Any] = ray.get(list(asked))
    except RayTaskError as error:
        raise error.cause from error
    except RayActorError as error:
        raise StateError(_why_it_died(error)) from error
    return answers


def _why_it_died(error: RayActorError) -> str:
    text = str(error).strip()
    if "creation task" in text:
        return (
            f"a process of the Ray back end could not start: {text.splitlines()[-1].strip()}. "
            "Every machine needs the same version of motet, and the modules of your own."
        )
    return (
        f"a process of the Ray back end died {RETRIES + 1} times in one call; why is in its log, "
        "under /tmp/ray on its machine. Then continue from the last checkpoint."
    )


def _session() -> Session:
    """Tell the Ray that this process is connected to from every other: neither id does alone."""
    here = ray.get_runtime_context()
    return here.get_job_id(), here.get_node_id()


def _end(session: Session, actors: Sequence[Any], temporary: Sequence[Path]) -> None:
    # Ray may have gone first, at the end of the process or by `ray.shutdown()`, with its actors.
    if ray.is_initialized() and _session() == session:
        for actor in actors:
            ray.kill(actor)
        _connection.leave()
    for folder in temporary:
        shutil.rmtree(folder, ignore_errors=True)


def plain(federation: Federation) -> Federation:
    """Let go of maps of files: plain arrays are what Ray shares without copying."""
    return replace(federation, x=_plain_chain(federation.x), y=_plain_chain(federation.y))


def _plain_chain(chain: Chain) -> Chain:
    def plain(block: Block) -> Block:
        return block.view(np.ndarray) if isinstance(block, np.memmap) else block

    return Chain(tuple(map(plain, chain.blocks)), chain.starts)
