"""Helpers of checks: whole runs of a method, or the local work of one client."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from motet._engine.federation import Run, start
from motet._engine.run_spec import down_for
from motet._engine.running import run
from motet.errors import DivergenceWarning
from motet.method import AnyMethod, ClientData, RoundInfo
from motet.testing._worlds import World


class Work(NamedTuple):
    """The arguments of one `client_update`."""

    down: Any
    client: Any
    data: ClientData


def trained(method: AnyMethod, world: World, *, rounds: int = 2, **settings: Any) -> Run:
    """Run some rounds; two, so that the second starts from states that the first has left.

    Without a trial and without warnings: each check finds its own fault.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return run(method, world.task, world.data, rounds=rounds, trial=False, **settings)


def started(method: AnyMethod, world: World, *, rounds: int = 2, **settings: Any) -> Run:
    """Make a run that is ready for its first round."""
    return start(method, world.task, world.data, rounds=rounds, trial=False, **settings)


def next_info(federated: Run, *, serving: bool = False) -> RoundInfo:
    """Describe the next round, with all clients in it."""
    everybody = tuple(sorted(federated.clients))
    return federated.setting.info(federated.rounds_done, everybody, serving=serving)


def next_work(federated: Run) -> Iterator[tuple[str, Work]]:
    """Yield what each client would be handed in the coming round."""
    setting, info = federated.setting, next_info(federated)
    down = setting.method.broadcast(federated.server, info)
    for client in info.cohort:
        data = setting.data(client, setting.method.plans(), info.number)
        yield client, Work(down_for(down, client), setting.client(client), data)


def work_on(federated: Run, work: Work) -> tuple[Any, Any]:
    """Do one client's local work."""
    setting = federated.setting
    up, kept = setting.method.client_update(work.down, work.client, work.data, setting.task)
    return up, kept


def states(federated: Run) -> dict[str, Any]:
    """Gather all that a run has learnt: the server's state and every client's own."""
    return {"server": federated.server, "clients": dict(federated.clients)}


def predictions(federated: Run) -> dict[str, Tensor]:
    """Let every client predict on the same few inputs."""
    inputs, info = some_inputs(federated), next_info(federated, serving=True)
    down = federated.setting.method.broadcast(federated.server, info)
    everybody = dict.fromkeys(info.cohort, inputs)
    return dict(federated.backend.predict(down, info, everybody, "after_adapt"))


def some_inputs(federated: Run) -> Tensor:
    """Take a few inputs that fit the network: training examples of the largest client."""
    data = federated.setting.federation
    largest = max(sorted(data.clients), key=lambda client: data.size(client, "train"))
    return data.examples(largest, "train").x[:6]
