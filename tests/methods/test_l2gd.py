"""L2GD: local steps, and at random times a step towards the mean."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

import motet
from motet import Local, Sgd
from motet._core.keys import Key
from motet.errors import CapabilityError, RequestError
from motet.method import RoundInfo
from motet.methods import _l2gd as l2gd
from motet.methods._l2gd import L2GD, Call, mixed
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def test_mixing_preserves_the_mean():
    values = torch.tensor([1.0, 4.0, -2.0], dtype=torch.float64)
    call = Call({"w": values.mean()}, torch.tensor(0.3), torch.tensor(1))
    moved = torch.stack([mixed({"w": v}, call)["w"] for v in values])
    assert moved.mean().item() == pytest.approx(values.mean().item(), abs=1e-15)
    assert_close(moved, values + 0.3 * (values.mean() - values))


def test_repeated_mixing_is_one_longer_step():
    method = L2GD(lam=0.5, p=0.4)
    value, mean = 1.0, 5.0
    for _ in range(3):
        value += method.mixing * (mean - value)
    pull = 1 - (1 - method.mixing) ** 3
    assert 1.0 + pull * (mean - 1.0) == pytest.approx(value)


@BOTH
def test_a_round_is_a_pull_and_then_the_drawn_number_of_local_steps(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = L2GD(lam=0.5, p=0.3, optimizer=Sgd(lr=0.1), batch_size=None)
    course = motet.rounds(method, world.task, world.data, rounds=3, backend=backend, seed=4)
    state, mean = {"a": 0.0, "b": 0.0}, 0.0
    start = run(method, world, rounds=0, seed=4).server["w"].item()
    state, mean = dict.fromkeys(state, start), start
    for done in course:
        for client, target in (("a", 1.0), ("b", 5.0)):
            state[client] += done.notes["pull"] * (mean - state[client])
            for _ in range(done.notes["local_steps"]):
                state[client] -= 0.1 * (state[client] - target)
        mean = sum(state.values()) / 2
        assert done.server["w"].item() == pytest.approx(mean, abs=1e-5)
        assert done.run.clients["a"]["w"].item() == pytest.approx(state["a"], abs=1e-5)


def flips(method, rounds, seed=0):
    """The coin flips that the server's rounds stand for: 1 is a mixing step, 0 a local step."""
    server = method.init_server(None, {"w": torch.zeros(1)}, ("a",), Key(seed))
    coins, starts = [], []
    for number in range(rounds):
        info = RoundInfo(number, rounds, ("a",), ("a",), Key(seed).fold("server", number))
        call = method.broadcast(server, info)
        server = method.server_update(server, {"w": torch.zeros(1)}, info, None)
        note = method.notes(server, None, info)
        assert (note["local_steps"], note["pull"]) == (int(call.steps), float(call.pull))
        assert call.steps <= method.plans()["train"].steps
        starts.append(note["mixing_steps"])
        coins += [1] * note["mixing_steps"] + [0] * note["local_steps"]
    return np.array(coins), np.array(starts)


PROBABILITIES = pytest.mark.parametrize("p", [0.9, 0.5, 0.25, 0.1, 0.02])


@PROBABILITIES
@pytest.mark.parametrize("longest", [8, 0.5])  # with the short one, most runs are split
def test_the_rounds_are_flips_of_one_coin(p, longest, monkeypatch):
    monkeypatch.setattr(l2gd, "LONGEST", longest)
    coins, starts = flips(L2GD(p=p, lam=0.001), rounds=1200)
    assert (starts[1:] == 0).any() or longest == 8
    heads, tails = coins.sum(), (1 - coins).sum()
    # Mixing steps are a binomial number of all steps: (1-p)/p local steps for one mixing step.
    assert stats.binomtest(int(heads), len(coins), p).pvalue > 1e-3
    ratio, spread = tails / heads, 4 / np.sqrt(len(coins) * p * (1 - p))
    assert ratio == pytest.approx((1 - p) / p, rel=spread)
    # Every flip is independent of the one before.
    pairs = np.bincount(2 * coins[:-1] + coins[1:], minlength=4)
    chances = np.outer([1 - p, p], [1 - p, p]).ravel()
    assert stats.chisquare(pairs, (len(coins) - 1) * chances).pvalue > 1e-3


