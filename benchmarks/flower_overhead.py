"""What our messages cost beside Flower's own FedAvg: a model of 5 MB, no local work, one process.

    OMP_NUM_THREADS=1 python benchmarks/flower_overhead.py

Both sides turn every message into bytes and back. Ours also checks every message, keeps private
state on disk, writes a checkpoint, and asks for scores once at the end. Between machines Flower
adds five seconds or more to every round of both.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from torch import nn

from motet import FedAvg, Task
from motet._core.keys import Key
from motet.config import RunChoice
from motet.data import Federation, from_arrays
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.flower_apps import client_app, server_app
from motet.deploy._runtime.sitedata import Everywhere
from motet.testing._loopback import LoopbackGrid

CLIENTS, EXAMPLES, FEATURES, WIDTH, ROUNDS = 4, 320, 784, 1640, 6


@dataclass(frozen=True, eq=False)
class Given:
    """Data that are at hand."""

    data: Federation

    def federation(self) -> Federation:
        return self.data


class TimedGrid(LoopbackGrid):
    """Also has the call that Flower's own strategies use, and notes the traffic of training."""

    def _carried(self, message: Message) -> Message:
        arrived = super()._carried(message)
        if message.metadata.message_type != "train":
            self.traffic.pop()
        return arrived

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        ids = list(self.push_messages(messages))
        return self.pull_messages(ids)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def make_data() -> Federation:
    def draw(client: int) -> tuple[Any, Any]:
        rng = Key(0).fold("benchmark", client).numpy()
        x = rng.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
        return x, rng.integers(0, 10, EXAMPLES)

    train = {f"client-{number}": draw(number) for number in range(CLIENTS)}
    return from_arrays(train, classes=10)


def plain_apps(data: Federation, network: nn.Module) -> tuple[ServerApp, ClientApp]:
    """Flower as its tutorial writes it."""
    server, client = ServerApp(), ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        model = build()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
        _, y = data.examples(str(context.node_config["client"]), "train")
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(RecordDict(content), reply_to=message)

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        strategy = FlowerFedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        strategy.start(grid, ArrayRecord(network.state_dict()), num_rounds=ROUNDS)

    return server, client


def our_apps(data: Federation, folder: str) -> tuple[ServerApp, ClientApp]:
    agreement = Agreement(
        experiment="overhead",
        method=FedAvg(epochs=0),
        task=lambda _: Task(build),
        sites=Everywhere(Given(data)),
        run=RunChoice(rounds=ROUNDS, evaluate_every=10**6, points=("after_adapt",)),
    )
    defaults = {"out": f"{folder}/out", "state-dir": f"{folder}/state", "deadline-s": 60.0}
    return server_app(defaults, agreement), client_app(defaults, agreement)


def seconds_and_bytes(
    server: ServerApp, client: ClientApp, data: Federation
) -> tuple[float, float]:
    grid = TimedGrid(client, {name: {"client": name} for name in data.clients})
    started = time.process_time()
    grid.drive(server)
    spent = time.process_time() - started
    return spent / ROUNDS, sum(map(len, grid.traffic)) / ROUNDS / CLIENTS


def main() -> None:
    data, network = make_data(), build()
    size = sum(p.numel() * 4 for p in network.parameters())
    print(f"model {size / 2**20:.1f} MB, {CLIENTS} clients, {ROUNDS} rounds")
    plain, ours = [], []
    for _ in range(4):
        plain.append(seconds_and_bytes(*plain_apps(data, network), data))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(seconds_and_bytes(*our_apps(data, folder), data))
    for name, results in (("Flower's FedAvg", plain[1:]), ("Motet on Flower", ours[1:])):  # warm
        spent, sent = median(s for s, _ in results), results[0][1]
        print(
            f"{name:16} {spent:.3f} s of CPU per round, {sent / 2**20:.3f} MB per client and round"
        )


if __name__ == "__main__":
    main()
