"""The promises selectors rely on: a linear `head` at the end, and blocks in order before it."""

from functools import partial

import pytest
import torch
from torch import nn

from motet import models
from motet._core.selectors import Blocks, blocks_of, select
from motet.errors import RequestError

SHAPES = {
    "char-lstm": (80,),
    "sensor-cnn": (128, 6),
    "transformer": (20,),
    "word-lstm": (20,),
}
TEXT = ("char-lstm", "transformer", "word-lstm")


def on_meta(name, **options):
    with torch.device("meta"):
        return models.build(name, shape=SHAPES.get(name, (3, 32, 32)), classes=11, **options)


@pytest.mark.parametrize("name", models.names())
def test_the_last_block_is_a_linear_head(name):
    network = on_meta(name)
    assert isinstance(network.head, nn.Linear)
    assert network.head.out_features == 11
    assert blocks_of(network)[-1] == ["head"]
    assert select(network, Blocks(last=1)) == select(network, "head")


@pytest.mark.parametrize("name", models.names())
def test_blocks_stand_in_the_order_of_the_forward_pass(name):
    network = on_meta(name)
    called = []
    paths = [path for path, *_ in blocks_of(network)]
    for path in paths:
        hook = partial(lambda path, *_: called.append(path), path)
        network.get_submodule(path).register_forward_pre_hook(hook)
    dtype = torch.int64 if name in TEXT else torch.float32
    network.eval()(torch.zeros(2, *SHAPES.get(name, (3, 32, 32)), dtype=dtype, device="meta"))
    assert called == paths


@pytest.mark.parametrize(
    ("name", "stem", "blocks"),
    [("resnet-18", 1, 8), ("resnet-34", 1, 16), ("mobilenet-v1", 1, 13), ("mobilenet-v2", 1, 18)],
)
def test_blocks_are_counted_as_the_papers_count_them(name, stem, blocks):
    assert len(blocks_of(on_meta(name))) == stem + blocks + 1


def test_vgg_11_has_eleven_blocks_with_or_without_norms():
    assert len(blocks_of(on_meta("vgg-11"))) == 11
    assert len(blocks_of(on_meta("vgg-11", norm="batch"))) == 11


def test_a_basic_block_is_one_block_with_its_norms_and_shortcut():
    last_two = select(on_meta("resnet-34", norm="batch"), Blocks(last=2))
    assert {name.split(".")[0] for name in last_two} == {"stage4", "head"}
    assert {".".join(n.split(".")[:2]) for n in last_two if n.startswith("stage4")} == {"stage4.2"}
    assert "stage4.2.norm2.running_mean" in last_two


@pytest.mark.parametrize(("name", "features"), [("mobilenet-v2", 1280), ("resnet-34", 512)])
def test_the_head_reads_one_vector_per_image(name, features):
    network = on_meta(name)
    seen = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    network.eval()(torch.zeros(2, 3, 32, 32, device="meta"))
    assert seen == [(2, features)]


@pytest.mark.parametrize(
    ("stem", "side"), [("small", 4), ("imagenet", 1)], ids=["keeps size", "quarters it"]
)
def test_the_stem_decides_how_much_resolution_the_last_stage_has(stem, side):
    network = on_meta("resnet-18", stem=stem)
    images = torch.zeros(2, 3, 32, 32, device="meta")
    out = network.stage4(network.stage3(network.stage2(network.stage1(network.stem(images)))))
    assert out.shape == (2, 512, side, side)


def test_a_basic_block_adds_its_input():
    network = models.ResNet18((1, 4, 4), 2, width=8).eval()
    block = network.stage1[1]
    for norm in (block.norm1, block.norm2):
        nn.init.zeros_(norm.weight)
        nn.init.zeros_(norm.bias)
    x = torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x)


def test_an_inverted_residual_carries_its_input_only_where_shapes_allow():
    blocks = on_meta("mobilenet-v2").blocks
    carries = [block.carries_input for block in blocks]
    assert carries == [i in {2, 4, 5, 7, 8, 9, 11, 12, 14, 15} for i in range(17)]


def test_an_image_without_a_channel_axis_is_refused_with_the_way_out():
    with pytest.raises(RequestError, match=r"\(28, 28\).*x\[:, None\].*mlp"):
        models.build("mcmahan-cnn", shape=(28, 28), classes=10)


@pytest.mark.parametrize(("name", "least"), [("vgg-11", 32), ("fomo-cnn", 18), ("emnist-cnn", 6)])
def test_an_image_too_small_for_the_network_is_refused(name, least):
    models.build(name, shape=(1, least, least), classes=2)
    with pytest.raises(RequestError, match=f"at least {least} x {least}"):
        models.build(name, shape=(1, least, least - 1), classes=2)


@pytest.mark.parametrize("option", ["norm", "stem"])
def test_an_unknown_choice_is_refused(option):
    with pytest.raises(RequestError, match=f'{option} is ".*" or ".*"; got "layer"'):
        models.build("resnet-18", shape=(1, 8, 8), classes=2, **{option: "layer"})
