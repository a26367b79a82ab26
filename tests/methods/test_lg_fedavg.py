"""LG-FedAvg: the upper layers are averaged, the lower ones stay."""

import pytest
from arithmetic import BACKENDS
from torch import nn
from toys import assert_same
from two_layers import PRODUCT, base_step, differ, everything, finish, head_step, products

import motet
from motet import Blocks, FedAvg, Local, Mean, Sgd
from motet._core.tree import count_bytes
from motet.methods._fedsim import FedSim
from motet.methods._lg_fedavg import LGFedAvg
from motet.testing._worlds import CLASSES, FEATURES, World, batch_norm, ragged, ragged_data

BOTH = pytest.mark.parametrize("backend", BACKENDS)
UNIFORM = Mean(weights="uniform")
EVERYTHING = ("body", "head")


def three_blocks():
    layers = [nn.Linear(FEATURES, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)]
    return World("three_blocks", motet.Task(lambda: nn.Sequential(*layers)), ragged_data())


@BOTH
def test_one_round_by_hand_every_client_counts_once(backend):
    data = products(a=(1, 2, 1), b=(2, 1, 3))  # three examples weigh no more than one
    method = LGFedAvg(shared=("head",), optimizer=Sgd(lr=0.1), batch_size=None)
    run = motet.run(method, PRODUCT, data, rounds=1, backend=backend, init={"base": 0.5})
    start = {"base": 0.5, "head": 1.0, "lr": 0.1}
    heads = [head_step(x=1, y=2, **start), head_step(x=2, y=1, **start)]
    assert run.server["head"].item() == pytest.approx(sum(heads) / 2)
    assert run.clients["a"]["base"].item() == pytest.approx(base_step(x=1, y=2, **start))
    assert run.clients["b"]["base"].item() == pytest.approx(base_step(x=2, y=1, **start))


def test_layers_are_counted_from_the_output_not_from_the_input():
    # Counting the global layers from the input shares the encoder instead: a known mistake.
    world = three_blocks()
    run = finish(LGFedAvg(shared=Blocks(last=2)), world, rounds=1)
    assert set(run.server) == {"1.weight", "1.bias", "2.weight", "2.bias"}
    assert set(run.clients["many"]) == {"0.weight", "0.bias"}


def test_only_the_upper_layers_cross_the_network():
    world = ragged()
    (done,) = motet.rounds(LGFedAvg(), world.task, world.data, rounds=1, cohort=3)
    upper = count_bytes({k: v for k, v in done.run.setting.initial.items() if "head" in k})
    assert done.bytes_up == done.bytes_down == 3 * upper


@BOTH
def test_with_everything_shared_it_is_fedavg_of_equal_clients(backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    lg = finish(LGFedAvg(shared=EVERYTHING, **settings), world, backend, cohort=3)
    fedavg = finish(FedAvg(reduce=UNIFORM, **settings), world, backend, cohort=3)
    assert_same(everything(lg), everything(fedavg))
    assert "fedavg" in lg.warnings[0]
    assert "shared=" in lg.warnings[0]


@BOTH
def test_with_nothing_shared_it_is_local(backend):
    world, settings = ragged(), {"epochs": 2, "batch_size": 4}
    lg = finish(LGFedAvg(shared=(), **settings), world, backend, cohort=3)
    assert_same(dict(lg.clients), dict(finish(Local(**settings), world, backend, cohort=3).clients))
    assert "local" in lg.warnings[0]


@BOTH
def test_it_is_fedsim_with_a_personal_body(backend):
    world = ragged()
    lg = finish(LGFedAvg(), world, backend, cohort=3)
    fedsim = finish(FedSim(personal=("body",), reduce=UNIFORM), world, backend, cohort=3)
    assert_same(everything(lg), everything(fedsim))


def test_a_warm_start_from_fedavg_hands_both_parts_over():
    world = ragged()
    fedavg = finish(FedAvg(), world, rounds=3)
    warm = finish(LGFedAvg(), world, rounds=0, init=fedavg.server)
    x = world.data.examples("many", "test").x
    for client in world.data.clients:
        assert_same(warm.predict(client, x, "after_broadcast"), fedavg.predict(client, x))
    run = finish(LGFedAvg(adapt_epochs=0), world, rounds=1, init=fedavg.server, cohort=2)
    newcomer = run.adapt(*world.data.examples("few", "train")).personal
    assert_same(newcomer, fedavg.server | run.server)


@BOTH
def test_a_new_client_trains_its_own_encoder_under_the_frozen_head(backend):
    world = ragged()
    run = finish(LGFedAvg(), world, backend, rounds=1, cohort=2)
    own = world.data.examples("few", "train")
    personal = run.adapt(*own).personal
    assert_same({k: personal[k] for k in run.server}, run.server)
    assert differ(personal, run.setting.initial | run.server)
    untouched = finish(LGFedAvg(adapt_epochs=0), world, backend, rounds=1, cohort=2)
    start = run.setting.initial | untouched.server
    assert_same(untouched.adapt(*own).personal, start)


def test_the_defaults_are_neither_fedavg_nor_local():
    world = ragged()
    lg = finish(LGFedAvg(), world)
    assert not lg.warnings
    fedavg, local = finish(FedAvg(reduce=UNIFORM), world), finish(Local(), world)
    model = lg.personal("many")
    assert differ(model, fedavg.personal("many"))
    assert differ(model, local.personal("many"))


def test_statistics_of_the_encoder_stay_with_it():
    world = batch_norm()
    run = finish(LGFedAvg(), world)
    statistics = {name for name in world.task.names if world.task.is_buffer(name)}
    assert statistics <= set(run.clients["many"])
    assert not statistics & set(run.server)
    assert differ(run.clients["few"], run.clients["many"])
