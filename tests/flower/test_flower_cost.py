"""What a message costs besides its work: the start of a process at the site, and the wait."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from staging import FlowerTransport, LoopbackGrid, Stage

from motet import FedAvg, FedFomo
from motet.deploy._runtime import flower_apps
from motet.deploy._runtime.parcels import Parcel

CONFIG = """
[method]
name = "fedper"
[model]
name = "mlp"
[data]
shape = [4]
classes = 2
"""
# Flower starts a process for every message to a site; this one answers one.
SITE = f"""
import sys
import torch
import flwr.supernode.cli
from flwr.app import ArrayRecord, Array, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
before = set(sys.modules)
from motet.deploy._runtime.flower_apps import client_app
from motet.deploy._runtime.agreement import Agreement

place, run_config = sys.argv[1], {{"experiment": "one", "config": {CONFIG!r}}}
agreed = Agreement.from_text("one", {CONFIG!r})
body = {{n: p for n, p in agreed.setting_at("a", place).initial.items() if "head" not in n}}
header = {{"client": "a", "agreed": agreed.agreed, "round": 0, "clients": 3}}
arrays = ArrayRecord({{name: Array(leaf.numpy()) for name, leaf in body.items()}})
content = RecordDict({{"arrays": arrays, "header": ConfigRecord(header)}})
node_config = {{"client": "a", "data": place, "state-dir": place + "/state"}}
node_config["agreed"] = agreed.agreed
message = Message(content, 1, "train")
message.metadata.__dict__["_message_id"] = "first"
reply = client_app()(message, Context(1, 1, node_config, RecordDict(), run_config))
header = reply.content["header"]
assert "weight" in header, header
print(*set(sys.modules) - before)
"""
NEEDED = {"motet", "torch", "numpy", "safetensors"}
SERVERS_OWN = {
    "motet.deploy._runtime.server_loop",
    "motet._runs.run_dir",
    "motet._runs.checkpoint",
    "sqlite3",
}
COMPILERS = {"torch._dynamo", "torch._inductor", "sympy", "torch.fx.experimental.proxy_tensor"}


def test_a_site_imports_nothing_for_a_message_that_the_message_does_not_need(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.savez(tmp_path / "train.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    command = [sys.executable, "-c", SITE, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    imported = set(told.stdout.split())
    packages = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    assert {p for p in packages if not p.startswith("_cython")} <= NEEDED
    assert not imported & (SERVERS_OWN | COMPILERS)


@dataclass
class Clock:
    """Time that passes only where somebody sleeps, or looks."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowGrid(LoopbackGrid):
    """Has no reply before its time, and needs 10 ms to say so."""

    def until(self, clock, ready) -> SlowGrid:
        self.clock, self.ready, self.looks = clock, ready, 0
        return self

    def pull_messages(self, message_ids):
        self.looks += 1
        self.clock.now += 0.01
        return super().pull_messages(message_ids) if self.clock.now >= self.ready else []


def waited(monkeypatch, stage, *, reply_after, deadline_s=600.0):
    """Ask one client, and return how long it took, how often we looked, and what came."""
    clock = Clock()
    monkeypatch.setattr(flower_apps, "time", clock)
    grid = SlowGrid(stage.grid.app, stage.grid.nodes).until(clock, clock.now + reply_after)
    parcel, began = Parcel({"client": "few"}), clock.now
    came = FlowerTransport(grid).exchange("train", {"few": parcel}, number=0, deadline_s=deadline_s)
    return clock.now - began, grid.looks, came


@pytest.fixture
def stage(tmp_path):
    return Stage.set(FedAvg(), tmp_path)


def test_a_long_round_does_not_keep_the_superlink_busy(monkeypatch, stage):
    seconds, looks, came = waited(monkeypatch, stage, reply_after=30.0)
    assert came.replies
    assert seconds < 31.1
    assert looks < 45, "each look is a request to the SuperLink, and a query of its database"


def test_a_short_round_is_not_made_long_by_waiting(monkeypatch, stage):
    seconds, _, came = waited(monkeypatch, stage, reply_after=0.2)
    assert came.replies
    assert seconds < 0.35


def test_nobody_waits_beyond_the_deadline(monkeypatch, stage):
    seconds, _, came = waited(monkeypatch, stage, reply_after=60.0, deadline_s=7.5)
    assert came.lost == {"few": "no reply within 7.5 s"}
    assert seconds < 7.6


class Watched(FlowerTransport):
    """Notes how many different downloads each exchange holds."""

    def exchange(self, action, parcels, **about):
        self.held = len({id(parcel.arrays) for parcel in parcels.values()})
        return super().exchange(action, parcels, **about)


@pytest.mark.parametrize(("method", "copies"), [(FedAvg(), 1), (FedFomo(), 6)])
def test_what_all_clients_are_sent_is_held_once(method, copies, tmp_path):
    stage = Stage.set(method, tmp_path)
    assert len(stage.world.data.clients) == 6
    transport = Watched(stage.grid, poll_s=0.01)
    stage.play(transport)
    assert transport.held == copies
