"""Flower's simulation engine: FedAvg over the Message API, on Ray."""

import os
import sys
import time
from pathlib import Path

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")
os.environ.update(RAY_USAGE_STATS_ENABLED="0", OMP_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).parents[1]))
import shared
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

FOLDER, OUT = sys.argv[1], sys.argv[2]
HERE = str(Path(__file__).parents[1])
client, server = ClientApp(), ServerApp()
RESULT: dict = {}


def _trainer(cache: dict = {}):  # noqa: B006 - one per worker process, on purpose
    if not cache:
        sys.path[:0] = [HERE, str(Path(HERE) / "contestants")]
        import loop

        cache["trainer"] = loop.Trainer(shared.Workload.read(Path(FOLDER)), 1)
    return cache["trainer"]


@client.train()
def train(message, _context):
    config = message.content["config"]
    trainer = _trainer()
    model = message.content["model"].to_torch_state_dict()
    trained, rows = trainer.train_one(model, int(config["round"]), int(config["place"]))
    content = {"model": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": rows})}
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid, _context):
    import networks
    import torch

    workload = shared.Workload.read(Path(FOLDER))
    model = {k: v.clone() for k, v in networks.built(workload).state_dict().items()}
    while len(list(grid.get_node_ids())) < workload.about["cohort"]:
        time.sleep(0.1)
    nodes = sorted(grid.get_node_ids())
    seconds = []
    for number in range(workload.about["rounds"]):
        started = time.perf_counter()
        arrays = ArrayRecord(model)
        messages = []
        for place in range(workload.about["cohort"]):
            config = ConfigRecord({"round": number, "place": place})
            content = RecordDict({"model": arrays, "config": config})
            messages.append(Message(content, nodes[place], "train", group_id=str(number)))
        total, weight = {k: torch.zeros_like(v) for k, v in model.items()}, 0
        for reply in grid.send_and_receive(messages):
            if reply.has_error():
                raise RuntimeError(reply.error.reason)
            n = int(reply.content["metrics"]["num-examples"])
            for name, leaf in reply.content["model"].to_torch_state_dict().items():
                total[name] += leaf * n
            weight += n
        model = {k: v / weight for k, v in total.items()}
        seconds.append(time.perf_counter() - started)
    RESULT.update(workload=workload, seconds=seconds, model=model)


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    memory = shared.Memory()
    nodes = shared.Workload.read(Path(FOLDER)).about["cohort"]
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client, nodes, backend_config=resources)
    final = {k: v.numpy() for k, v in RESULT["model"].items()}
    shared.report(OUT, RESULT["workload"], RESULT["seconds"], final, memory)
