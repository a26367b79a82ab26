import math

import pytest
import torch
from torch import nn
from toys import arrays, assert_close, largest_gap

import motet
from motet._core import tree
from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._engine.faults import Faults
from motet.config._values import from_plain, to_plain
from motet.errors import CapabilityError, RequestError
from motet.method import PerClient, RoundInfo
from motet.privacy._accounting import ORDERS, client_epsilon
from motet.privacy._ledger import spending
from motet.privacy._optimizer import Private
from motet.privacy._uploads import PrivateMean
from motet.task import Task

TASK = Task(lambda: nn.Linear(4, 3))
DATA = arrays({"a": 12, "b": 30, "c": 7})


def released(mean, uploads, down, *, cohort=None, number=0):
    clients = tuple(sorted(uploads))
    stacked = tree.stack([uploads[client] for client in clients])
    info = RoundInfo(number, 1, cohort or clients, clients, Key(0).fold("server", number))
    return mean.release(mean.lift(clients, stacked, torch.ones(len(clients))), down, info)


def test_changes_are_bounded_and_clients_count_equally():
    down = {"w": torch.tensor([1.0, 1.0])}
    uploads = {"near": {"w": torch.tensor([1.3, 1.4])}, "far": {"w": torch.tensor([4.0, 5.0])}}
    mean = released(PrivateMean(clip=0.5, noise=0.0), uploads, down)
    # (0.3, 0.4) has norm 0.5, and so has (3, 4) after clipping.
    assert_close(mean, {"w": torch.tensor([1.3, 1.4])})


def test_a_lost_reply_counts_as_no_change():
    down, uploads = {"w": torch.zeros(2)}, {"a": {"w": torch.tensor([0.3, 0.4])}}
    mean = released(PrivateMean(noise=0.0), uploads, down, cohort=("a", "b"))
    assert_close(mean, {"w": torch.tensor([0.15, 0.2])})


def test_what_was_not_sent_is_a_change_already():
    uploads = {"a": {"change": torch.tensor([3.0, 4.0])}}
    assert_close(
        released(PrivateMean(noise=0.0), uploads, {}), {"change": torch.tensor([0.6, 0.8])}
    )


def test_the_noise_has_the_deviation_that_was_asked_for_and_is_new_in_every_round():
    down = {"w": torch.zeros(20_000)}
    uploads = dict.fromkeys("abcd", down)
    first, other = (
        released(PrivateMean(clip=0.5, noise=3.0), uploads, down, number=n)["w"] for n in (0, 1)
    )
    assert abs(first.std() / (3.0 * 0.5 / 4) - 1) < 4 / math.sqrt(2 * len(first))
    assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1]) < 0.05


def test_without_noise_and_with_a_wide_bound_it_is_the_plain_mean():
    private, plain = (
        motet.run(motet.FedAvg(reduce=reduce), TASK, DATA, rounds=2)
        for reduce in (PrivateMean(clip=1e9, noise=0.0), Mean(weights="uniform"))
    )
    assert largest_gap(private.server, plain.server) < 1e-6


def test_both_backends_release_the_same():
    serial, stacked = (
        motet.run(
            motet.FedPer(reduce=PrivateMean(), personal=("bias",)),
            TASK,
            DATA,
            rounds=2,
            cohort=2,
            backend=backend,
        )
        for backend in ("serial", "vectorized")
    )
    assert_close(stacked.server, serial.server, 1e-6)


def test_epsilon_is_that_of_cohorts_of_one_size():
    import dp_accounting as dp

    run = motet.run(motet.FedAvg(reduce=PrivateMean(noise=4.0)), TASK, DATA, rounds=3, cohort=2)
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(3, 2, dp.GaussianDpEvent(2.0)), 3)
    spent = spending(run)
    assert spent["epsilon"] == dict.fromkeys("abc", pytest.approx(accountant.get_epsilon(1e-5)))
    assert "the server itself sees single uploads" in spent["protects"]


def test_small_cohorts_and_few_rounds_spend_less():
    few = client_epsilon(1000, 10, 50, noise=4.0, delta=1e-5)
    assert few < client_epsilon(1000, 100, 50, noise=4.0, delta=1e-5)
    assert few < client_epsilon(1000, 10, 500, noise=4.0, delta=1e-5)
    assert client_epsilon(1000, 10, 0, noise=4.0, delta=1e-5) == 0


@pytest.mark.parametrize(
    ("reduce", "settings", "because"),
    [
        (PrivateMean(noise=0.0), {}, "noise=0"),
        (PrivateMean(), {"faults": Faults(unavailable=0.3)}, "not drawn from all"),
    ],
)
def test_no_epsilon_where_the_guarantee_does_not_hold(reduce, settings, because):
    run = motet.run(motet.FedAvg(reduce=reduce), TASK, DATA, rounds=1, **settings)
    assert spending(run).keys() == {"protects"}
    assert because in spending(run)["protects"]


@pytest.mark.parametrize(
    "method",
    [
        motet.FedFomo(reduce=PrivateMean()),
        motet.FedAvgShared(reduce=PrivateMean()),
        motet.FedAvg(reduce=PrivateMean(), optimizer=Private()),
    ],
    ids=["single uploads", "shared examples", "two accounts"],
)
def test_methods_that_a_noisy_mean_does_not_make_private_are_refused(method):
    with pytest.raises(CapabilityError, match="cannot take a PrivateMean"):
        motet.run(method, TASK, DATA, rounds=0)


def test_counters_are_refused():
    task = Task(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)))
    with pytest.raises(CapabilityError, match="counter"):
        motet.run(motet.FedAvg(reduce=PrivateMean()), task, DATA, rounds=1)


def test_broadcasts_that_differ_are_refused():
    uploads = {"a": {"w": torch.zeros(2)}}
    with pytest.raises(CapabilityError, match="sends the same to all"):
        released(PrivateMean(), uploads, PerClient(uploads))


def test_nobody_gets_the_mean_without_the_noise():
    with pytest.raises(CapabilityError, match="in one process"):
        PrivateMean().finish({}, {})


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"clip": math.inf}, {"noise": -1}, {"delta": 2}])
def test_values_that_mean_nothing_are_refused(wrong):
    with pytest.raises(RequestError):
        PrivateMean(**wrong)


def test_a_config_can_hold_a_private_mean():
    written = to_plain(PrivateMean(noise=2.0))
    assert written["kind"] == "private-mean"
    assert from_plain(Reduce, written, "reduce") == PrivateMean(noise=2.0)
