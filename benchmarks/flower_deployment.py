"""Rounds per minute of a real federation, beside Flower's own FedAvg on the same nodes.

    python benchmarks/flower_deployment.py [SITES [ROUNDS]]        # 10 and 5 unless given

A model of 5 MB, one gradient step per round; SuperLink, path filter and sites on loopback, over TLS
with keys, and one torch thread per process.
Flower's own takes its step twice: with `torch.optim`, which imports torch's compiler, and by hand,
the least that a client of Flower can do.
Ours also reads data, checks every message, keeps private state on disk and writes a checkpoint per
round (the checkpoint comes after the seconds of its round).
Most of a round is Flower's polling and the start of a Python process per message, in all three.
`flower_overhead.py` shows the rest alone, and counts bytes.
"""

from __future__ import annotations

import compileall
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import tomli_w

import motet
from motet.config import experiment_from_dict
from motet.deploy import _results as results
from motet.deploy._app import FLOWER
from motet.deploy._layout import PACKAGE, Deployment
from motet.deploy._loopback import Loopback
from motet.deploy._submission import write_settings
from motet.deploy._writing import Draft

WIDTH = 17_000  # of the hidden layer: 5 MB with 64 inputs and 10 classes
DEADLINE_S = 100  # of a round: Flower's SuperLink may lose a reply when its database is busy
PLAIN_SERVER = """
import json
import time
from pathlib import Path
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from motet_app.network import build

app = ServerApp()


class Timed(FedAvg):
    began = ()

    def configure_train(self, *args, **kwargs):
        self.began = (*self.began, time.monotonic())
        return super().configure_train(*args, **kwargs)


@app.main()
def main(grid, context):
    sites, rounds = context.run_config["sites"], context.run_config["rounds"]
    strategy = Timed(fraction_evaluate=0.0, min_available_nodes=sites)
    arrays = ArrayRecord(build().state_dict())
    strategy.start(grid, arrays, num_rounds=rounds, timeout=DEADLINE)
    ends = (*strategy.began[1:], time.monotonic())
    seconds = [end - start for start, end in zip(strategy.began, ends)]
    Path(context.run_config["out"]).write_text(json.dumps(seconds))
""".replace("DEADLINE", str(DEADLINE_S))
PLAIN_CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from motet_app.network import build

app = ClientApp()


@app.train()
def train(message, context):
    model = build()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = torch.zeros(1, 64), torch.zeros(1, dtype=torch.int64)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    STEP
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
"""
STEPS = {
    "optim": "torch.optim.SGD(model.parameters(), lr=0.01).step()",
    "by-hand": """with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad""",
}
NETWORK = f"""
from torch import nn


def build():
    return nn.Sequential(nn.Linear(64, {WIDTH}), nn.ReLU(), nn.Linear({WIDTH}, 10))
"""


def make_deployment(folder: Path, sites: int, rounds: int) -> Deployment:
    tables = {
        "run": {"rounds": rounds, "evaluate_every": rounds},
        "method": {"name": "fedavg", "steps": 1, "batch_size": 1},
        "data": {"name": "digits", "partition": {"name": "iid", "clients": sites}},
        "model": {"name": "mlp", "hidden": [WIDTH]},
    }
    experiment = experiment_from_dict(tables)
    draft = Draft.of(experiment, folder / "net", name="speed", host="localhost", port=8443)
    draft.write()
    return draft.deployment


def plain_app(folder: Path, settings: dict[str, int | str], step: str) -> Path:
    app = folder / "app"
    (app / PACKAGE).mkdir(parents=True)
    client = PLAIN_CLIENT.replace("STEP", STEPS[step])
    files = {"__init__": "", "server_app": PLAIN_SERVER, "client_app": client}
    for name, text in {**files, "network": NETWORK}.items():
        (app / PACKAGE / f"{name}.py").write_text(text)
    parts = {f"{side}app": f"{PACKAGE}.{side}_app:app" for side in ("server", "client")}
    about = {"publisher": "motet", "components": parts, "config": settings}
    project = {
        "name": "plain",
        "version": "1.0.0",
        "license": "Apache-2.0",
        "dependencies": [FLOWER],
    }
    (app / "pyproject.toml").write_text(
        tomli_w.dumps(
            {"project": {**project, "dependencies": [FLOWER]}, "tool": {"flwr": {"app": about}}}
        )
    )
    return app


def run(federation: Loopback, app: Path, settings: Path) -> None:
    number = federation.control.submit(app, settings)
    while not (submitted := federation.control.run(number)).is_over:
        time.sleep(10)  # to ask is to start a program
    assert submitted.status == "finished:completed", federation.control.log(number)


def ours(federation: Loopback, folder: Path) -> list[float]:
    deployment, out = federation.deployment, folder / "ours"
    write_settings(folder / "ours.toml", deployment, out=out, sites=deployment.sites)
    run(federation, deployment.app, folder / "ours.toml")
    return [line["seconds"] for line in results.rounds(out)]


def plain(federation: Loopback, folder: Path, rounds: int, step: str) -> list[float]:
    own = folder / f"plain-{step}"
    own.mkdir()
    out, config = own / "seconds.json", own / "run.toml"
    settings = {"sites": len(federation.deployment.sites), "rounds": rounds, "out": str(out)}
    config.write_text(tomli_w.dumps(settings))
    run(federation, plain_app(own, settings, step), config)
    return json.loads(out.read_text())


def compile_ours() -> None:
    """Compile our modules, as installing does: else every message may wait for that."""
    compileall.compile_dir(Path(motet.__file__).parent, quiet=1)


def tell(name: str, seconds: list[float]) -> None:
    each = ", ".join(f"{value:.1f}" for value in seconds)
    print(f"{name}: median {statistics.median(seconds):.1f} s per round ({each})", flush=True)


def main() -> None:
    sites, rounds = (*map(int, sys.argv[1:]), *(10, 5)[len(sys.argv) - 1 :])
    compile_ours()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = make_deployment(folder, sites, rounds)
        with Loopback(deployment, folder / "programs") as federation:
            federation.start_server()
            federation.register(deployment.sites)
            for site in deployment.sites:
                federation.start_site(site)
            federation.await_online(deployment.sites)
            print(f"5 MB, {sites} sites, {rounds} rounds, TLS and keys", flush=True)
            for step in STEPS:
                tell(f"Flower's FedAvg, {step}", plain(federation, folder, rounds, step))
            tell("Motet on Flower", ours(federation, folder))


if __name__ == "__main__":
    main()
