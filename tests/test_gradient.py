"""Gradients without torch's compiler: what `torch.func.grad` gives, to the last bit."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch.func import vmap

from motet._core import gradient
from motet._core.gradient import grad, grad_with_aux

W = torch.linspace(-1, 1, 6).view(3, 2)
X = torch.linspace(0, 1, 12).view(4, 3)


def loss(params, x):
    return (x @ params["w"]).tanh().square().sum() + params["b"].exp().sum()


PARAMS = {"w": W, "b": torch.tensor([0.5, -0.5])}


def same(ours, theirs):
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_gradient_is_torchs_own():
    assert same(grad(loss)(PARAMS, X), torch.func.grad(loss)(PARAMS, X))


def test_a_gradient_for_each_example_is_torchs_own():
    ours, theirs = (vmap(g(loss), in_dims=(None, 0))(PARAMS, X) for g in (grad, torch.func.grad))
    assert same(ours, theirs)


def test_a_gradient_of_a_gradient_is_torchs_own():
    def along(g):
        def slope(params, x):
            return sum(leaf.sum() for leaf in g(loss)(params, x).values())

        return vmap(g(slope), in_dims=(None, 0))(PARAMS, X)

    assert same(along(grad), along(torch.func.grad))


def test_what_a_function_says_besides_comes_back_as_a_plain_tensor():
    def told(params):
        return loss(params, X), {"seen": params["w"] * 2}

    slopes, aux = grad_with_aux(told, PARAMS)
    assert same(slopes, torch.func.grad(loss)(PARAMS, X))
    assert torch.equal(aux["seen"], W * 2)
    assert not aux["seen"].requires_grad


def test_a_function_that_does_not_depend_on_its_argument_has_slope_zero():
    def half(params, x):
        return x.sum() + params["b"].sum()

    found = grad(half)(PARAMS, X)
    assert torch.equal(found["w"], torch.zeros(3, 2))
    assert torch.equal(grad(lambda p: X.sum())(PARAMS)["b"], torch.zeros(2))


def test_a_gradient_is_taken_where_gradients_are_switched_off():
    with torch.no_grad():
        assert same(grad(loss)(PARAMS, X), torch.func.grad(loss)(PARAMS, X))


def test_all_of_it_holds_with_a_torch_that_has_moved_the_parts_of_its_gradient(monkeypatch):
    monkeypatch.setattr(gradient, "_PARTS", None)
    test_a_gradient_is_torchs_own()
    test_a_gradient_for_each_example_is_torchs_own()
    test_a_gradient_of_a_gradient_is_torchs_own()
    test_what_a_function_says_besides_comes_back_as_a_plain_tensor()
    test_a_function_that_does_not_depend_on_its_argument_has_slope_zero()
    test_a_gradient_is_taken_where_gradients_are_switched_off()


TRAINING = """
import sys, motet, torch
torch.func.vmap(torch.sin)(torch.ones(1))
anyway = "torch._dynamo" in sys.modules  # older releases import it for vmap alone
data = motet.data.load("digits", partition=motet.data.IID(clients=4), seed=0)
for method in (motet.FedAvg(), motet.Ditto(), motet.PFedMe(), motet.PerFedAvg()):
    net = lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes)
    motet.run(method, motet.Task(net), data, rounds=2)
print("torch._dynamo" in sys.modules and not anyway)
"""


def test_training_does_not_import_a_compiler():
    told = subprocess.run(
        [sys.executable, "-c", TRAINING], capture_output=True, text=True, check=False
    )
    assert told.stdout.strip() == "False", told.stderr
