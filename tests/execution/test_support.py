"""Tracing steps aside: with a torch that it does not know, runs give the same numbers."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
import torch
from torch import nn
from toys import arrays, assert_same
from typer.testing import CliRunner

import motet
from motet._cli.main import app
from motet._core.transforms import is_transforming, is_wrapped, load_grad_parts
from motet._engine.backends.factory import make_plan
from motet._engine.backends.plan import measuring
from motet._engine.federation import start
from motet._tracing import additions, deferring, graphs, nodes, pooling, support, updates

DATA = arrays({f"{i:02d}": 8 for i in range(10)})
UNKNOWN = ["1.13.1", "2.5.1+cu121", "2.16.0", "2.16.0.dev20260101", "3.0.0a0+git12", "nightly"]
KNOWN = ["2.6.0", "2.6.0+cpu", "2.9.1", "2.13.0+cpu", "2.15.0+cu132", "2.15.1a0"]
ASKED = ["run", "--method", "fedavg", "--data", "digits", "--clients", "4", "--explain-plan"]


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def trained(**options):
    task = motet.Task(mlp)
    run = motet.run(motet.FedAvg(batch_size=4), task, DATA, rounds=2, workers=1, **options)
    return run, task


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Forget what the self-test said before, and afterwards what it said here."""
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    support._failed_self_test.cache_clear()
    yield
    support._failed_self_test.cache_clear()


@pytest.fixture
def unknown(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "3.1.4")


def assert_untraced(caplog, *, why):
    """Force tracing, and see the numbers of a run without it, the reason, and no program."""
    with caplog.at_level(logging.WARNING, logger="motet"):
        run, task = trained(traced=True)
    assert not any(program and program.overwrites for program in task.programs._made.values())
    assert_same(run.server, trained(traced=False)[0].server)
    plan = run.backend.plan
    assert not plan.traced
    assert why in plan.untraced
    assert [r.getMessage() for r in caplog.records] == [
        f"traced=true has no effect: {plan.untraced}; steps run as they are written."
    ]
    assert str(plan).splitlines()[1:] == [f"tracing is off: {plan.untraced}"]


def test_steps_are_traced_with_the_torch_at_hand():
    assert support.why_untraced() is None
    run, task = trained(traced=True)
    assert run.backend.plan.traced
    assert run.backend.plan.untraced == ""
    assert "tracing is off" not in str(run.backend.plan)
    assert all(program.overwrites for program in task.programs._made.values())


@pytest.mark.parametrize("version", KNOWN)
def test_a_tested_release_is_known_however_its_build_is_called(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert support.why_untraced(self_test=False) is None


@pytest.mark.parametrize("version", UNKNOWN)
def test_a_release_that_was_not_tested_runs_steps_as_they_are_written(version, monkeypatch, caplog):
    monkeypatch.setattr(torch, "__version__", version)
    why = f"tracing is tested with torch 2.6 to 2.15, and this is torch {version}"
    assert support.why_untraced() == why
    assert_untraced(caplog, why=why)


def test_a_long_run_is_planned_without_tracing(unknown, caplog):
    setting = start(motet.FedAvg(batch_size=4), motet.Task(mlp), DATA, rounds=10**6).setting
    for measured in (False, True, True):  # by rule, measured, and remembered
        plan = make_plan(setting, 10, measure=measured)
        assert not plan.traced
        assert "3.1.4" in plan.untraced
    assert not caplog.records  # nobody has asked for it


def test_a_plan_that_was_traced_when_it_was_measured_is_not_traced_any_more(monkeypatch, tmp_path):
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    # No clock, and none in `start`, which plans too: another process could make a traced step slow.
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: 2.0 - plan.traced)
    setting = start(motet.FedAvg(batch_size=4), motet.Task(mlp), DATA, rounds=10**6).setting
    assert make_plan(setting, 10, measure=True).traced
    monkeypatch.setattr(support, "OLDEST", (2, 5))
    monkeypatch.setattr(support, "NEWEST", (2, 5))
    assert not make_plan(setting, 10, measure=True).traced


def test_explain_plan_says_on_a_line_of_its_own_why_nothing_is_traced(unknown):
    shown = CliRunner().invoke(app, ASKED)
    assert shown.exit_code == 0, shown.output
    (line,) = shown.stdout.splitlines()[1:]
    assert line.startswith("tracing is off: tracing is tested with torch 2.6")
    as_json = CliRunner().invoke(app, [*ASKED, "--json"])
    assert "3.1.4" in json.loads(as_json.stdout)["plan"]["untraced"]


def _without_rectifier(_graph, found):
    found.relu.replace_all_uses_with(found.relu.args[0])


