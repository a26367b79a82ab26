"""Templates of a method's messages, from a rehearsal of a round with one blank example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from motet._core import tree
from motet._engine.run_spec import RunSpec, down_for
from motet._training.batching import Plan
from motet.deploy._runtime.data_schema import DataSchema, blank, empty_federation
from motet.method import ClientData, RoundInfo


@dataclass(frozen=True)
class Rehearsal:
    """What will be sent, by names, shapes and types; the values mean nothing.

    Attributes:
        setting: Of an empty federation: who takes part, and no data.
    """

    setting: RunSpec

    @classmethod
    def at(cls, setting: RunSpec, client: str, clients: int) -> Rehearsal:
        """Rehearse at one client, which knows how many others there are, and nothing else."""
        others = [f"(another client {number})" for number in range(1, clients)]
        names = empty_federation(DataSchema.of(setting.federation), [client, *others])
        return cls(replace(setting, federation=names))

    def downs(self, client: str, *, serving: bool) -> Iterator[Any]:
        """Yield what the client may be sent: before anybody has trained, and afterwards."""
        server = first_server(self.setting)
        yield down_for(self._broadcast(server, serving=serving), client)
        trained = self._next(server)
        yield down_for(self._broadcast(trained, serving=serving), client)

    def up(self) -> Any:
        """Make what a client sends."""
        return self._up(self._broadcast(first_server(self.setting), serving=False))

    def _info(self, *, serving: bool) -> RoundInfo:
        return self.setting.info(0, tuple(sorted(self.setting.federation.clients)), serving=serving)

    def _broadcast(self, server: Any, *, serving: bool) -> Any:
        return self.setting.method.broadcast(server, self._info(serving=serving))

    def _up(self, down: Any) -> Any:
        setting, client = self.setting, self.setting.federation.clients[0]
        data = self._data(client, setting.method.plans())
        fresh = setting.fresh_client(client)
        up, _ = setting.method.client_update(down_for(down, client), fresh, data, setting.task)
        return up

    def _data(self, client: str, plans: Mapping[str, Plan]) -> ClientData:
        example = blank(self.setting.federation)
        one_step = {name: replace(plan, epochs=None, steps=1) for name, plan in plans.items()}
        return self.setting.data_from({"train": example, "val": example}, client, one_step, 0)

    def _next(self, server: Any) -> Any:
        """Let everybody send the same, and let the server combine it."""
        method, info = self.setting.method, self._info(serving=False)
        down = self._broadcast(server, serving=False)
        uploads = tree.stack([self._up(down)] * len(info.cohort))
        partial = method.reduce.lift(info.cohort, uploads, torch.ones(len(info.cohort)))
        combined = method.reduce.finish(partial, down)
        return method.server_update(server, combined, info, self.setting.task)


def first_server(setting: RunSpec) -> Any:
    """Make the server's state before the first round."""
    clients, key = sorted(setting.federation.clients), setting.key.fold("server")
    return setting.method.init_server(setting.task, setting.initial, clients, key)
