"""Faults in simulation: lost replies, slow clients, absences, corrupt uploads."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from toys import arrays, assert_close, assert_same

import motet
from motet import Key
from motet._core import tree
from motet._engine.faults import Faults
from motet._engine.federation import start
from motet.config import experiment_from_dict
from motet.errors import RequestError

TASK = motet.Task(build=lambda: nn.Linear(4, 3))
DATA = arrays({f"{i:02d}": 6 + i for i in range(12)})
BACKENDS = ("serial", "vectorized")
METHOD = motet.FedAvg(optimizer=motet.Sgd(lr=0.1), batch_size=4)


def played(method=METHOD, rounds=3, backend="serial", **faults):
    run = start(method, TASK, DATA, rounds=rounds, backend=backend, faults=Faults(**faults))
    return run, [run.advance() for _ in range(rounds)]


@pytest.mark.parametrize(
    "faults",
    [
        {"lost": 0.4},
        {"slow": 0.5, "pace": 0.3},
        {"unavailable": 0.5},
        {"late": 0.5, "joins": 3},
        {"corrupt": 0.3, "corruption": "flipped"},
        {"corrupt": 0.3, "corruption": "nan", "lost": 0.2},
        {"corrupt": ("03", "07"), "corruption": "scaled"},
    ],
    ids=str,
)
def test_every_backend_meets_the_same_faults(faults):
    (one, first), (two, second) = (played(backend=name, **faults) for name in BACKENDS)
    for a, b in zip(first, second, strict=True):
        assert (a.cohort, a.lost, a.rejected) == (b.cohort, b.lost, b.rejected)
    assert_close(one.server, two.server, 1e-5)


def test_a_lost_reply_leaves_the_server_without_it_and_the_client_with_its_work():
    whole, _ = played(motet.Ditto(batch_size=4), rounds=1)
    run, (done,) = played(motet.Ditto(batch_size=4), rounds=1, lost=0.5)
    assert 0 < len(done.lost) < len(done.cohort)
    for client in done.lost:
        assert_same(run.clients[client], whole.clients[client])
    assert not torch.equal(tree.leaves(run.server)[0], tree.leaves(whole.server)[0])


def test_without_a_single_reply_the_server_stays_as_it_was():
    before, _ = played(rounds=0)
    run, done = played(lost=1.0)
    assert_same(run.server, before.server)
    assert all(one.lost == one.cohort for one in done)


def test_a_slow_client_takes_the_first_steps_and_no_others():
    setting = played(rounds=0, slow=1.0, pace=0.5)[0].setting
    whole = setting.data("11", METHOD.plans(), 0)["train"]
    part = setting.work("11", 0)["train"]
    assert whole.active_steps() == 5
    assert part.active_steps() == 2
    assert torch.equal(part.weight[:2], whole.weight[:2])


def test_clients_that_join_late_are_never_drawn_before():
    _, done = played(rounds=4, late=0.5, joins=3)
    early, everybody = set(done[0].cohort), set(DATA.clients)
    assert early < everybody
    assert set(done[1].cohort) == early
    assert set(done[2].cohort) == set(done[3].cohort) == everybody


@pytest.mark.parametrize("corruption", ["nan", "inf"])
def test_corrupt_numbers_are_refused_by_name_and_the_others_count(corruption):
    _, (done,) = played(rounds=1, corrupt=0.4, corruption=corruption)
    refused = set(done.rejected)
    assert 0 < len(refused) < len(DATA.clients)
    honest = DATA.select([c for c in DATA.clients if c not in refused])
    alone = motet.run(METHOD, TASK, honest, rounds=1, backend="serial")
    assert_close(done.server, alone.server)


@pytest.mark.parametrize(("corruption", "factor"), [("scaled", 7.0), ("flipped", -7.0)])
def test_a_scaled_update_is_scaled_about_the_model_that_was_sent(corruption, factor):
    down, up = {"w": torch.tensor([1.0])}, {"w": torch.tensor([1.5])}
    spoiled = Faults(corruption=corruption, factor=7.0).spoiled(up, down, down)
    assert_close(spoiled, {"w": torch.tensor([1.0 + factor * 0.5])})


def test_a_stale_upload_is_the_model_of_the_start():
    initial = {"w": torch.tensor([3.0])}
    down, up = {"w": torch.tensor([1.0])}, {"w": torch.tensor([1.5])}
    assert_same(Faults(corruption="stale").spoiled(up, down, initial), initial)


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_is_named_is_corrupt_in_every_round_and_nobody_else(backend):
    _, done = played(backend=backend, corrupt=("03", "07"))
    assert [set(one.rejected) for one in done] == [{"03", "07"}] * 3


def test_a_name_that_nobody_has_is_refused():
    with pytest.raises(RequestError, match=r'faults\.corrupt names "99", which is not a client'):
        played(corrupt=("03", "99"))


def test_nobodys_luck_depends_on_who_else_is_there():
    faults, key = Faults(unavailable=0.5), Key(3)
    all_of_them = faults.available(DATA.clients, 4, key)
    some = faults.available(DATA.clients[:5], 4, key)
    assert some == tuple(c for c in all_of_them if c in DATA.clients[:5])


def test_shares_that_are_none_are_refused():
    with pytest.raises(RequestError, match="from 0 to 1"):
        Faults(lost=1.5)
    with pytest.raises(RequestError, match=r"or a tuple of client ids; got '03'"):
        Faults(corrupt="03")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="scaled"):
        Faults(corruption="swapped")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "faults"),
    [
        ({"lost": 0.25}, Faults(lost=0.25)),
        ({"corrupt": 0.2}, Faults(corrupt=0.2)),
        ({"corrupt": ["3", "4"]}, Faults(corrupt=("3", "4"))),
    ],
    ids=str,
)
def test_a_config_can_ask_for_faults_and_writes_them_down(table, faults):
    tables = {"method": {"name": "fedavg"}, "run": {"faults": table}}
    experiment = experiment_from_dict(tables)
    assert experiment.settings()["faults"] == faults
    assert experiment_from_dict(experiment.to_dict()) == experiment
