"""MOCHA, convex and deep: tasks coupled by a relation."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.testing import assert_close

import motet
from motet import Local, Sgd
from motet._training.batching import Batches
from motet.errors import CapabilityError, RequestError
from motet.methods._bases.relations import Tasks, coupling, learnt_relation, mean_relation
from motet.methods._mocha import Mocha, dual_ascent
from motet.methods._mocha_deep import CoupledLoss, MochaDeep
from motet.methods._mr_mtl import MRMTL
from motet.task import Batch
from motet.testing._worlds import quadratic, ragged, ragged_data

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])
LINEAR = motet.Task(lambda: nn.Linear(4, 3))


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def some_tasks(clients=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    models = {
        "weight": torch.randn(clients, 3, 4, generator=g),
        "bias": torch.randn(clients, 3, generator=g),
    }
    return Tasks(models, learnt_relation(models))


def flat(models):
    return torch.cat([v.double().flatten(1) for v in models.values()], dim=1)


def test_the_clients_gradient_is_that_of_the_joint_objective():
    tasks, lam = some_tasks(), 0.3
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(5, 4, generator=g), torch.randint(0, 3, (5,), generator=g)
    batch = Batch(x, y, torch.ones(5), torch.tensor(0))

    def joint(models):
        own = {k: v[2] for k, v in models.items()}
        w = flat(models)
        coupled = lam * torch.trace(w.mT @ tasks.omega @ w)
        return LINEAR.loss(own, batch).value + coupled

    truth = {k: v[2] for k, v in grad(joint)(tasks.models).items()}
    own = {k: v[2] for k, v in tasks.models.items()}
    loss = CoupledLoss(LINEAR, lam)
    mine = grad(lambda w: loss(w, batch, coupling(tasks, 2)).value)(own)
    assert_close(mine, truth, rtol=1e-4, atol=1e-5)


@BOTH
def test_without_coupling_the_deep_variant_is_local(backend):
    world = ragged()
    one, local = (run(m, world, backend, 2, cohort=3) for m in (MochaDeep(lam=0.0), Local()))
    for client in world.data.clients:
        assert_close(one.clients[client], local.clients[client], rtol=0, atol=1e-7)


def test_the_coupling_is_part_of_the_gradient():
    # A penalty on a detached copy makes the method exactly Local: a known mistake.
    world = ragged()
    one, local = (run(m, world, rounds=3) for m in (MochaDeep(lam=0.2), Local()))
    apart = one.clients["many"]["head.weight"] - local.clients["many"]["head.weight"]
    assert apart.abs().max() > 1e-3


@BOTH
def test_around_the_mean_the_first_step_is_mr_mtls(backend):
    world = quadratic({"a": [1.0], "b": [5.0], "c": [0.0]})
    starts = {c: {"w": [v]} for c, v in (("a", 0.5), ("b", 2.0), ("c", -1.0))}
    common = {"batch_size": None, "steps": 1, "optimizer": Sgd(lr=0.1)}
    deep = motet._engine.federation.start(
        MochaDeep(lam=0.4, relation="mean", **common),
        world.task,
        world.data,
        rounds=1,
        backend=backend,
        init_clients=starts,
    )
    values = torch.tensor([[0.5], [2.0], [-1.0]])
    deep.server = Tasks({"w": values}, mean_relation(3))
    deep.advance()
    mean = values.mean().item()
    mr = run(MRMTL(lam=0.8, **common), world, backend, init={"w": [mean]}, init_clients=starts)
    for client in starts:
        assert_close(deep.clients[client], mr.clients[client], rtol=0, atol=1e-6)


def test_the_relation_is_learnt_from_the_models():
    one, two = torch.randn(1, 40), torch.randn(1, 40)
    alike = learnt_relation({"w": torch.cat([one, one * 1.01, two])})
    assert alike[0, 1] < 3 * alike[0, 2]  # negative: closeness is rewarded
    assert alike[0, 1] < -0.5
    unrelated = learnt_relation({"w": torch.eye(3)})
    assert_close(unrelated, torch.eye(3, dtype=torch.float64))
    assert torch.linalg.eigvalsh(alike).min() > 0


def walk(x, y, passes):
    n = len(y)
    rows = torch.stack(
        [torch.randperm(n, generator=torch.Generator().manual_seed(p)) for p in range(passes)]
    ).view(-1, 1)
    ones = torch.ones(passes * n, 1)
    return Batches(x, y, torch.tensor(n), rows, ones, rows[:, 0], torch.tensor(1.0))


def test_dual_ascent_solves_the_support_vector_machine():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=g)
    y = (x[:, 0] + 0.3 * torch.randn(30, generator=g) > 0).long()
    mu, centre = torch.tensor(0.1), torch.zeros(2, 4)

    def objective(w):
        signs = 2.0 * torch.nn.functional.one_hot(y, 2) - 1
        hinge = (1 - signs * (x @ w.mT)).clamp(min=0).mean(0).sum()
        return hinge + mu / 2 * w.square().sum()

    solved = dual_ascent(centre, mu, walk(x, y, 300), constant=False)
    best = objective(solved)
    for seed in range(20):
        noise = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
        assert objective(solved + 0.05 * noise) > best - 1e-4
    # Subgradient descent from there finds nothing better.
    w = solved.clone()
    for step in range(300):
        w = w - 0.02 / (1 + step) ** 0.5 * grad(objective)(w)
        assert objective(w) > best - 1e-4


@BOTH
def test_the_joint_objective_never_rises(backend):
    data, method = ragged_data(), Mocha(lam=0.05, passes=40, relation="mean")
    seen = []
    course = motet._engine.federation.start(method, LINEAR, data, rounds=8, backend=backend)
    for _ in range(8):
        course.advance()
        w = flat(course.server.models)
        total = 0.05 * torch.trace(w.mT @ course.server.omega @ w).item()
        for client in data.clients:
            x, y = data.examples(client, "train")
            signs = 2.0 * torch.nn.functional.one_hot(y, 3) - 1
            scores = LINEAR.outputs(course.clients[client], x)
            total += (1 - signs * scores).clamp(min=0).mean(0).sum().item()
        seen.append(total)
    assert all(b <= a + 1e-2 for a, b in pairwise(seen)), seen
    assert seen[-1] < seen[0]


def test_a_strong_coupling_draws_the_models_together():
    data = ragged_data()
    spread = []
    for lam in (0.001, 1.0):
        method = Mocha(lam=lam, relation="mean", passes=10)
        done = motet.run(method, LINEAR, data, rounds=10)
        spread.append(flat(done.server.models).std(0).mean().item())
    assert spread[1] < spread[0] / 2


def test_what_the_solver_cannot_do_is_refused_before_the_first_round():
    world = ragged()
    with pytest.raises(CapabilityError, match="mocha-deep"):
        run(Mocha(), world, rounds=0)
    with pytest.raises(RequestError, match="margin"):
        Mocha(lam=0.0)
    with pytest.raises(RequestError, match="learnt"):
        MochaDeep(relation="guessed")
    assert "which is local" in run(MochaDeep(lam=0.0), world, rounds=0).warnings[0]
