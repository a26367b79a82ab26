"""Execution plans: chosen by rule or measured, remembered, and invisible but for rounding."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from toys import arrays, assert_close, assert_same

import motet
from motet._engine.backends.factory import make_plan
from motet._engine.backends.plan import measuring
from motet._engine.backends.plan import plan_cache as keeping
from motet._engine.backends.plan.planning import count_operations, default_chunk, plan_for
from motet._engine.backends.vectorized import Vectorized
from motet._engine.federation import start

OUTSIDE = torch.full((3,), 0.5)
DATA = arrays({f"{i:02d}": 8 for i in range(10)})


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def cnn(channels=3):
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, channels, 2), nn.Flatten(), nn.Linear(channels, 3)
    )


class Slow(nn.Module):
    """A network that loops over time."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for _ in range(500):
            x = x.tanh()
        return self.head(x)


def setting(build=mlp, rounds=50, **method):
    fields = {"batch_size": 4, **method}
    return start(motet.FedAvg(**fields), motet.Task(build), DATA, rounds=rounds).setting


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))


def test_small_networks_are_stacked_and_large_convolutions_take_turns():
    assert plan_for(setting(), 10).mode == "stack"
    assert plan_for(setting(cnn), 10).mode == "stack"
    assert plan_for(setting(lambda: cnn(channels=2**20)), 10).mode == "loop"


def test_who_wants_channels_last_gets_turns_because_stacks_have_no_such_layout():
    assert plan_for(setting(cnn), 10, wishes={"channels_last": True}).mode == "loop"


def test_recurrent_networks_take_turns_and_are_not_traced():
    tokens = motet.data.from_arrays(train={"a": (np.zeros((8, 5), int), np.zeros((8, 5), int))})
    task = motet.Task(lambda: motet.models.CharLSTM((5,), 3))
    plan = start(
        motet.FedAvg(batch_size=4), task, tokens, rounds=10_000, measure=False
    ).backend.plan
    assert (plan.mode, plan.traced) == ("loop", False)
    assert "recurrent" in plan.reason


def test_chunks_are_of_equal_size():
    assert default_chunk(setting(), 33, cores=2) == 17  # 17 + 16, not 32 + 1


