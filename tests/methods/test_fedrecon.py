"""FedRecon: the personal part is rebuilt on one half, the shared part trained on the other."""

import pytest
from arithmetic import BACKENDS
from toys import assert_close, assert_same
from two_layers import PRODUCT, base_step, differ, everything, finish, head_step, products

import motet
from motet import FedAvg, Sgd
from motet._core.aggregation.mean import Mean
from motet._core.tree import pick
from motet.errors import CapabilityError
from motet.methods._fedalt import FedAlt
from motet.methods._fedrecon import FedRecon
from motet.optim import Yogi
from motet.testing._worlds import batch_norm, ragged

BOTH = pytest.mark.parametrize("backend", BACKENDS)
HEAVY = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)


def rows(run, client, number):
    """Return the examples that support and query walk in one round."""
    setting = run.setting
    data = setting.data(client, setting.method.plans(), number)
    return [set(phase.rows[phase.weight > 0].tolist()) for phase in data.values()]


@BOTH
def test_one_round_by_hand_clients_count_by_their_query_examples(backend):
    data = products(a=(1, 2, 4), b=(2, 1, 7))  # 2 and 3 examples to query
    method = FedRecon(recon_epochs=2, optimizer=Sgd(lr=0.1), batch_size=None)
    run = motet.run(method, PRODUCT, data, rounds=1, backend=backend, init={"base": 0.5})
    bodies = []
    for x, y in ((1, 2), (2, 1)):
        head = 1.0
        for _ in range(2):
            head = head_step(0.5, head, x, y, 0.1)
        bodies.append(base_step(0.5, head, x, y, 0.1))
    assert run.server["base"].item() == pytest.approx((2 * bodies[0] + 3 * bodies[1]) / 5)


def test_weights_by_query_examples_hold_for_any_reduction():
    data = products(a=(1, 2, 4), b=(2, 1, 7))
    for weights, expected in (("examples", (2, 3)), ("uniform", (1, 1)), ("batches", (1, 2))):
        method = FedRecon(reduce=Mean(weights=weights), batch_size=2)
        setting = motet.run(method, PRODUCT, data, rounds=0).setting
        assert (setting.weight("a"), setting.weight("b")) == expected


def test_support_and_query_are_the_same_disjoint_halves_in_every_round():
    # Halves cut from a reshuffled stream swap examples between rounds: a known mistake.
    world = ragged()
    run = finish(FedRecon(batch_size=4), world, rounds=0)
    for client in ("many", "few", "unchecked"):
        support, query = rows(run, client, 0)
        assert not support & query
        assert support | query == set(range(world.data.size(client, "train")))
        for number in (1, 2, 7):
            assert rows(run, client, number) == [support, query]


def test_the_batches_within_a_half_are_shuffled_anew():
    run = finish(FedRecon(batch_size=4), ragged(), rounds=0)
    plans = run.setting.method.plans()
    first, second = (run.setting.data("many", plans, n)["support"].rows for n in (0, 1))
    assert differ({"rows": first}, {"rows": second})


@BOTH
def test_nothing_personal_is_remembered(backend):
    world = ragged()
    run = finish(FedRecon(), world, backend, rounds=3)
    start = pick(run.setting.initial, world.task.select("head"))
    for client in world.data.clients:
        assert_same(run.clients[client], start)
        assert differ(pick(run.personal(client), start), start)
    with pytest.raises(CapabilityError, match="forgets"):
        run.personal("many", "after_local")


@BOTH
def test_rebuilding_moves_only_the_personal_part_and_a_round_uploads_only_the_shared_one(backend):
    world = batch_norm()
    run = finish(FedRecon(epochs=0, optimizer=HEAVY), world, backend, rounds=1)
    assert_same(run.server, pick(run.setting.initial, run.server))
    served = run.personal("many")
    assert_same(pick(served, run.server), run.server)
    assert set(run.server) == set(world.task.names) - world.task.select("head")


@BOTH
def test_without_a_personal_part_it_is_fedavg_with_any_server_optimizer(backend):
    world = batch_norm()
    settings = {"epochs": 2, "batch_size": 4, "server_optimizer": Yogi(lr=0.1)}
    recon = FedRecon(personal=(), disjoint=False, **settings)
    run = finish(recon, world, backend, cohort=3)
    assert_same(everything(run), everything(finish(FedAvg(**settings), world, backend, cohort=3)))
    assert "fedavg" in run.warnings[0]


@BOTH
def test_on_undivided_data_it_is_fedalt_that_keeps_nothing(backend):
    world, settings = batch_norm(), {"optimizer": HEAVY, "batch_size": 4}
    recon = FedRecon(disjoint=False, recon_epochs=3, epochs=2, **settings)
    alt = FedAlt(keep_personal=False, personal_epochs=3, shared_epochs=2, **settings)
    one, other = (finish(method, world, backend, cohort=3) for method in (recon, alt))
    assert_same(everything(one), everything(other))


@BOTH
def test_old_and_new_clients_are_served_alike_from_all_their_training_data(backend):
    data = products(a=(1, 2, 5), b=(2, 1, 3))
    method = FedRecon(recon_epochs=2, optimizer=Sgd(lr=0.1), batch_size=None)
    run = motet.run(method, PRODUCT, data, rounds=1, backend=backend)
    base, head = run.server["base"].item(), 1.0
    for _ in range(2):
        head = head_step(base, head, 1, 2, 0.1)
    assert run.personal("a")["head"].item() == pytest.approx(head)
    assert_close(run.adapt(*data.examples("a", "train")).personal, run.personal("a"))
    served = run.setting.data("a", run.setting.serving_plans("after_adapt"), 1)["support"]
    assert set(served.rows.flatten().tolist()) == set(range(5))


def test_the_split_and_the_reconstruction_change_the_shared_part():
    world = ragged()
    usual = finish(FedRecon(), world, rounds=1)
    for other in (FedRecon(disjoint=False), FedRecon(recon_epochs=1), FedRecon(recon_epochs=0)):
        assert differ(usual.server, finish(other, world, rounds=1).server)
    assert not usual.warnings
    assert "recon_epochs=0" in finish(FedRecon(recon_epochs=0), world, rounds=0).warnings[0]


def test_personal_and_shared_part_may_have_an_optimizer_each():
    data = products(a=(1, 2, 2))
    method = FedRecon(
        recon_epochs=1, recon_optimizer=Sgd(lr=0.3), optimizer=Sgd(lr=0.1), batch_size=None
    )
    run = motet.run(method, PRODUCT, data, rounds=1)
    head = head_step(1.0, 1.0, 1, 2, 0.3)
    assert run.server["base"].item() == pytest.approx(base_step(1.0, head, 1, 2, 0.1))
