"""Steps are traced for the widths that batches have, and filling that nothing sees is left out."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import motet
from motet._engine.backends.plan.batch_widths import batch_widths, has_separate_rows
from motet._engine.federation import start

SIZES = {"fewer than a batch": [5] * 4, "one short batch": [11] * 4, "ragged": [3, 5, 9, 14]}


def federation(sizes):
    generator = torch.Generator().manual_seed(0)

    def examples(rows):
        x = torch.randn(rows, 6, generator=generator)
        return x.numpy(), (x[:, 0] > 0).long().numpy()

    train = {f"{number}": examples(rows) for number, rows in enumerate(sizes)}
    return motet.data.from_arrays(train=train, classes=2)


class Mixing(nn.Module):
    """A network whose rows see each other, without a layer that says so."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(x - x.mean(0))


def trained(sizes, network=lambda: nn.Linear(6, 2), optimizer=None, **how):
    task = motet.Task(network)
    method = motet.FedAvg(optimizer=optimizer or motet.Sgd(lr=0.1), batch_size=8)
    run = start(method, task, federation(sizes), rounds=2, **how)
    run.advance()
    run.advance()
    return run


@pytest.mark.parametrize("mode", ["stack", "loop"])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_width_of_batches_changes_no_result(sizes, traced, mode):
    how = {"backend": "vectorized", "mode": mode, "traced": traced}
    plain, planned = trained(sizes, backend="serial"), trained(sizes, **how)
    for name, leaf in plain.server.items():
        torch.testing.assert_close(planned.server[name], leaf, rtol=1e-4, atol=1e-6)
    assert bool(len(planned.setting.task.programs)) == traced  # clients below a batch's size, too


@pytest.mark.parametrize("traced", [False, True])
def test_a_network_that_mixes_rows_sees_the_filling_of_short_batches(traced):
    sizes = SIZES["one short batch"]
    how = {"backend": "vectorized", "mode": "loop", "traced": traced}
    plain, planned = trained(sizes, Mixing, backend="serial"), trained(sizes, Mixing, **how)
    for name, leaf in plain.server.items():
        torch.testing.assert_close(planned.server[name], leaf, rtol=1e-4, atol=1e-6)


def test_rows_are_separate_unless_a_network_mixes_them():
    mixing, plain = (
        trained([9], network, backend="serial").setting.task
        for network in (Mixing, lambda: nn.Linear(6, 2))
    )
    assert not has_separate_rows(mixing)
    assert has_separate_rows(plain)


def test_a_few_widths_are_traced_as_they_are_and_many_as_quarters():
    widths = {
        name: sorted(batch_widths(trained(sizes, backend="serial").setting))
        for name, sizes in {**SIZES, "many": range(1, 20)}.items()
    }
    assert widths == {
        "fewer than a batch": [5],
        "one short batch": [3, 8],
        "ragged": [2, 4, 6, 8],
        "many": [2, 4, 6, 8],
    }


KEPT = torch.ones(1)  # moments that an optimizer hands out again and again


@dataclass(frozen=True)
class Careless:
    """An optimizer whose first moments are a constant of its module, and the parameters."""

    def init(self, params):
        return {"seen": KEPT, "start": dict(params), "sum": dict(params)}

    def step(self, grads, moments, params, rate):
        total = {name: moments["sum"][name] - 0.1 * grads[name] for name in params}
        moments = {"seen": moments["seen"] + 1, "start": moments["start"], "sum": total}
        return {
            name: leaf * moments["seen"] / moments["seen"] for name, leaf in total.items()
        }, moments


@pytest.mark.parametrize("mode", ["stack", "loop"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_moments_that_an_optimizer_shares_are_not_overwritten(sizes, mode):
    how = {"backend": "vectorized", "mode": mode, "traced": True}
    plain, planned = (
        trained(sizes, optimizer=Careless(), **kind) for kind in ({"backend": "serial"}, how)
    )
    for name, leaf in plain.server.items():
        torch.testing.assert_close(planned.server[name], leaf, rtol=1e-4, atol=1e-6)
    assert KEPT.tolist() == [1.0]
    assert len(planned.setting.task.programs) > 0
