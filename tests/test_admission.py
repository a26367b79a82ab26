"""Uploads that are not numbers never reach the server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from toys import arrays, assert_same

import motet
from motet._core import tree
from motet._core.aggregation.mean import Gather, Mean
from motet._engine.federation import start
from motet._engine.upload_screening import receive

TASK = motet.Task(build=lambda: nn.Linear(4, 3))


def received(uploads, reduce=Mean(weights="uniform")):
    """What arrives of clients a, b, ... that have sent these rows."""
    clients = "abcdefgh"[: len(uploads["w"])]
    data = arrays(dict.fromkeys(clients, 5))
    run = start(motet.FedAvg(reduce=reduce), TASK, data, rounds=1)
    info = run.setting.info(0, tuple(clients))
    return receive(run.setting, info, run.server, clients, uploads)


def test_a_row_with_a_nan_is_left_out_of_the_mean_and_named():
    came = received({"w": torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [3.0, 6.0]])})
    assert came.replied == ("a", "c")
    assert came.rejected == {"b": "w holds a NaN or an infinity"}
    assert torch.equal(Mean().finish(came.partial)["w"], torch.tensor([2.0, 4.0]))


def test_numbers_too_large_to_be_summed_are_still_numbers():
    came = received({"w": torch.full((2, 2), 3e38)}, reduce=Gather())
    assert came.replied == ("a", "b")
    assert came.rejected == {}


def test_nothing_usable_is_nothing_combined():
    came = received({"w": torch.tensor([[torch.inf]])})
    assert came.partial is None
    assert came.replied == ()


@dataclass(frozen=True, kw_only=True)
class Poisonous(motet.FedAvg):
    """FedAvg whose clients all send NaN."""

    name = "poisonous"

    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return {k: v * torch.nan for k, v in up.items()}, client


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_a_round_in_which_nobody_can_be_used_leaves_the_server_as_it_was(backend):
    data = arrays({"a": 5, "b": 7})
    run = start(Poisonous(), TASK, data, rounds=1, backend=backend)
    before = tree.clone(run.server)
    done = run.advance()
    assert sorted(done.rejected) == ["a", "b"]
    assert_same(run.server, before)