@PROBABILITIES
def test_runs_of_local_steps_have_the_lengths_of_the_papers_process(p):
    coins, _ = flips(L2GD(p=p, lam=0.001), rounds=1200, seed=1)
    theirs = np.random.default_rng(0).random(len(coins)) < p
    ours, reference = (tail_runs(c) for c in (coins, theirs))
    assert stats.ks_2samp(ours, reference).pvalue > 1e-3
    between = np.diff(np.flatnonzero(coins)) - 1  # local steps between two mixing steps: also 0
    assert between.min() == 0
    assert between.mean() == pytest.approx((1 - p) / p, rel=0.1)


def tail_runs(coins):
    edges = np.flatnonzero(np.diff(np.concatenate([[1], coins, [1]])))
    return edges[1::2] - edges[::2]


def papers_loop(coins, start, targets, method):
    """Algorithm 1 of the paper, an iteration at a time, for f_i(x) = mean (x - a)^2 / 2."""
    clients, p = len(targets), method.p
    alpha = method.optimizer.lr * clients * (1 - p)
    x, centres = np.full(clients, start), np.array([np.mean(a) for a in targets])
    for coin in coins:
        if coin:
            x = x - alpha * method.lam / (clients * p) * (x - x.mean())
        else:
            x = x - alpha / (clients * (1 - p)) * (x - centres)
    return x


@BOTH
@pytest.mark.parametrize(("p", "lam", "longest"), [(0.5, 2.0, 8), (0.2, 0.7, 8), (0.1, 0.9, 0.3)])
def test_a_run_is_the_papers_loop_with_the_same_coin(backend, p, lam, longest, monkeypatch):
    monkeypatch.setattr(l2gd, "LONGEST", longest)
    targets = {"a": [1.0], "b": [5.0, 2.0], "c": [-3.0, 0.0, 0.5]}
    world, seed = quadratic(targets), 3
    method = L2GD(lam=lam, p=p, optimizer=Sgd(lr=0.05), batch_size=None)
    course = list(
        motet.rounds(method, world.task, world.data, rounds=12, backend=backend, seed=seed)
    )
    coins = [
        coin
        for done in course
        for coin in [1] * done.notes["mixing_steps"] + [0] * done.notes["local_steps"]
    ]
    start = run(method, world, rounds=0, seed=seed).server["w"].item()
    theirs = papers_loop(coins, start, targets.values(), method)
    ours = [course[-1].run.clients[client]["w"].item() for client in targets]
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert course[-1].server["w"].item() == pytest.approx(theirs.mean(), abs=2e-6)
    if longest < 1:
        assert any(done.notes["mixing_steps"] == 0 for done in course[1:])


@BOTH
def test_without_mixing_the_models_are_those_of_local_training(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = L2GD(lam=0.0, p=0.5, batch_size=None)
    course = list(motet.rounds(method, world.task, world.data, rounds=10, backend=backend))
    taken = sum(done.notes["local_steps"] for done in course)
    local = run(Local(batch_size=None, steps=taken), world, backend)
    for client in ("a", "b"):
        assert_close(course[-1].run.clients[client], local.clients[client], rtol=0, atol=1e-6)


def test_mixing_draws_the_models_together():
    world = quadratic({"a": [1.0], "b": [5.0]})
    apart = run(L2GD(lam=0.0, p=0.5, batch_size=None), world, rounds=40)
    close = run(L2GD(lam=5.0, p=0.5, batch_size=None), world, rounds=40)
    gap = {
        m: abs(r.clients["b"]["w"] - r.clients["a"]["w"]).item()
        for m, r in (("apart", apart), ("close", close))
    }
    assert gap["close"] < gap["apart"] / 2


def test_impossible_knobs_are_refused_with_the_reason():
    with pytest.raises(RequestError, match="inside"):
        L2GD(p=1.0)
    with pytest.raises(RequestError, match="towards the mean"):
        L2GD(p=0.01, lam=10.0)
    with pytest.raises(CapabilityError, match="plain SGD"):
        L2GD(optimizer=Sgd(lr=0.1, momentum=0.9))
    with pytest.raises(RequestError, match="set p="):
        L2GD(epochs=2)
    assert run(L2GD(lam=0.0), ragged(), rounds=0).warnings


@BOTH
def test_only_the_steps_that_were_drawn_are_counted(backend):
    world = quadratic({"a": [1.0, 1.0], "b": [5.0]})
    course = motet.rounds(
        L2GD(p=0.3, batch_size=None), world.task, world.data, rounds=4, backend=backend
    )
    for done in course:
        assert done.gradients == 3 * done.notes["local_steps"]