@pytest.mark.parametrize("mode", ["stack", "loop"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_no_thread_idles_while_there_is_work(mode, momentum):
    it = setting(optimizer=motet.Sgd(momentum=momentum))
    for cores in (1, 2, 3, 4, 8, 64):
        for cohort in (*range(1, 70), 100, 127, 500, 1000, 1001):
            size = default_chunk(it, cohort, mode, cores)
            chunks = math.ceil(cohort / size)
            turns = math.ceil(chunks / cores)  # of the busiest thread
            # It trains its share of the cohort, and less than one more client in each turn.
            assert turns * size < cohort / cores + turns, (cores, cohort, size)


def test_a_cohort_of_one_leaves_no_core_idle():
    cores = os.cpu_count() or 1
    assert plan_for(setting(), 1).torch_threads == cores
    assert plan_for(setting(), 1).workers == 1
    assert plan_for(setting(), 100).torch_threads == 1
    # Not by the number of workers, which changes no bit of a result.
    assert plan_for(setting(), 1, wishes={"workers": 1}).torch_threads == cores


def test_who_keeps_moments_gets_smaller_stacks():
    def wide():
        return nn.Linear(4, 50_000)

    sizes = [
        default_chunk(setting(wide, optimizer=optimizer), 1000, cores=2)
        for optimizer in (motet.Sgd(), motet.Sgd(momentum=0.9), motet.Adam())
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_run_that_is_too_short_is_not_traced():
    assert not plan_for(setting(rounds=2), 10).traced
    assert plan_for(setting(rounds=1000), 10).traced


def test_a_network_that_loops_over_time_is_not_traced():
    assert count_operations(setting(Slow).task) > 500
    assert not plan_for(setting(Slow, rounds=10_000), 10).traced


def test_what_the_caller_wishes_is_what_is_done():
    plan = make_plan(setting(), 10, chunk_size=3, traced=True, mode="loop", workers=1)
    assert (plan.chunk_size, plan.traced, plan.mode, plan.workers) == (3, True, "loop", 1)


@pytest.mark.parametrize("build", [mlp, cnn])
@pytest.mark.parametrize(
    "method",
    [
        motet.FedAvg(batch_size=4, optimizer=motet.Sgd(lr=0.1, momentum=0.9)),
        motet.FedProx(batch_size=4),
        motet.Ditto(batch_size=4),
        motet.APFL(batch_size=4),
        motet.Scaffold(batch_size=4),
        motet.FedRep(batch_size=4),
    ],
    ids=lambda method: method.name,
)
def test_a_plan_changes_nothing_but_the_last_bits(build, method):
    task = motet.Task(build)
    expected = motet.run(method, task, DATA, rounds=3, backend="serial")
    for mode in ("stack", "loop"):
        options = {"mode": mode, "traced": True, "channels_last": mode == "loop"}
        came = motet.run(method, task, DATA, rounds=3, backend="vectorized", **options)
        assert_close(came.server, expected.server, 2e-5)
        for client in DATA.clients:
            assert_close(came.clients[client], expected.clients[client], 2e-5)
    assert len(task.programs) > 0


def test_workers_change_not_one_bit_of_a_traced_run():
    runs = [
        motet.run(
            motet.FedAvg(batch_size=4),
            motet.Task(mlp),
            DATA,
            rounds=3,
            traced=True,
            chunk_size=3,
            workers=workers,
        )
        for workers in (1, 4)
    ]
    assert_same(runs[0].server, runs[1].server)


def test_programs_are_shared_by_runs_of_one_task():
    task, method = motet.Task(mlp), motet.FedAvg(batch_size=4)
    motet.run(method, task, DATA, rounds=1, traced=True)
    made = len(task.programs)
    motet.run(method, task, DATA, rounds=2, seed=1, traced=True)
    assert len(task.programs) == made > 0


def test_a_step_that_cannot_be_traced_runs_as_it_is_written_and_says_so_once(caplog):
    class Outsider(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(x) * OUTSIDE  # nobody's argument

    task, method = motet.Task(Outsider), motet.FedAvg(batch_size=4)
    with caplog.at_level(logging.WARNING, logger="motet"):
        came = motet.run(method, task, DATA, rounds=2, traced=True)
    plain = motet.run(method, task, DATA, rounds=2, traced=False)
    assert_same(came.server, plain.server)
    assert len(caplog.records) == 1
    assert "a tensor of shape (3,) that is not among its arguments" in caplog.text


def test_a_measured_plan_is_remembered_and_used_again():
    it = setting(rounds=50)
    rule = plan_for(it, 10)
    first = measuring.fastest(it, 10, rule)
    again = measuring.fastest(it, 10, rule)
    assert "measured" in first.reason
    assert again.reason == "measured before on this machine"
    assert (again.mode, again.chunk_size) == (first.mode, first.chunk_size)
    assert again.timings == first.timings
    assert len(first.timings) >= 2  # turns and stacks; more if there is time


def test_ways_to_be_measured_include_turns_stacks_and_both_traced(monkeypatch):
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: 1.0)  # no clock
    monkeypatch.setattr(measuring, "_is_busy", lambda: False)
    it = setting(rounds=50)
    timed = measuring.measure(it, 10, plan_for(it, 10))
    assert {(plan.mode, plan.traced) for plan in timed} == {
        ("stack", False),
        ("stack", True),
        ("loop", False),
        ("loop", True),
    }
    assert any(plan.workers == 1 for plan in timed)


def test_the_fastest_of_the_measured_ways_is_chosen_and_a_tie_is_the_rule_s(monkeypatch):
    it = setting(rounds=50)
    rule = plan_for(it, 10)
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: 1.0)
    assert replace(measuring.fastest(it, 10, rule), reason=rule.reason) == rule
    other = setting(rounds=50, batch_size=2)
    seconds = {"loop": 0.5, "stack": 1.0}
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: seconds[plan.mode])
    assert measuring.fastest(other, 10, plan_for(other, 10)).mode == "loop"


@pytest.mark.parametrize(("faster", "workers"), [(1.25, 2), (1.35, 1)])
def test_fewer_threads_are_chosen_only_if_they_are_much_faster(monkeypatch, faster, workers):
    it = setting(rounds=50)
    rule = replace(plan_for(it, 10), workers=2)
    monkeypatch.setattr(
        measuring, "_seconds_per_client", lambda _, plan: 1.0 if plan.workers == 2 else 1 / faster
    )
    monkeypatch.setattr(measuring, "_is_busy", lambda: False)
    assert measuring.fastest(it, 10, rule).workers == workers


def test_a_plan_that_was_chosen_by_other_rules_is_measured_again(monkeypatch):
    it = setting(rounds=50)
    rule = plan_for(it, 10)
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: 1.0)
    with monkeypatch.context() as before:
        before.setattr(keeping, "VERSION", keeping.VERSION - 1)
        measuring.fastest(it, 10, rule)
    assert "fastest of" in measuring.fastest(it, 10, rule).reason
    assert measuring.fastest(it, 10, rule).reason == "measured before on this machine"


