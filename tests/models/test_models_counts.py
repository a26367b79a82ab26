"""Parameter counts against the published ones, on the meta device: nothing is allocated."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from motet import models
from motet._core.selectors import select

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "models.md"


def on_meta(name, shape, classes, **options):
    with torch.device("meta"):
        return models.build(name, shape=shape, classes=classes, **options)


def size_of(network, selector):
    parameters = dict(network.named_parameters())
    return sum(parameters[name].numel() for name in select(network, selector))


IMAGENET = ((3, 224, 224), 1000)


@pytest.mark.parametrize(
    ("network", "published"),
    [
        # McMahan et al., AISTATS 2017.
        (("mcmahan-cnn", (1, 28, 28), 10), 1_663_370),
        # FedFomo's code, CIFAR-10.
        (("fomo-cnn", (3, 32, 32), 10), 122_570),
        # TensorFlow Federated's EMNIST model, with 10 and with 62 classes.
        (("emnist-cnn", (1, 28, 28), 10), 1_199_882),
        (("emnist-cnn", (1, 28, 28), 62), 1_206_590),
        # torchvision; Keras for MobileNet-v1.
        (("mobilenet-v1", *IMAGENET), 4_231_976),
        (("mobilenet-v2", *IMAGENET), 3_504_872),
        (("vgg-11", *IMAGENET), 132_863_336),
    ],
)
def test_the_network_has_as_many_parameters_as_published(network, published):
    assert models.count_parameters(on_meta(*network)) == published


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("name", "published"), [("resnet-18", 11_689_512), ("resnet-34", 21_797_672)]
)
def test_imagenet_resnets_have_torchvisions_size_with_either_norm(name, published, norm):
    network = on_meta(name, *IMAGENET, stem="imagenet", norm=norm)
    assert models.count_parameters(network) == published


def test_vgg_with_batch_norm_has_torchvisions_size():
    assert models.count_parameters(on_meta("vgg-11", *IMAGENET, norm="batch")) == 132_868_840


@pytest.mark.parametrize(
    ("network", "full", "first", "last"),
    [
        (on_meta("resnet-18", (1, 28, 28), 62), 11_199_486, 704, 31_806),
        (on_meta("resnet-18", (3, 96, 96), 2028, stem="imagenet"), 12_216_876, 9_536, 1_040_364),
    ],
    ids=["EMNIST", "GLDv2"],
)
def test_resnet_18_has_the_sizes_of_partial_personalization(network, full, first, last):
    assert models.count_parameters(network) == full
    assert size_of(network, "input") == first
    assert size_of(network, "head") == last


def test_the_transformer_has_the_sizes_of_partial_personalization():
    network = on_meta("transformer", (20,), 10_004)
    assert models.count_parameters(network) == 5_731_092
    assert models.count_parameters(on_meta("transformer", (20,), 10_004, bias=False)) == 5_721_088
    assert size_of(network, "layers.0") == size_of(network, "layers.3") == 788_736


@pytest.mark.parametrize(
    ("network", "personal"),
    [
        (("resnet-18", (1, 28, 28), 62, True), 1_408_128),
        (("transformer", (20,), 10_004, 16), 71_808),
        (("transformer", (20,), 10_004, 64), 268_800),
    ],
)
def test_adapters_and_their_norms_have_the_sizes_of_partial_personalization(network, personal):
    *call, adapters = network
    built = on_meta(*call, adapters=adapters)
    assert size_of(built, models.adapter_paths(built)) == personal


def second_biases(network):
    """PyTorch's LSTM has two bias vectors where TensorFlow's has one."""
    return sum(p.numel() for name, p in network.named_parameters() if "bias_hh" in name)


@pytest.mark.parametrize(
    ("network", "published"),
    [(("char-lstm", (80,), 90), 820_522), (("word-lstm", (20,), 10_004), 4_050_748)],
)
def test_lstms_have_the_sizes_of_tensorflow_federated(network, published):
    built = on_meta(*network)
    assert models.count_parameters(built) - second_biases(built) == published


def test_a_multilayer_perceptron_is_counted_by_hand():
    assert models.count_parameters(on_meta("mlp", (1, 28, 28), 10)) == 785 * 200 + 201 * 10
    assert models.count_parameters(on_meta("mlp", (784,), 10, hidden=[])) == 7850
    assert models.count_parameters(on_meta("logistic", (4, 3), 2)) == 26


def guide_rows():
    row = re.compile(r"^\| `(\".*)` \| ([\d,]+) \|", re.MULTILINE)
    return row.findall(GUIDE.read_text())


def build_row(call):
    with torch.device("meta"):
        return eval(f"models.build({call})", {"models": models})


@pytest.mark.parametrize(("call", "parameters"), guide_rows())
def test_the_guide_counts_right(call, parameters):
    assert models.count_parameters(build_row(call)) == int(parameters.replace(",", ""))


def test_the_guide_lists_every_network():
    assert {call.split('"')[1] for call, _ in guide_rows()} == set(models.names())


def test_the_guide_runs():
    # On the meta device, because one of its networks is large.
    namespace = {}
    with torch.device("meta"):
        for code in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
            exec(code, namespace)
    assert "layers.3.adapter2" in namespace["personal"]


def test_group_norm_has_the_groups_of_partial_personalization():
    network = on_meta("resnet-18", (1, 28, 28), 62)
    groups = {
        m.num_channels: m.num_groups for m in network.modules() if isinstance(m, nn.GroupNorm)
    }
    assert groups == {64: 8, 128: 8, 256: 16, 512: 32}


def test_a_narrow_network_is_small():
    small = models.count_parameters(on_meta("resnet-18", (3, 32, 32), 10, width=16))
    assert math.isclose(small / 11_173_962, 1 / 16, rel_tol=0.02)
