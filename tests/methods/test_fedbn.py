"""FedBN: normalisation layers stay, found by their type."""

import pytest
import torch
from arithmetic import BACKENDS
from torch import nn
from toys import assert_close, assert_same
from two_layers import differ, everything, finish

import motet
from motet import FedAvg, Key, Mean, Sgd
from motet._core.tree import count_bytes, drop, pick, slot
from motet.methods._fedbn import FedBN
from motet.testing import check_method
from motet.testing._worlds import batch_norm, ragged

BOTH = pytest.mark.parametrize("backend", BACKENDS)
UNIFORM = Mean(weights="uniform")


class Misnamed(nn.Module):
    """Normalisation under other names, as in a residual shortcut, and "bn" for what is none."""

    def __init__(self):
        super().__init__()
        self.bn1 = nn.Linear(4, 4)
        self.downsample = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.scale = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.scale(self.downsample(self.bn1(x))))


def norms(run):
    return set(run.clients["many"])


def test_layers_are_found_by_type_and_never_by_name():
    # Matching the text "bn" misses `downsample.1` of every residual network: a known mistake.
    world = batch_norm()
    run = motet.run(FedBN(), motet.Task(Misnamed), world.data, rounds=1)
    layers = {name.rpartition(".")[0] for name in norms(run)}
    assert layers == {"downsample.1", "scale"}
    assert {"bn1.weight", "bn1.bias", "downsample.0.weight"} <= set(run.server)


@BOTH
def test_without_norm_layers_it_is_fedavg_and_says_so(backend):
    world, settings = ragged(), {"epochs": 2, "batch_size": 4}
    bn = finish(FedBN(**settings), world, backend, cohort=3)
    fedavg = finish(FedAvg(reduce=UNIFORM, **settings), world, backend, cohort=3)
    assert_same(everything(bn), everything(fedavg))
    assert bn.warnings[0].startswith("FedBN without norm layers is FedAvg")


@BOTH
def test_it_is_fedavg_whose_norm_layers_stay_at_home(backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    bn = finish(FedBN(**settings), world, backend, cohort=3)
    home = FedAvg(norm="local_layers", reduce=UNIFORM, **settings)
    fedavg = finish(home, world, backend, cohort=3)
    assert_same(pick(bn.server, fedavg.server), fedavg.server)
    assert_same(dict(bn.clients), dict(fedavg.clients))
    assert not bn.warnings


@BOTH
def test_statistics_are_those_of_the_clients_own_data(backend):
    world = batch_norm()
    run = finish(FedBN(batch_size=None), world, backend, rounds=1)
    first = run.setting.initial["body.0.weight"]
    for client in ("many", "few"):
        x = world.data.examples(client, "train").x
        expected = 0.1 * (x @ first.T).mean(0)  # one step from 0 with momentum 0.1
        torch.testing.assert_close(run.clients[client]["body.1.running_mean"], expected)


@BOTH
def test_the_server_keeps_the_average_of_norm_layers_and_sends_it_to_no_one_who_trains(backend):
    world = batch_norm()
    (done,) = motet.rounds(FedBN(), world.task, world.data, rounds=1, backend=backend)
    run, clients = done.run, world.data.clients
    kept = slot("norm", run.server)
    assert set(kept) == norms(run)
    mean = torch.stack([run.clients[c]["body.1.running_var"] for c in clients]).mean(0)
    torch.testing.assert_close(kept["body.1.running_var"], mean)
    shared = drop(run.setting.initial, norms(run))
    assert done.bytes_down == len(clients) * count_bytes(shared)
    assert done.bytes_up == len(clients) * count_bytes(run.setting.initial)


@BOTH
def test_a_new_client_takes_the_average_and_tunes_it_under_frozen_layers(backend):
    world = batch_norm()
    untuned = finish(FedBN(adapt_epochs=0), world, backend, cohort=2)
    own = world.data.examples("few", "train")
    shared = drop(untuned.setting.initial, norms(untuned)).keys()
    model = pick(untuned.server, shared) | slot("norm", untuned.server)
    assert_same(untuned.adapt(*own).personal, model)
    idle = sorted(set(world.data.clients) - set(untuned.setting.store))[0]
    assert_same(untuned.personal(idle), model)
    tuned = finish(FedBN(), world, backend, cohort=2).adapt(*own).personal
    assert_same(pick(tuned, shared), pick(model, shared))
    assert differ(drop(tuned, shared), drop(model, shared))


@BOTH
def test_a_client_that_has_trained_is_served_its_own_layers(backend):
    world = batch_norm()
    run = finish(FedBN(), world, backend)
    for point in ("after_broadcast", "after_adapt"):
        personal = run.personal("few", point)
        assert set(personal) == set(world.task.names)
        assert_same(pick(personal, norms(run)), run.clients["few"])


def test_a_server_optimizer_steps_on_the_shared_layers_alone():
    world, half = batch_norm(), Sgd(lr=0.5)
    plain, stepped = (
        finish(FedBN(server_optimizer=optimizer), world, rounds=1) for optimizer in (None, half)
    )
    assert_same(slot("norm", stepped.server), slot("norm", plain.server))
    initial = plain.setting.initial["head.weight"]
    middle = (initial + plain.server["head.weight"]) / 2
    torch.testing.assert_close(stepped.server["head.weight"], middle)


@BOTH
def test_norm_layers_can_be_kept_at_home_altogether(backend):
    world = batch_norm()
    run = finish(FedBN(average_norm=False, adapt_epochs=0), world, backend, cohort=2)
    assert not slot("norm", run.server)
    newcomer = run.adapt(*world.data.examples("few", "train")).personal
    assert_close(newcomer, run.setting.initial | run.server)
    average = finish(FedBN(), world, backend, cohort=2)
    assert_same(pick(average.server, run.server), run.server)


def test_it_passes_the_conformance_suite_with_norm_layers():
    world = batch_norm()
    check_method(FedBN(), world.task, world.data)


def test_group_normalisation_counts():
    task = motet.Task(lambda: nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)))
    kept = FedBN().init_client(task, task.init(Key(0)), Key(1))
    assert set(kept) == {"1.weight", "1.bias"}
