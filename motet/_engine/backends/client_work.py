"""The work of clients: training, keeping private states, predicting.

All backends and the sites of a deployment use these functions. They differ in where private states
are kept and in how clients train: one after another (`train_in_turn`) or as a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from motet._core import tree
from motet._core.half_precision import packed
from motet._engine.backends.backend import Outcome, naming
from motet._engine.finite import finite_rows
from motet._engine.run_spec import Point, RunSpec, down_for
from motet._engine.upload_screening import receive
from motet._training.devices import CPU, run_on
from motet.method import ClientData, PerClient, RoundInfo

# From the clients' data to stacks of their uploads and of their new private states.
Training = Callable[[Sequence[ClientData]], tuple[Any, Any]]


class Work(NamedTuple):
    """The local work of some clients in one round."""

    uploads: Any  # stacked, a row per client
    gradients: float  # single-example gradient evaluations
    diverged: dict[str, str]  # clients that keep their old private state, and why


def train_clients(
    setting: RunSpec,
    down: Any,
    info: RoundInfo,
    clients: Sequence[str],
    training: Training | None = None,
) -> Work:
    """Do the local work of a round: draw data, train, and keep private states that are finite.

    Args:
        setting: The run; its store holds the private states.
        down: The broadcast, for all clients or one each (`PerClient`).
        info: The round.
        clients: Clients to train.
        training: How they train; by default one after another.
    """
    method, train = setting.method, training or partial(train_in_turn, setting, down, info, clients)
    data = [setting.work(client, info.number) for client in clients]
    uploads, states = train(data)
    kept, diverged = finite_rows(clients, states, setting.client_rows)
    setting.store.put_rows(clients, kept)
    gradients = sum(
        method.gradient_evaluations(down_for(down, client), own)
        for client, own in zip(clients, data, strict=True)
    )
    return Work(uploads, gradients, diverged)


def train_in_turn(
    setting: RunSpec,
    down: Any,
    info: RoundInfo,
    clients: Sequence[str],
    data: Sequence[ClientData],
    device: str = CPU,
) -> tuple[Any, Any]:
    """Train one client after another; return stacks of uploads and of new private states."""
    pairs = [
        train_alone(setting, down, info, client, own, device)
        for client, own in zip(clients, data, strict=True)
    ]
    ups, states = zip(*pairs, strict=True)
    return stack_rows(ups), stack_rows(states)


def train_alone(
    setting: RunSpec, down: Any, info: RoundInfo, client: str, data: ClientData, device: str = CPU
) -> tuple[Any, Any]:
    """Train one client; return its upload and its new private state, and keep nothing."""

    def work(down: Any, kept: Any, data: ClientData) -> tuple[Any, Any]:
        return setting.method.client_update(down, kept, data, setting.task)

    with naming([client], info):
        done: tuple[Any, Any] = run_on(
            device, work, down_for(down, client), setting.client(client), data
        )
    return done


def deliver(
    setting: RunSpec, down: Any, info: RoundInfo, clients: Sequence[str], work: Work
) -> Outcome:
    """Screen and combine the uploads of clients that share this process with the server."""
    received = receive(setting, info, down, clients, work.uploads)
    return Outcome(
        partial=received.partial,
        bytes_down=_bytes_for(down, clients),
        bytes_up=tree.count_bytes(packed(work.uploads, setting.uploads)),
        gradients=work.gradients,
        replied=received.replied,
        lost=received.lost,
        rejected=received.rejected,
        diverged=work.diverged,
        large=received.large,
    )


def predictor_alone(
    setting: RunSpec, down: Any, info: RoundInfo, client: str, point: Point, device: str = CPU
) -> Any:
    """Make one client's predictor."""
    data = setting.data(client, setting.serving_plans(point), info.number)
    new = client not in setting.store

    def work(down: Any, kept: Any, data: ClientData) -> Any:
        return setting.predictor(down, kept, data, point=point, new=new)

    with naming([client], info):
        return run_on(device, work, down_for(down, client), setting.client(client), data)


def predict_alone(
    setting: RunSpec,
    down: Any,
    info: RoundInfo,
    client: str,
    x: Tensor,
    point: Point,
    device: str = CPU,
) -> Tensor:
    """Return the predictions of one client's predictor."""
    personal = predictor_alone(setting, down, info, client, point, device)
    with naming([client], info):
        answer: Tensor = run_on(device, setting.answer, personal, x)
    return answer


def stack_rows(rows: Sequence[Any]) -> Any:
    """Stack equal trees; a single one is not copied."""
    if len(rows) == 1:
        return tree.tree_map(lambda leaf: leaf[None], rows[0])
    return tree.stack(rows)


def _bytes_for(down: Any, clients: Sequence[str]) -> int:
    if isinstance(down, PerClient):
        return sum(tree.count_bytes(down[client]) for client in clients)
    return len(clients) * tree.count_bytes(down)