@pytest.mark.parametrize("cohort", [2, 7, 30, 101, 500])
def test_no_thread_idles_in_any_of_the_measured_ways(monkeypatch, cohort):
    monkeypatch.setattr(measuring, "_seconds_per_client", lambda _, plan: 1e-9)
    it = setting(rounds=10**9)
    for plan in measuring.measure(it, cohort, plan_for(it, cohort)):
        turns = math.ceil(math.ceil(cohort / plan.chunk_size) / plan.workers)
        assert turns * plan.chunk_size < cohort / plan.workers + turns, plan


def test_a_busy_machine_is_asked_for_processor_time(monkeypatch):
    clock = iter(range(10**6))  # a clock that says nothing
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(os, "getloadavg", lambda: (1e3, 0.0, 0.0))
    it = setting(rounds=50)
    assert all(spent < 0.5 for spent in measuring.measure(it, 10, plan_for(it, 10)).values())


def test_measuring_stops_when_it_has_taken_its_share_of_the_run(monkeypatch):
    it = setting(rounds=2)
    monkeypatch.setattr(measuring, "LEAST", 0.0)
    assert len(measuring.measure(it, 10, plan_for(it, 10))) < 4


def test_a_measured_plan_gives_the_results_of_a_remembered_one():
    runs = [
        motet.run(motet.FedAvg(batch_size=4), motet.Task(mlp), DATA, rounds=2, measure=True)
        for _ in range(2)
    ]
    assert runs[1].backend.plan.reason == "measured before on this machine"
    assert_same(runs[0].server, runs[1].server)


def test_measuring_leaves_nothing_behind_in_the_run():
    it = setting(rounds=50)
    measuring.measure(it, 10, plan_for(it, 10))
    assert list(it.store) == []


def test_only_long_runs_are_measured():
    assert not measuring.worth_measuring(setting(rounds=50), 10)
    assert measuring.worth_measuring(setting(rounds=10**9), 10)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"x": 3}', "{", '{"x": {"mode": "sideways"}}', '{"x": {"mode": "loop"}}'),
        f'{{"x": {{"version": {keeping.VERSION}, "mode": "loop", "chunk_size": 2, "traced": true, '
        '"channels_last": true, "workers": 1, "timings": [["a"]]}}',
    ],
)
def test_a_damaged_cache_is_no_cache(tmp_path, text):
    (tmp_path / "plans.json").write_text(text)
    assert keeping.recall("x") is None
    keeping.keep("y", plan_for(setting(), 10))
    assert keeping.recall("y") is not None
    assert isinstance(json.loads((tmp_path / "plans.json").read_text()), dict)


def test_a_plan_tells_what_it_is_and_why():
    plan = plan_for(setting(), 10)
    told = str(plan)
    assert f"chunks of {plan.chunk_size} clients" in told
    assert "by rule" in told


def test_training_looks_at_the_federation_s_own_memory_and_leaves_it_as_it_was():
    it = setting()
    block = it.federation.x.blocks[0]
    before = [np.array(b) for b in it.federation.x.blocks]
    lent = it.work(it.everybody[0], 0)["train"].x.numpy()
    assert any(np.shares_memory(lent, b) for b in it.federation.x.blocks)
    assert not np.shares_memory(it.federation.examples(it.everybody[0], "train").x.numpy(), block)
    motet.run(motet.FedFomo(batch_size=4), motet.Task(mlp), it.federation, rounds=2, traced=True)
    assert all(np.array_equal(a, b) for a, b in zip(before, it.federation.x.blocks, strict=True))


def test_training_begins_with_the_largest_clients():
    class Noting(Vectorized):
        def train_chunk(self, down, chunk, info):
            seen.append(chunk)
            return super().train_chunk(down, chunk, info)

    seen: list[list[str]] = []
    data = arrays({"a": 8, "b": 3, "c": 12, "d": 5})
    it = start(motet.FedAvg(batch_size=4), motet.Task(mlp), data, rounds=1).setting
    backend = Noting(it, plan_for(it, 4, wishes={"chunk_size": 2, "workers": 1}))
    backend.train(it.initial, it.info(0, tuple(it.everybody)))
    assert seen == [["a", "c"], ["b", "d"]]


def _mode_of(width, batch):
    task = motet.Task(
        lambda: motet.models.build("transformer", shape=(20,), classes=30, width=width, heads=2)
    )
    rows = np.random.default_rng(0).integers(0, 30, (batch, 21))
    data = motet.data.from_arrays(
        train={f"{i}": (rows[:, :-1], rows[:, 1:]) for i in range(4)}, classes=30
    )
    run = start(motet.FedAvg(batch_size=batch), task, data, rounds=1, backend="vectorized")
    return run.backend.plan.mode


def test_a_deep_network_is_stacked_only_while_its_operations_are_small():
    assert _mode_of(8, batch=2) == "stack"
    assert _mode_of(256, batch=16) == "loop"
