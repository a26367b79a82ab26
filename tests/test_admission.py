"""Uploads that are not numbers never reach the server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from toys import arrays, assert_same

import motet
from motet import tree
from motet.admission import receive
from motet.federation import start
from motet.reduce import Gather, Mean


def test_a_row_with_a_nan_is_left_out_of_the_mean_and_named():
    uploads = {"w": torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [3.0, 6.0]])}
    received = receive(Mean(), ["a", "b", "c"], uploads, torch.tensor([1.0, 5.0, 1.0]))
    assert received.replied == ("a", "c")
    assert received.rejected == {"b": "w holds a NaN or an infinity"}
    assert torch.equal(Mean().finish(received.partial)["w"], torch.tensor([2.0, 4.0]))


def test_numbers_too_large_to_be_summed_are_still_numbers():
    uploads = {"w": torch.full((2, 2), 3e38)}
    received = receive(Gather(), ["a", "b"], uploads, torch.ones(2))
    assert received.replied == ("a", "b")
    assert received.rejected == {}


def test_nothing_usable_is_nothing_combined():
    received = receive(Mean(), ["a"], {"w": torch.tensor([[torch.inf]])}, torch.ones(1))
    assert received.partial is None
    assert received.replied == ()


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
    task = motet.Task(build=lambda: nn.Linear(4, 3))
    run = start(Poisonous(), task, data, rounds=1, backend=backend)
    before = tree.clone(run.server)
    done = run.advance()
    assert sorted(done.rejected) == ["a", "b"]
    assert_same(run.server, before)
