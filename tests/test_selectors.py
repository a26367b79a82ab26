"""Selectors: which tensors a name means."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from motet import Blocks, Task, models
from motet._core.selectors import blocks_of, select
from motet.errors import RequestError, SelectorError


class Block(nn.Module):
    """A residual block as in a ResNet."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)
        self.downsample = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))

    def forward(self, x):
        return self.conv(x) + self.downsample(x)


class Residual(nn.Module):
    """A stem with its norm, stages of blocks, a head: and layers whose names start alike."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 1)
        self.bn1 = nn.BatchNorm2d(2)
        self.layer1 = nn.Sequential(Block(), Block())
        self.layer10 = nn.Sequential(Block())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2, 3)


def covered(net, selector):
    """Name the modules whose tensors are all covered."""
    return {name.rpartition(".")[0] for name in select(net, selector)}


def test_a_path_means_that_module_and_not_its_namesakes():
    chosen = select(Residual(), "layer1")
    assert chosen
    assert all(name.startswith("layer1.") for name in chosen)
    assert not select(Residual(), "layer10") & chosen


def test_a_path_may_go_deep_and_may_name_one_tensor():
    assert covered(Residual(), "layer1.0.downsample.1") == {"layer1.0.downsample.1"}
    assert select(Residual(), "fc.bias") == {"fc.bias"}


def test_selected_modules_bring_their_buffers():
    assert {"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"} <= select(
        Residual(), "bn1"
    )


def test_roles_find_the_head_the_input_and_every_norm():
    assert select(Residual(), "head") == {"fc.weight", "fc.bias"}
    assert covered(Residual(), "input") == {"conv1", "bn1"}
    # By type, not by name: the norm of a downsampling branch is called "1".
    assert covered(Residual(), "norm") == {
        "bn1",
        "layer1.0.downsample.1",
        "layer1.1.downsample.1",
        "layer10.0.downsample.1",
    }


def test_output_is_another_word_for_head():
    assert select(Residual(), "output") == select(Residual(), "head")


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("resnet-18", (1, 28, 28), {"width": 4, "adapters": True}),
        ("transformer", (12,), {"adapters": 4, "width": 16, "heads": 2, "layers": 2}),
    ],
)
def test_the_role_adapters_is_what_the_paper_personalizes(name, shape, options):
    network = models.build(name, shape=shape, classes=5, **options)
    chosen = select(network, "adapters")
    assert chosen == select(network, models.adapter_paths(network))
    adapters = {n for n, m in network.named_modules() if getattr(m, "is_adapter", False)}
    assert adapters
    assert adapters <= set(models.adapter_paths(network))
    assert not any(".shortcut" in name for name in chosen)
    assert not chosen & select(network, "head")


def test_adapters_of_your_own_and_of_lora_are_found_too():
    class Own(nn.Linear):
        is_adapter = True

    plain = nn.Sequential(nn.Linear(3, 3), Own(3, 3), nn.Linear(3, 2))
    assert select(plain, "adapters") == {"1.weight", "1.bias"}
    layer = nn.Linear(3, 3)
    layer.lora_A = nn.ModuleDict({"default": nn.Linear(3, 1, bias=False)})
    layer.lora_B = nn.ModuleDict({"default": nn.Linear(1, 3, bias=False)})
    tuned = nn.Sequential(layer, nn.LayerNorm(3), nn.Linear(3, 2))
    assert select(tuned, "adapters") == {"0.lora_A.default.weight", "0.lora_B.default.weight"}


def test_adapters_in_a_network_without_any_are_refused_with_the_way_to_get_them():
    with pytest.raises(SelectorError, match=r'"Residual" has no adapters. Build it with adapters'):
        select(Residual(), "adapters")


def test_a_module_called_head_wins_over_the_role():
    net = nn.Sequential()
    net.add_module("head", nn.Linear(2, 2))
    net.add_module("last", nn.Linear(2, 2))
    assert select(net, "head") == {"head.weight", "head.bias"}


def test_blocks_open_containers_and_keep_norms_with_what_they_normalise():
    assert blocks_of(Residual()) == [
        ["conv1", "bn1"],
        ["layer1.0"],
        ["layer1.1"],
        ["layer10.0"],
        ["fc"],
    ]


@pytest.mark.parametrize(
    ("last", "modules"),
    [(0, set()), (1, {"fc"}), (2, {"fc", "layer10"}), (3, {"fc", "layer10", "layer1"})],
)
def test_blocks_count_from_the_output(last, modules):
    assert {name.split(".")[0] for name in select(Residual(), Blocks(last=last))} == modules


def test_blocks_of_a_plain_sequential_are_its_layers_with_parameters():
    net = nn.Sequential(
        nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), nn.Linear(3, 2)
    )
    assert blocks_of(net) == [["0"], ["2.0", "2.1"], ["3"]]


def test_several_selectors_are_joined_and_none_is_nothing():
    both = select(Residual(), ("conv1", Blocks(last=1)))
    assert both == select(Residual(), "conv1") | select(Residual(), "fc")
    assert select(Residual(), ()) == frozenset()


def test_all_blocks_cover_the_whole_model():
    task = Task(build=Residual)
    assert task.select(Blocks(last=5)) == frozenset(task.names)


def test_a_typo_is_refused_with_the_names():
    with pytest.raises(SelectorError, match=r'called "laier1"; did you mean "layer1"\?.*layer10'):
        select(Residual(), "laier1")


def test_of_a_large_network_the_outer_modules_and_the_nearest_are_named():
    with torch.device("meta"):
        network = models.build("resnet-18", shape=(3, 32, 32), classes=10)
    with pytest.raises(SelectorError) as refused:
        select(network, "stage1.conv1")
    said = str(refused.value)
    assert "stage1.0.conv1" in said
    assert "stage4" in said
    assert "shortcut" not in said


def test_a_part_of_a_name_is_a_typo_too():
    with pytest.raises(SelectorError, match='no parameter is in a module called "layer"'):
        select(Residual(), "layer")


def test_norm_in_a_net_without_norms_matches_nothing_and_says_so():
    with pytest.raises(SelectorError, match='called "norm"'):
        select(nn.Linear(2, 2), "norm")


def test_more_blocks_than_there_are_is_refused_with_the_count():
    with pytest.raises(SelectorError, match=r"more blocks than the model has: 5, from conv1 to fc"):
        select(Residual(), Blocks(last=6))


def test_a_negative_number_of_blocks_is_refused():
    with pytest.raises(RequestError, match="0 or more; got -1"):
        Blocks(last=-1)
