"""Channels last is left out where torch's kernels would write past the end of their memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import motet
from motet._engine.backends.plan.layouts import why_not_channels_last
from motet._engine.federation import start
from motet.data import from_arrays
from motet.errors import RequestError


class Strided(nn.Module):
    """A convolution that skips pixels, called as a module or as a function."""

    def __init__(self, channels: int, kernel: int = 1, stride: int = 2, *, called: bool = True):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.skip = nn.Conv2d(channels, 6, kernel, stride)
        self.head = nn.Linear(6, 2)
        self.called = called

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        skip = self.skip
        x = skip(x) if self.called else nn.functional.conv2d(x, skip.weight, None, skip.stride)
        return self.head(x.mean((2, 3)))


def task_for(network: nn.Module) -> motet.Task:
    return motet.Task(build=lambda: network).seeing(torch.zeros(2, 1, 4, 4))


def images() -> motet.data.Federation:
    drawn = torch.Generator().manual_seed(0)
    split = {
        name: (torch.randn(8, 1, 4, 4, generator=drawn), torch.arange(8) % 2) for name in "abcd"
    }
    return from_arrays(train=split, test=split)


@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 7, 12, 20])
def test_strided_pointwise_convolutions_of_odd_width_keep_their_layout(channels, called):
    network = Strided(channels, called=called)
    assert f"{channels} channels" in why_not_channels_last(task_for(network))


@pytest.mark.parametrize(
    ("channels", "kernel", "stride"), [(8, 1, 2), (24, 1, 3), (3, 3, 2), (3, 1, 1)]
)
def test_other_convolutions_may_have_their_channels_last(channels, kernel, stride):
    assert why_not_channels_last(task_for(Strided(channels, kernel, stride))) == ""


def test_the_plan_of_such_a_network_says_why_and_a_wish_for_it_is_refused():
    method = motet.Local(optimizer=motet.Sgd(lr=0.1), batch_size=4)
    task = motet.Task(build=lambda: Strided(2))
    run = start(method, task, images(), rounds=1, mode="loop")
    assert not run.backend.plan.channels_last
    assert "1x1 convolution with strides over 2 channels" in str(run.backend.plan)
    with pytest.raises(RequestError, match="channels_last"):
        start(method, task, images(), rounds=1, channels_last=True)
