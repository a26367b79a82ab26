"""The loop everybody writes: one model, one optimizer, one client after another."""

import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import networks
import shared
import torch


class Trainer:
    """Trains clients of a workload, and adds their models up."""

    def __init__(self, workload: shared.Workload, threads: int) -> None:
        torch.set_num_threads(threads)
        self.workload, self.net = workload, networks.built(workload)
        self.x, self.y = torch.from_numpy(workload.x), torch.from_numpy(workload.y)
        # FedPer averages all but the last layer, which every client keeps.
        personal = workload.about["method"] == "fedper"
        names = list(self.net.state_dict())
        self.kept = set(names[-2:]) if personal else set()
        self.heads: dict[int, dict] = {}

    def train(self, model: dict, number: int, part: int, parts: int) -> tuple[dict, int]:
        """Train every `parts`-th client, so that a head stays in one process; return the weighted
        sum and the weight.
        """
        total, weight = {k: torch.zeros_like(v) for k, v in model.items()}, 0
        for place, client in enumerate(self.workload.cohorts[number].tolist()):
            if client % parts != part:
                continue
            trained, rows = self.train_one({**model, **self.heads.get(client, {})}, number, place)
            for name in model:
                total[name] += trained[name] * rows
            if self.kept:
                self.heads[client] = {k: trained[k].clone() for k in self.kept}
            weight += rows
        return total, weight

    def train_one(self, model: dict, number: int, place: int) -> tuple[dict, int]:
        """Train the client in this place of a round's cohort; say how many examples it has."""
        self.net.load_state_dict(model)
        about = self.workload.about
        optimizer = torch.optim.SGD(self.net.parameters(), lr=about["rate"])
        rows = torch.from_numpy(self.workload.order(number, place))
        for batch in rows.split(about["batch"]):
            optimizer.zero_grad()
            networks.mean_loss(self.net(self.x[batch]), self.y[batch]).backward()
            optimizer.step()
        return self.net.state_dict(), len(rows)


def serve(folder: str, part: int, parts: int, pipe) -> None:
    trainer = Trainer(shared.Workload.read(Path(folder)), 1)
    while True:
        model, number, counts = pipe.recv()
        pipe.send(trainer.train(model, number, part, parts))
        if not counts:
            trainer.heads.clear()


def main() -> None:
    memory = shared.Memory()
    workload, out, options = shared.arguments()
    processes, threads = int(options.get("processes", 1)), int(options.get("threads", 1))
    trainer = Trainer(workload, threads)
    model = {k: v.clone() for k, v in trainer.net.state_dict().items()}
    pipes = []
    if processes > 1:
        context = multiprocessing.get_context("spawn")
        for part in range(processes):
            ours, theirs = context.Pipe()
            where = str(workload.folder)
            context.Process(
                target=serve, args=(where, part, processes, theirs), daemon=True
            ).start()
            pipes.append(ours)
        for pipe in pipes:  # a first round for nothing: start-up is not what is compared
            pipe.send((model, 0, False))
        for pipe in pipes:
            pipe.recv()
    seconds = []
    for number in range(workload.about["rounds"]):
        started = time.perf_counter()
        if pipes:
            for pipe in pipes:
                pipe.send((model, number, True))
            parts = [pipe.recv() for pipe in pipes]
        else:
            parts = [trainer.train(model, number, 0, 1)]
        weight = sum(part[1] for part in parts)
        model = {k: sum(part[0][k] for part in parts) / weight for k in model}
        seconds.append(time.perf_counter() - started)
    shared.report(out, workload, seconds, {k: v.numpy() for k, v in model.items()}, memory)


if __name__ == "__main__":
    main()
