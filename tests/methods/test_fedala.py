"""FedALA: learnt weights between a client's own upper layers and the received ones."""

import numpy as np
import pytest
import torch
from arithmetic import BACKENDS
from toys import assert_close, assert_same
from two_layers import differ, finish

import motet
from motet import FedAvg, Key, Local, Sgd
from motet._core.schedules import Linear
from motet._core.tree import drop, pick, slot
from motet._training.batching import Plan, draw
from motet.errors import RequestError
from motet.methods._fedala import FedALA, mixture
from motet.testing._worlds import batch_norm, quadratic, ragged

BOTH = pytest.mark.parametrize("backend", BACKENDS)
EVERYTHING = ("body", "head")
STILL = {"optimizer": Sgd(lr=0.0), "batch_size": None, "share": 1.0, "mixed": ("w",)}


def after(own, received, target, *, backend, rounds=1, weight=1.0, **settings):
    """Return W and the model of one client after it has been sent `received`."""
    world = quadratic({"a": [target]})
    kept = {"own/w": [own], "weight/w": [weight], "rounds": rounds}
    method = FedALA(**(STILL | settings))
    run = finish(method, world, backend, 1, init={"w": [received]}, init_clients={"a": kept})
    return run.clients["a"]["weight/w"].item(), run.clients["a"]["own/w"].item()


def searched(own, received, target, passes, lr, weight=1.0):
    """Step W by hand: the slope of (w - a)^2 / 2 times (global - own), clipped to [0, 1]."""
    for _ in range(passes):
        mixed = own + (received - own) * weight
        weight = min(max(weight - lr * (mixed - target) * (received - own), 0.0), 1.0)
    return weight


@BOTH
def test_one_pass_by_hand_and_training_starts_from_the_mixture(backend):
    weight, model = after(1.0, 3.0, 1.5, backend=backend, weight_lr=0.1, first_epochs=1)
    expected = searched(1.0, 3.0, 1.5, 1, 0.1)
    assert weight == pytest.approx(expected)
    assert model == pytest.approx(1.0 + 2.0 * expected)


@BOTH
def test_the_first_search_takes_many_passes_and_later_ones_a_single_one(backend):
    about = {"backend": backend, "weight_lr": 0.05, "first_epochs": 4}
    first, _ = after(1.0, 3.0, 1.5, rounds=1, **about)
    later, _ = after(1.0, 3.0, 1.5, rounds=2, **about)
    assert first == pytest.approx(searched(1.0, 3.0, 1.5, 4, 0.05))
    assert later == pytest.approx(searched(1.0, 3.0, 1.5, 1, 0.05))


@BOTH
@pytest.mark.parametrize(("target", "weight"), [(-50.0, 0.0), (50.0, 1.0)])
def test_weights_stay_in_the_unit_interval(target, weight, backend):
    assert after(1.0, 3.0, target, backend=backend, weight=0.5)[0] == weight


@BOTH
def test_in_its_first_round_a_client_takes_the_received_model(backend):
    weight, model = after(1.0, 3.0, 1.5, rounds=0, backend=backend)
    assert (weight, model) == (1.0, 3.0)


