"""Equal budgets for methods that adapt when they serve a client."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import motet
from motet._engine.federation import start
from motet._engine.looks import _walked
from motet._training import fitting
from motet.errors import MotetError, RequestError
from motet.methods._catalog import method_class, method_names
from motet.testing._worlds import ragged


@pytest.mark.parametrize("name", method_names())
def test_what_a_method_declares_as_tuned_is_what_serving_walks(name):
    world, method = ragged(), method_class(name)()
    try:
        run = start(method, world.task, world.data, rounds=1, backend="serial", trial=False)
    except MotetError:
        pytest.skip(f"{name} is for other networks")
    walked = _walked(run, "after_adapt", new=False) - set(method.forward_only)
    # These only compare losses when they serve, and take no gradient step.
    choices = {"ifca": {"choose"}, "fedem": {"expect"}}.get(name, set())
    assert walked - choices == set(method.tuned_phases)


class Steps:
    """Stands in for the training loop, and counts active steps."""

    def __init__(self, real):
        self.real, self.steps = real, 0

    def apply(self, spec, *leaves):
        self.steps += int(spec.structure[3].weight.any(-1).sum())
        return self.real.apply(spec, *leaves)


ADAPTING = [n for n in method_names() if method_class(n).tuned_phases]


@pytest.mark.parametrize("budget", [0, 1, 7])
@pytest.mark.parametrize("name", ADAPTING)
def test_every_method_that_adapts_takes_the_same_number_of_steps(name, budget, monkeypatch):
    world, method = ragged(), method_class(name)()
    run = start(
        method,
        world.task,
        world.data,
        rounds=1,
        backend="serial",
        trial=False,
        serving_steps=budget,
    )
    client = max(world.data.clients, key=lambda c: world.data.size(c, "train"))
    run.setting.store.put(client, run.setting.fresh_client(client))  # it has trained
    counted = Steps(fitting._Fit)
    monkeypatch.setattr(fitting, "_Fit", counted)
    run.personal(client, "after_adapt")
    assert counted.steps == budget


def test_a_method_that_does_not_adapt_is_served_as_before():
    world = ragged()
    runs = [
        motet.run(motet.FedPer(), world.task, world.data, rounds=1, serving_steps=budget)
        for budget in (None, 3)
    ]
    first, second = (run.evaluate("test").rows for run in runs)
    assert first == second


def test_adapt_steps_replace_adapt_epochs():
    world = ragged()
    by_steps = motet.FedAvgFT(adapt_steps=3, optimizer=motet.Sgd(lr=0.2), batch_size=4)
    assert by_steps.adapt_plans()["adapt"].steps == 3
    assert by_steps.adapt_plans()["adapt"].epochs is None
    run = motet.run(by_steps, world.task, world.data, rounds=1)
    nothing = motet.run(replace(by_steps, adapt_steps=0), world.task, world.data, rounds=1)
    client = world.data.clients[0]
    broadcast = nothing.personal(client, "after_broadcast")
    assert all(torch.equal(v, broadcast[n]) for n, v in nothing.personal(client).items())
    assert not all(torch.equal(v, broadcast[n]) for n, v in run.personal(client).items())


def test_a_negative_budget_is_refused():
    world = ragged()
    with pytest.raises(RequestError, match="serving_steps must be 0 or more; got -1"):
        motet.run(motet.FedAvgFT(), world.task, world.data, rounds=1, serving_steps=-1)
    with pytest.raises(RequestError, match="steps must be 0 or more; got -2"):
        motet.FedAvgFT(adapt_steps=-2)
