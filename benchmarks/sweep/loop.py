"""The loop everybody writes: two processes, each with a network, an optimizer and a `for`."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from workloads import NETWORKS, Workload

PROCESSES = 2
State = dict[str, torch.Tensor]


class Trainer:
    """Trains every second client, so that what it keeps stays in its process."""

    def __init__(self, workload: Workload, folder: Path, part: int) -> None:
        torch.set_num_threads(1)
        self.workload, self.part = workload, part
        self.net = NETWORKS[workload.network].build().train()
        data, orders = np.load(folder / "data.npz"), np.load(folder / "orders.npz")
        cuts = torch.from_numpy(orders["rows"]).split(orders["lengths"].tolist())
        self.orders = dict(zip(orders["names"].tolist(), cuts, strict=True))
        self.x, self.y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
        self.starts, self.head = data["starts"], set(data["head"].tolist())
        self.cohorts = orders["cohorts"]
        first = {k: torch.from_numpy(data[k]) for k in data if k.startswith("initial/")}
        self.initial = {k.removeprefix("initial/"): v for k, v in first.items()}
        self.kept: dict[int, State] = {}

    def train(self, model: State, number: int) -> tuple[State, float, int]:
        """Train this process's clients; return the weighted sum, the weight, and the samples."""
        total = {k: torch.zeros_like(v) for k, v in model.items()}
        weight, samples = 0.0, 0
        for place, client in enumerate(self.cohorts[number].tolist()):
            if client % PROCESSES != self.part:
                continue
            trained, seen = self.one(model, client, number, place)
            rows = int(self.starts[client + 1] - self.starts[client])
            for name in model:
                total[name] += trained[name] * rows
            weight, samples = weight + rows, samples + seen
        return total, weight, samples

    def one(self, model: State, client: int, number: int, place: int) -> tuple[State, int]:
        method, net = self.workload.method, self.net
        own = self.kept.get(client, {})
        first = int(self.starts[client])

        def walk(phase: str, **how: Any) -> int:
            rows = torch.randperm(int(self.starts[client + 1]) - first)  # as a loop would draw them
            rows = self.orders[f"{phase}/{number}/{place}"] + first
            self.steps(rows, **how)
            return len(rows)

        if method == "ditto":
            net.load_state_dict(model)
            seen = walk("train")
            up = {k: v.clone() for k, v in net.state_dict().items()}
            net.load_state_dict(own or self.initial)
            seen += walk("personal", pull=1.0, anchor=model)
            self.kept[client] = {k: v.clone() for k, v in net.state_dict().items()}
            return up, seen
        net.load_state_dict((own or self.initial) if method == "local" else {**model, **own})
        if method in ("fedrep", "fedalt"):
            head, body = ("head", "body") if method == "fedrep" else ("personal", "shared")
            seen = walk(head, frozen=lambda name: name not in self.head)
            seen += walk(body, frozen=lambda name: name in self.head)
        elif method == "fedprox":
            seen = walk("train", pull=0.1, anchor=model)
        else:
            seen = walk("train")
        keeps = {"fedavg": set(), "fedprox": set(), "local": set(model)}.get(method, self.head)
        if keeps:
            self.kept[client] = {k: v.clone() for k, v in net.state_dict().items() if k in keeps}
        return net.state_dict(), seen

    def steps(self, rows, *, frozen=None, pull: float = 0.0, anchor: State | None = None) -> None:
        net, workload = self.net, self.workload
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(frozen is None or not frozen(name))
            parameter.grad = None
        trained = [p for p in net.parameters() if p.requires_grad]
        anchors = [anchor[n] for n, p in net.named_parameters() if p.requires_grad] if pull else []
        optimizer = OPTIMIZERS[workload.optimizer](trained)
        for batch in rows.split(workload.batch):
            optimizer.zero_grad()
            outputs = net(self.x[batch])
            loss = nn.functional.cross_entropy(outputs.flatten(0, -2), self.y[batch].flatten())
            loss.backward()
            if pull:
                for p, a in zip(trained, anchors, strict=True):
                    p.grad.add_(p.detach() - a, alpha=pull)
            optimizer.step()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "decay": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=1e-3),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001),
}


def serve(workload: Workload, folder: str, part: int, pipe: Any) -> None:
    trainer = Trainer(workload, Path(folder), part)
    while True:
        asked = pipe.recv()
        if asked is None:
            return
        model, number, counts = asked
        began = time.process_time()
        pipe.send((*trainer.train(model, number), time.process_time() - began))
        if not counts:
            trainer.kept.clear()


class Loop:
    """Two processes, a round at a time."""

    def __init__(self, workload: Workload, folder: Path, initial: State) -> None:
        self.model, self.number, self.samples, self.cpu = initial, 0, 0, [0.0]
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for part in range(PROCESSES):
            ours, theirs = context.Pipe()
            arguments = (workload, str(folder), part, theirs)
            context.Process(target=serve, args=arguments, daemon=True).start()
            self.pipes.append(ours)
        self._round(0, counts=False)  # for nothing: start-up is not what is compared

    def advance(self) -> float:
        """Run a round; return its seconds."""
        started = time.perf_counter()
        parts = self._round(self.number, counts=True)
        weight = sum(part[1] for part in parts)
        self.model = {k: sum(part[0][k] for part in parts) / weight for k in self.model}
        self.samples += sum(part[2] for part in parts)
        self.number += 1
        self.cpu.append(sum(part[3] for part in parts))
        return time.perf_counter() - started

    def _round(self, number: int, *, counts: bool) -> list[tuple[State, float, int, float]]:
        for pipe in self.pipes:
            pipe.send((self.model, number, counts))
        return [pipe.recv() for pipe in self.pipes]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