# Each pass, broken so that it computes something else, or leaves out what others rely on.
BROKEN = {
    "constants are wrong": (graphs, "_constant", lambda node: 2.0 if node.kwargs else None),
    "views lose their shape": (graphs, "_source_of_same_view", nodes.viewed),
    "different nodes are shared": (graphs, "_frozen", type),
    "products are not flipped": (graphs, "_flipped", lambda graph, factor: factor),
    "rectifiers are lost": (pooling, "_swap", _without_rectifier),
    "signs are lost": (updates, "_sign", lambda node: 1.0),
    "clients without a batch change": (additions._Writer, "_masked", lambda self, node, mask: node),
    "a factor is not a tensor": (additions._Writer, "_factor", lambda *_: 2.0),
    "old values are overwritten too early": (updates, "is_read_up_to", lambda *_: True),
    "weights wait with another factor": (deferring, "_number", lambda update: 0.5),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_pass_that_computes_something_else_is_not_used(name, monkeypatch, caplog):
    where, attribute, instead = BROKEN[name]
    monkeypatch.setattr(where, attribute, instead)
    assert_untraced(caplog, why="a test step could not be traced correctly")


@pytest.mark.parametrize("module", ["recording", "graphs", "op_counter", "self_test"])
def test_a_name_that_torch_does_not_have_turns_tracing_off(module, monkeypatch, caplog):
    for name in [name for name in sys.modules if name.startswith("motet._tracing.")]:
        if name.rpartition(".")[2] not in ("support", "programs", "layouts", "pending"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, f"motet._tracing.{module}", None)  # importing it fails
    assert_untraced(caplog, why=f"motet._tracing.{module}")


TRAINED = """
import sys, torch, motet, motet.data, motet.models
from motet._tracing import support
x = torch.arange(96.0).view(24, 4).sin()
clients = {c: (x.numpy(), (torch.arange(24) % 3).numpy()) for c in "abc"}
data = motet.data.from_arrays(train=clients, classes=3)
task = motet.Task(lambda: torch.nn.Linear(4, 3))
run = motet.run(motet.FedProx(batch_size=4), task, data, rounds=2, traced=TRACED)
print(run.server["weight"].tolist())
print(*(name for name in sys.modules if name.startswith("motet._tracing.")))
print(*support.count(lambda: torch.ones(2) + 1), support.why_untraced())
"""
WITHOUT_PRIVATE_NAMES = """
import torch, torch.utils._python_dispatch
import torch.utils.flop_counter, torch.utils.weak
torch.func.vmap(torch.func.grad(torch.sin))(torch.ones(1))  # imports what torch needs for it
del torch.utils._python_dispatch.TorchDispatchMode
del torch.utils.flop_counter.flop_registry
del torch.utils.weak.WeakTensorKeyDictionary
"""


def told(code):
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_a_torch_that_does_not_tell_whether_a_transform_runs_gets_code_for_the_inside_of_one(
    monkeypatch,
):
    assert not is_transforming()
    monkeypatch.delattr(torch._C, "_are_functorch_transforms_active")
    assert is_transforming()


@pytest.mark.parametrize("name", ["_create_differentiable", "grad_increment_nesting"])
def test_a_torch_without_the_parts_of_its_gradient_is_recognised(name, monkeypatch):
    assert load_grad_parts() is not None
    monkeypatch.delattr(torch._functorch.eager_transforms, name)
    assert load_grad_parts() is None


def test_motet_trains_without_the_private_names_of_torch_and_without_loading_the_passes():
    numbers, modules, known = told(TRAINED.replace("TRACED", "False"))
    loaded = {name.rpartition(".")[2] for name in modules.split()}
    assert loaded == {"layouts", "op_counter", "pending", "programs", "support"}
    assert known == "2 0 None"
    bare = told(WITHOUT_PRIVATE_NAMES + TRAINED.replace("TRACED", "True"))
    assert bare[0] == numbers  # to the last bit
    assert bare[2].startswith("0 0 a test step could not be traced correctly")
    assert "ImportError" in bare[2]


def test_values_inside_a_transform_are_wrapped_with_and_without_the_public_question(monkeypatch):
    def seen(value):
        found.append((is_wrapped(value), is_wrapped(outside)))
        return value.sum()

    outside, found = torch.ones(2), []
    for _ in range(2):
        torch.func.vmap(seen)(torch.ones(2, 2))
        torch.func.grad(seen)(torch.ones(2))
        monkeypatch.delattr(torch.func, "debug_unwrap", raising=False)
    assert found == [(True, False)] * 4