@BOTH
@pytest.mark.parametrize("knob", [{"weight_lr": 0.0, "mixed": EVERYTHING}, {"mixed": ()}])
def test_with_all_weights_at_1_it_is_fedavg(knob, backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    ala = finish(FedALA(**knob, **settings), world, backend, 3, cohort=4)
    fedavg = finish(FedAvg(**settings), world, backend, 3, cohort=4)
    assert_same(ala.server, fedavg.server)
    assert all("fedavg" in warning for warning in ala.warnings)
    assert ala.warnings


@BOTH
def test_with_all_weights_at_0_it_is_local(backend):
    world = ragged()
    method = FedALA(weight_lr=0.0, mixed=EVERYTHING)
    fresh = finish(method, world, rounds=0).clients
    zeros = {c: {k: v * (not k.startswith("weight/")) for k, v in fresh[c].items()} for c in fresh}
    run = finish(method, world, backend, 3, init_clients=zeros)
    local = finish(Local(), world, backend, 3)
    for client in world.data.clients:
        assert_close(slot("own", run.clients[client]), local.clients[client])


@BOTH
def test_lower_layers_are_taken_as_received_and_upper_ones_are_mixed(backend):
    world = ragged()
    run = finish(FedALA(weight_lr=0.0), world, backend, 3)  # so W stays as the client kept it
    for client in world.data.clients:
        own, weight = (slot(part, run.clients[client]) for part in ("own", "weight"))
        assert set(weight) == {"head.weight", "head.bias"}
        arrived = run.personal(client, "after_broadcast")
        assert_same(drop(arrived, weight), drop(run.server, weight))
        gap = {k: (run.server[k] - own[k]) * weight[k] + own[k] for k in weight}
        assert_close(pick(arrived, weight), gap)


def test_a_mixture_is_exact_at_both_ends():
    own, received = {"w": torch.tensor(0.1)}, {"w": torch.tensor(0.7)}
    assert mixture(received, own, {"w": torch.tensor(1.0)})["w"] == received["w"]
    assert mixture(received, own, {"w": torch.tensor(0.0)})["w"] == own["w"]


@BOTH
def test_after_adapt_is_the_last_local_model(backend):
    world = ragged()
    run = finish(FedALA(), world, backend)
    for client in world.data.clients:
        assert_same(run.personal(client, "after_adapt"), slot("own", run.clients[client]))


@BOTH
@pytest.mark.parametrize("rounds", [1, 2, 3])  # W is searched for longer after the first
def test_served_is_the_model_that_the_next_local_training_starts_from(backend, rounds):
    world = ragged()
    run = finish(FedALA(first_epochs=3), world, backend, rounds)
    served = {client: run.personal(client) for client in world.data.clients}
    idle = run.serving(method=FedALA(first_epochs=3, epochs=0))
    idle.advance()
    for client, model in served.items():
        assert_close(model, slot("own", idle.clients[client]))


@BOTH
def test_scores_are_the_authors_after_local_aggregation_and_before_training(backend):
    """The authors' loop in NumPy: send, aggregate locally, score, train, average."""
    targets, lr, eta, first_epochs = {"a": [1.0, 2.0], "b": [5.0]}, 0.1, 0.1, 4
    world = quadratic(targets)
    method = FedALA(
        mixed=("w",),
        optimizer=Sgd(lr=lr),
        weight_lr=eta,
        share=1.0,
        first_epochs=first_epochs,
        batch_size=None,
    )
    course = motet.rounds(method, world.task, world.data, rounds=4, backend=backend)
    received = finish(method, world, backend, 0).server["w"].item()
    aims, sizes = {c: np.mean(a) for c, a in targets.items()}, {c: len(targets[c]) for c in targets}
    own, weight = {}, dict.fromkeys(targets, 1.0)
    served = dict.fromkeys(targets, received)  # before the first round
    for number, done in enumerate(course):
        start = {}
        for client, aim in aims.items():
            if client in own:
                gap = received - own[client]
                for _ in range(first_epochs if number == 1 else 1):
                    slope = gap * (own[client] + gap * weight[client] - aim)
                    weight[client] = np.clip(weight[client] - eta * slope, 0, 1)
                start[client] = own[client] + gap * weight[client]
            else:
                start[client] = received
            assert served[client] == pytest.approx(start[client], abs=1e-6)
            own[client] = start[client] - lr * (start[client] - aim)
        received = sum(sizes[c] * own[c] for c in own) / sum(sizes.values())
        served = {client: done.run.personal(client)["w"].item() for client in targets}
    assert any(0 < w < 1 for w in weight.values())


@BOTH
def test_a_new_client_trains_the_global_model(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = FedALA(mixed=("w",), optimizer=Sgd(lr=0.1), batch_size=None, adapt_epochs=2)
    run = finish(method, world, backend)
    w = run.server["w"].item()
    for _ in range(2):
        w -= 0.1 * (w - 9.0)
    newcomer = run.adapt(torch.zeros(1, 1), torch.tensor([9.0])).personal
    assert newcomer["w"].item() == pytest.approx(w, abs=1e-6)


def test_a_schedule_for_training_leaves_the_search_alone():
    schedule = Linear(warmup=0.5)  # a factor of 0 in round 0
    weight, _ = after(1.0, 3.0, 1.5, backend="serial", weight_lr=0.05, schedule=schedule)
    assert weight == pytest.approx(searched(1.0, 3.0, 1.5, 10, 0.05))


def test_the_search_changes_the_update():
    world = ragged()
    usual = finish(FedALA(), world, rounds=3)
    for other in (FedALA(weight_lr=0.1), FedALA(share=0.3), FedALA(first_epochs=1), FedAvg()):
        assert differ(usual.server, finish(other, world, rounds=3).server)
    assert not usual.warnings


def test_what_makes_no_sense_is_refused():
    for knob in ({"weight_lr": -1.0}, {"first_epochs": 0}, {"share": 0.0}, {"share": 1.5}):
        with pytest.raises(RequestError):
            FedALA(**knob)


# ---- a share of the data ------------------------------------------------------------------------


def rows(size, number, **plan):
    key = Key(0).fold("batches", number)
    order = draw(Plan(**plan), size, key, Key(0).fold("client"))
    return np.sort(order.rows[order.weight > 0]).tolist()


@pytest.mark.parametrize(("size", "share", "expected"), [(10, 0.8, 8), (7, 0.5, 4), (1, 0.1, 1)])
def test_a_share_is_rounded_up_and_walks_each_of_its_examples_once(size, share, expected):
    walked = rows(size, 0, share=share, batch_size=3)
    assert len(walked) == len(set(walked)) == expected == Plan(share=share).examples(size)


def test_a_share_is_drawn_anew_in_every_round_but_once_in_each():
    shares = [rows(20, number, share=0.5, batch_size=4, epochs=3) for number in (0, 1)]
    assert set(shares[0]) != set(shares[1])
    assert all(len(set(share)) == 10 and len(share) == 30 for share in shares)


def test_a_share_of_a_part_lies_in_the_part():
    part, half = rows(20, 0, part=(0, 2)), rows(20, 0, part=(0, 2), share=0.5)
    assert set(half) < set(part)
    assert len(half) == 5
