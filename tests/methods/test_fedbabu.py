"""FedBABU: the body learns under a head that nobody moves."""

import pytest
from arithmetic import BACKENDS
from toys import assert_close, assert_same
from two_layers import PRODUCT, base_step, differ, everything, finish, products

import motet
from motet import Adam, FedAvg, FedAvgFT, Mean, Sgd
from motet._core.tree import clone, drop, pick
from motet.errors import RequestError
from motet.methods._fedbabu import FedBABU
from motet.testing._worlds import batch_norm, ragged

BOTH = pytest.mark.parametrize("backend", BACKENDS)
UNIFORM = Mean(weights="uniform")


def parts(run):
    """Split the names of a model."""
    head = run.setting.task.select("head")
    return head, set(run.setting.task.names) - head


@BOTH
def test_one_round_by_hand_every_client_counts_once(backend):
    data = products(a=(1, 2, 1), b=(2, 1, 3))
    method = FedBABU(optimizer=Sgd(lr=0.1), batch_size=None, steps=2)
    run = motet.run(method, PRODUCT, data, rounds=1, backend=backend, init={"head": 0.5})
    bodies = []
    for x, y in ((1, 2), (2, 1)):
        body = 1.0
        for _ in range(2):
            body = base_step(body, 0.5, x, y, 0.1)
        bodies.append(body)
    assert run.server["base"].item() == pytest.approx(sum(bodies) / 2)


@BOTH
@pytest.mark.parametrize(
    "optimizer", [Sgd(lr=0.1, momentum=0.9, weight_decay=0.5), Adam(lr=0.1, weight_decay=0.5)]
)
def test_not_even_weight_decay_moves_the_frozen_head(optimizer, backend):
    # A head "frozen" by a zero gradient or a zero rate decays, or drifts with old momentum.
    world = batch_norm()
    run = finish(FedBABU(optimizer=optimizer), world, backend, rounds=3, cohort=3)
    head, body = parts(run)
    for client in world.data.clients:
        assert_same(run.clients[client], pick(run.setting.initial, head))
    assert set(run.server) == body
    assert differ(run.server, pick(run.setting.initial, body))


@BOTH
def test_with_no_head_to_freeze_it_is_fedavg_with_fine_tuning(backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    babu = finish(FedBABU(head=(), **settings), world, backend, cohort=3)
    fedavg = finish(FedAvg(reduce=UNIFORM, **settings), world, backend, cohort=3)
    tuned = finish(FedAvgFT(reduce=UNIFORM, **settings), world, backend, cohort=3)
    assert_same(everything(babu), everything(fedavg))
    for client in world.data.clients:
        assert_same(babu.personal(client), tuned.personal(client))
    assert "fedavg-ft" in babu.warnings[0]


@BOTH
def test_without_fine_tuning_all_clients_are_served_the_same_model(backend):
    world = ragged()
    run = finish(FedBABU(adapt_epochs=0), world, backend)
    models = [run.personal(client) for client in world.data.clients]
    for model in models[1:]:
        assert_same(model, models[0])
    assert "same model" in run.warnings[0]


@BOTH
def test_before_fine_tuning_is_one_model_and_after_it_one_for_each(backend):
    world = ragged()
    run = finish(FedBABU(), world, backend, cohort=3)
    before, after = (
        {c: run.personal(c, point) for c in world.data.clients}
        for point in ("after_broadcast", "after_adapt")
    )
    for client in world.data.clients:
        assert_same(before[client], before["many"])
        assert differ(after[client], before[client])
    assert differ(after["few"], after["many"])


def test_fine_tuning_is_not_written_back():
    # A library whose fine-tuning destroys the training state cannot go on training.
    world = ragged()
    course = motet.rounds(FedBABU(), world.task, world.data, rounds=3, backend="serial")
    for done in course:
        kept = clone(everything(done.run))
        done.evaluate(split="val")
        assert_same(everything(done.run), kept)
    assert_same(everything(done.run), everything(finish(FedBABU(), world, rounds=3)))


@BOTH
@pytest.mark.parametrize("tune", ["body", "head"])
def test_the_part_that_is_not_tuned_stays(tune, backend):
    world = batch_norm()
    method = FedBABU(tune=tune, optimizer=Sgd(lr=0.1, weight_decay=0.1))
    run = finish(method, world, backend, rounds=1)
    head, _ = parts(run)
    before, after = (run.personal("many", p) for p in ("after_broadcast", "after_adapt"))
    first, second = (pick, drop) if tune == "head" else (drop, pick)
    assert differ(first(after, head), first(before, head))
    assert_same(second(after, head), second(before, head))


@BOTH
def test_a_new_client_is_served_as_an_old_one_with_its_data(backend):
    world = ragged()
    run = finish(FedBABU(batch_size=None), world, backend)
    newcomer = run.adapt(*world.data.examples("few", "train")).personal
    assert_close(newcomer, run.personal("few"))


def test_a_network_that_is_all_head_is_refused_and_the_defaults_are_not():
    world = ragged()
    with pytest.raises(RequestError, match="train nothing"):
        finish(FedBABU(head=("body", "head")), world, rounds=0)
    with pytest.raises(RequestError, match="tune= is one of"):
        FedBABU(tune="all")
    assert not finish(FedBABU(), world, rounds=0).warnings
