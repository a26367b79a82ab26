"""FedAMP and HeurFedAMP: attention between clients."""

import math

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import Local, Mean, Sgd
from motet.methods._fedamp import FedAMP, HeurFedAMP, squared_distances
from motet.methods._mr_mtl import MRMTL
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])
EITHER = pytest.mark.parametrize("method", [FedAMP, HeurFedAMP])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
@EITHER
def test_without_a_pull_it_is_local(backend, method):
    world = ragged()
    one, local = (run(m, world, backend, 2, cohort=3) for m in (method(lam=0.0), Local()))
    for client in world.data.clients:
        assert_close(one.clients[client], local.clients[client], rtol=0, atol=0)


@EITHER
def test_the_pull_is_part_of_the_gradient(method):
    # A penalty built from detached tensors makes FedAMP exactly Local: a known mistake.
    world = ragged()
    one, local = (run(m, world, rounds=3) for m in (method(lam=1.0), Local()))
    apart = one.clients["many"]["head.weight"] - local.clients["many"]["head.weight"]
    assert apart.abs().max() > 1e-3


@BOTH
def test_heuristic_attention_that_weighs_all_alike_is_mr_mtl(backend):
    world = quadratic({"a": [1.0], "b": [4.0], "c": [-2.0]})
    heur = HeurFedAMP(lam=0.7, own=1 / 3, sigma=0.0, batch_size=None, optimizer=Sgd(lr=0.1))
    mr = MRMTL(lam=0.7, batch_size=None, optimizer=Sgd(lr=0.1), reduce=Mean(weights="uniform"))
    one, other = (run(m, world, backend, 4) for m in (heur, mr))
    for client in world.data.clients:
        assert_close(one.clients[client], other.clients[client], rtol=0, atol=1e-6)


def test_attention_is_the_papers_formula():
    models = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    weights = FedAMP(alpha=0.6, sigma=2.0).attention(models)
    assert weights[0, 1].item() == pytest.approx(0.3 * math.exp(-1 / 2))
    assert weights[0, 2].item() == pytest.approx(0.3 * math.exp(-4 / 2))
    assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
    heur = HeurFedAMP(own=0.4, sigma=3.0).attention(models[1:] + 0.5)
    assert heur[0, 0].item() == pytest.approx(0.4)
    assert heur[0, 1].item() == pytest.approx(0.6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_no_weight_is_ever_negative(scale):
    g = torch.Generator().manual_seed(0)
    models = scale * torch.randn(7, 5, generator=g, dtype=torch.float64)
    for method in (FedAMP(alpha=1.0), FedAMP(alpha=1.0, sigma=1e-9), HeurFedAMP(own=0.0)):
        weights = method.attention(models)
        assert (weights >= 0).all()
        assert_close(weights.sum(1), torch.ones(7, dtype=torch.float64))


def test_a_tiny_scale_collapses_to_self_and_the_notes_say_so():
    world = quadratic({"a": [1.0], "b": [4.0]})
    method = FedAMP(sigma=1e-12, batch_size=None)
    *_, last = motet.rounds(method, world.task, world.data, rounds=2)
    assert last.notes["collapsed_to_self"]
    *_, last = motet.rounds(FedAMP(batch_size=None), world.task, world.data, rounds=2)
    assert not last.notes["collapsed_to_self"]


def test_close_models_keep_their_distance():
    # The Gram identity returns 0 here in single precision, and loses digits in double.
    base = torch.ones(1_000, dtype=torch.float64) * 1e3
    models = torch.stack([base, base + 1e-6])
    assert squared_distances(models)[0, 1].item() == pytest.approx(1e-9, rel=1e-3)


def test_like_clients_attend_to_each_other():
    world = quadratic({"a1": [0.0], "a2": [0.1], "b1": [9.0], "b2": [9.1]})
    method = FedAMP(lam=0.1, batch_size=None, steps=20, optimizer=Sgd(lr=0.2))
    done = run(method, world, rounds=5)
    weights = method.attention(
        torch.stack([done.server[c]["w"].double() for c in sorted(done.server)])
    )
    assert weights[0, 1] > 2 * weights[0, 2]


@EITHER
def test_impossible_knobs_are_refused_and_a_cut_tether_announced(method):
    with pytest.raises(motet.errors.RequestError):
        method(lam=-1.0)
    with pytest.raises(motet.errors.RequestError, match=r"\[0, 1\]"):
        method(**({"alpha": 2.0} if method is FedAMP else {"own": 2.0}))
    assert run(method(lam=0.0), ragged(), rounds=0).warnings
