"""FedDyn against arithmetic, FedProx and FedAvg, and the laws of its dual variables."""

from __future__ import annotations

import pytest
from arithmetic import BACKENDS, BOWL, NORMED, bowls, classes, differ, finish, uploads
from toys import assert_close, assert_same

from motet import FedAvg, Mean, Sgd
from motet._core import tree
from motet.errors import RequestError
from motet.methods._feddyn import FedDyn
from motet.methods._fedprox import FedProx

UNIFORM = Mean(weights="uniform")
UNEVEN = {"a": (1.0, 4.0, 1), "b": (5.0, -2.0, 3), "c": (0.5, 1.0, 2)}
OPTIMUM = (4.0 - 10.0 + 0.5) / 6.5  # of the mean of the clients' losses


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def by_hand(cohorts, *, alpha, lr, steps, start):
    """Follow the paper's algorithm on `UNEVEN`, one number at a time."""
    w, h, dual = start, 0.0, dict.fromkeys(UNEVEN, 0.0)
    for cohort in cohorts:
        ends = {}
        for client in cohort:
            curvature, optimum, _ = UNEVEN[client]
            y = w
            for _ in range(steps):
                y -= lr * (curvature * (y - optimum) - dual[client] + alpha * (y - w))
            ends[client] = y
        for client, y in ends.items():
            dual[client] -= alpha * (y - w)
        h -= alpha / len(UNEVEN) * sum(y - w for y in ends.values())
        w = sum(ends.values()) / len(ends) - h / alpha
    return w, h, dual


@pytest.mark.parametrize("cohort", [1.0, 2])
def test_rounds_are_the_papers_algorithm(cohort, backend):
    method = FedDyn(alpha=0.5, steps=3, batch_size=None, optimizer=Sgd(lr=0.1))
    run = finish(method, BOWL, bowls(**UNEVEN), backend, rounds=0, cohort=cohort, init={"w": 2.0})
    cohorts = [run.advance().cohort for _ in range(3)]
    w, h, dual = by_hand(cohorts, alpha=0.5, lr=0.1, steps=3, start=2.0)
    assert float(run.server["w"]) == pytest.approx(w, abs=1e-5)
    assert float(run.server["dual/w"]) == pytest.approx(h, abs=1e-5)
    for client, value in dual.items():
        assert float(run.clients[client]["dual/w"]) == pytest.approx(value, abs=1e-5)


def test_the_penalty_is_the_squared_norm(backend):
    """PFLlib adds alpha / 2 times the norm itself; then a client ends somewhere else."""
    method = FedDyn(alpha=2.0, steps=25, batch_size=None)
    data = bowls(a=(4.0, 3.0))
    (came,) = uploads(method, BOWL, data, backend=backend, init={"w": -1.0}).values()
    assert float(came["w"]) == pytest.approx((4.0 * 3.0 + 2.0 * -1.0) / 6.0, abs=1e-5)


def test_it_ends_at_the_common_optimum_where_fedavg_and_fedprox_stay_off(backend):
    settings = {"steps": 3, "batch_size": None, "optimizer": Sgd(lr=0.2)}
    data, rounds = bowls(**UNEVEN), 15
    run = finish(FedDyn(alpha=2.0, **settings), BOWL, data, backend, rounds=rounds)
    assert float(run.server["w"]) == pytest.approx(OPTIMUM, abs=1e-3)
    for other in (FedAvg(reduce=UNIFORM, **settings), FedProx(mu=2.0, reduce=UNIFORM, **settings)):
        stayed = finish(other, BOWL, data, backend, rounds=rounds)
        assert abs(float(stayed.server["w"]) - OPTIMUM) > 0.1


def test_while_the_duals_are_zero_a_client_is_fedproxs(backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4, "reduce": UNIFORM}
    dyn = uploads(FedDyn(alpha=0.3, **settings), NORMED, data, backend=backend)
    assert_same(dyn, uploads(FedProx(mu=0.3, **settings), NORMED, data, backend=backend))


def test_while_the_duals_are_zero_the_first_step_is_fedavgs(backend):
    data = classes()
    dyn = uploads(FedDyn(alpha=7.0, steps=1), NORMED, data, backend=backend)
    assert_same(dyn, uploads(FedAvg(steps=1), NORMED, data, backend=backend))


@pytest.mark.parametrize("cohort", [1.0, 2])
def test_the_servers_dual_is_the_mean_of_all_clients_duals(cohort, backend):
    run = finish(FedDyn(batch_size=4), NORMED, classes(), backend, rounds=3, cohort=cohort)
    duals = tree.stack([tree.slot("dual", run.clients[client]) for client in run.clients])
    mean = tree.tree_map(lambda leaf: leaf.mean(0), duals)
    assert_close(tree.slot("dual", run.server), mean, 1e-5)
    assert any(leaf.any() for leaf in mean.values())


def test_alpha_changes_what_a_client_does():
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    weak, strong = (uploads(FedDyn(alpha=alpha, **settings), NORMED, data) for alpha in (0.01, 1.0))
    assert differ(weak, strong)


def test_the_dual_changes_what_a_client_does():
    """A client that forgets h_i is FedProx's for ever."""
    data, settings = bowls(a=(1.0, 4.0)), {"steps": 3, "batch_size": None}
    run = finish(FedDyn(alpha=0.5, **settings), BOWL, data, rounds=1)
    came = run.personal("a", point="after_local")
    alone = {"init": {"w": float(run.server["w"])}}
    (prox,) = uploads(FedProx(mu=0.5, **settings), BOWL, data, **alone).values()
    assert abs(float(came["w"]) - float(prox["w"])) > 0.01


def test_running_statistics_are_averaged_and_nothing_else(backend):
    run = finish(FedDyn(batch_size=None), NORMED, classes(), backend)
    avg = finish(FedAvg(reduce=UNIFORM, batch_size=None, steps=1), NORMED, classes(), backend)
    assert set(tree.slot("dual", run.server)) == NORMED.parameters
    assert_same(tree.pick(run.server, NORMED.buffers), tree.pick(avg.server, NORMED.buffers))


def test_neither_dual_ever_travels():
    dyn, avg = (finish(m, NORMED, classes(), rounds=0) for m in (FedDyn(), FedAvg()))
    first, second = dyn.advance(), avg.advance()
    assert (first.bytes_down, first.bytes_up) == (second.bytes_down, second.bytes_up)
    for point in ("after_broadcast", "after_local", "after_adapt"):
        assert set(dyn.personal("c0", point=point)) == set(NORMED.names)


@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_an_alpha_that_the_server_cannot_divide_by_is_refused(alpha):
    with pytest.raises(RequestError, match="alpha= is above 0"):
        FedDyn(alpha=alpha)
