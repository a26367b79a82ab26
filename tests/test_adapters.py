"""Adapters, dropout and second models, put into a network by name."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import FedAlt, FedSim, Key, Sgd
from motet.errors import CapabilityError, RequestError, SelectorError
from motet.models import ResNet18, Transformer, count_parameters
from motet.models._adapters import BottleneckAdapter, ConvAdapter
from motet.models._surgery.adapters import (
    adapter_paths,
    with_bottleneck_adapters,
    with_conv_adapters,
    with_dropout,
)
from motet.models._surgery.sum_model import combined


class Picture(nn.Module):
    """A user's own network, without a norm that could hide a doubled skip."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(self.conv(x).relu()).mean((2, 3)))


class Attentive(nn.Module):
    """A network around torch's own attention, which returns a pair."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        attended, _ = self.attention(x, x, x)
        return self.head(attended.mean(1))


def build_resnet():
    return ResNet18((1, 8, 8), 62)


def build_transformer():
    return Transformer((20,), 10_004)


def personal_size(task, personal):
    names = task.select(personal)
    return sum(p.numel() for name, p in task.skeleton.named_parameters() if name in names)


def pictures(clients=3):
    rng = np.random.default_rng(0)
    train = {
        f"c{i}": (
            rng.normal(size=(5 + i, 1, 6, 6)).astype(np.float32),
            rng.integers(0, 3, 5 + i),
        )
        for i in range(clients)
    }
    return motet.data.from_arrays(train, test=train, classes=3)


# ---- How many parameters are personal, as in the paper's table ---------------------------------


CONVOLUTIONS = [f"stage{s}.{b}.conv{c}" for s in (1, 2, 3, 4) for b in (0, 1) for c in (1, 2)]


def test_vision_adapters_and_norms_of_resnet_18_are_1408128_parameters():
    task = motet.Task(with_conv_adapters(build_resnet, after=CONVOLUTIONS))
    assert personal_size(task, adapter_paths(task.skeleton)) == 1_408_128
    adapters = [p for p, m in task.skeleton.named_modules() if isinstance(m, ConvAdapter)]
    assert len(adapters) == 16
    assert personal_size(task, adapters) == 1_400_320


@pytest.mark.parametrize(("size", "expected"), [(16, 71_808), (64, 268_800)])
def test_text_adapters_and_norms_have_the_paper_s_size(size, expected):
    places = [f"layers.{i}.{part}" for i in range(4) for part in ("attention", "feedforward")]
    task = motet.Task(with_bottleneck_adapters(build_transformer, after=places, size=size))
    assert personal_size(task, adapter_paths(task.skeleton)) == expected


def test_input_and_output_layers_have_the_paper_s_sizes():
    image, text = motet.Task(build_resnet), motet.Task(build_transformer)
    assert personal_size(image, "stem") == 704
    assert personal_size(image, "head") == 31_806
    assert personal_size(text, "layers.0") == personal_size(text, "layers.3") == 788_736
    with_bias = count_parameters(text.skeleton)
    assert (with_bias, with_bias - 10_004) == (5_731_092, 5_721_088)


# ---- What insertion leaves alone ---------------------------------------------------------------


def test_names_and_first_weights_of_the_network_stay_as_they_were():
    plain = motet.Task(Picture)
    adapted = motet.Task(with_conv_adapters(Picture, after=("conv", "body")))
    assert [n for n in adapted.names if "adapter" not in n] == list(plain.names)
    before, after = plain.init(Key(7)), adapted.init(Key(7))
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert {n for n in adapted.names if "adapter" in n} == adapted.select(
        ("conv.adapter", "body.1.adapter")
    )


def test_an_adapter_of_zeros_is_the_network_itself():
    """Exactly: the adapter holds its skip, and nobody adds it again."""
    plain = motet.Task(Picture)
    adapted = motet.Task(with_conv_adapters(Picture, after=("conv", "body")))
    state = adapted.init(Key(1))
    state |= {k: torch.zeros_like(v) for k, v in state.items() if k.endswith("adapter.conv.weight")}
    x = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    base = {name: state[name] for name in plain.names}
    assert torch.equal(adapted.outputs(state, x), plain.outputs(base, x))


def test_reference_networks_with_adapters_of_zeros_are_the_plain_ones():
    plain = motet.Task(lambda: ResNet18((1, 8, 8), 5, width=8))
    adapted = motet.Task(lambda: ResNet18((1, 8, 8), 5, width=8, adapters=True))
    state = adapted.init(Key(1))
    state |= {k: torch.zeros_like(v) for k, v in state.items() if ".conv.weight" in k}
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    base = {name: state[name] for name in plain.names}
    assert torch.equal(adapted.outputs(state, x), plain.outputs(base, x))


def test_an_inserted_adapter_computes_x_plus_conv_of_the_normalised_x():
    network = with_conv_adapters(Picture, after=("conv",))()
    adapter = network.conv.adapter
    nn.init.normal_(adapter.conv.weight)
    x = torch.randn(2, 1, 6, 6)
    raw = nn.functional.conv2d(x, network.conv.weight, network.conv.bias, padding=1)
    expected = raw + adapter.conv(adapter.norm(raw))
    assert_close(network.conv(x), expected)


def test_a_copy_of_an_adapted_network_uses_its_own_adapter():
    network = with_conv_adapters(Picture, after=("conv",))()
    twin = copy.deepcopy(network)
    nn.init.normal_(twin.conv.adapter.conv.weight)
    x = torch.randn(2, 1, 6, 6)
    assert not torch.allclose(network(x), twin(x))


def test_an_adapter_that_drops_everything_is_the_identity_in_training():
    image, vector = torch.randn(2, 4, 3, 3), torch.randn(2, 8)
    conv = ConvAdapter(4, norm="group", dropout=1.0)
    bottleneck = BottleneckAdapter(8, 2, dropout=1.0)
    assert torch.equal(conv(image), image)
    assert torch.equal(bottleneck(vector), vector)
    assert not torch.equal(conv.eval()(image), image)


def test_an_adapter_behind_attention_adapts_its_output():
    network = with_bottleneck_adapters(Attentive, after=("attention",), size=2)()
    nn.init.normal_(network.attention.adapter.up.weight)
    x = torch.randn(2, 5, 8)
    outputs, weights = network.attention(x, x, x)
    assert weights.shape == (2, 5, 5)
    network.attention.adapter.up.weight.data.zero_()
    assert not torch.allclose(network.attention(x, x, x)[0], outputs)


def test_what_makes_an_adapted_network_can_be_sent_to_a_worker():
    build = with_dropout(with_conv_adapters(Picture, after=("conv",)), before=("head",), rate=0.5)
    assert "conv.adapter.conv.weight" in pickle.loads(pickle.dumps(build))().state_dict()


# ---- Training with adapters --------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
@pytest.mark.parametrize("method", [FedAlt, FedSim])
def test_adapters_stay_at_the_client_and_learn_there(method, backend):
    task = motet.Task(with_conv_adapters(Picture, after=("conv", "body"), dropout=0.3))
    personal = adapter_paths(task.skeleton)
    run = motet.run(method(personal=personal, batch_size=4), task, pictures(), rounds=2,
                    backend=backend)  # fmt: skip
    assert not any("adapter" in name for name in run.server)
    first, second = run.clients["c0"], run.clients["c1"]
    assert set(first) == task.select(personal)
    name = "conv.adapter.conv.weight"
    assert not torch.equal(first[name], second[name])


@pytest.mark.parametrize("method", [FedAlt, FedSim])
def test_personal_dropout_is_the_same_on_every_backend_and_off_when_serving(method):
    build = with_conv_adapters(Picture, after=("conv",), dropout=0.4)
    task = motet.Task(with_dropout(build, before=("head",), rate=0.4))
    made = method(personal=("conv.adapter", "head"), batch_size=4, optimizer=Sgd(lr=0.1))
    runs = [
        motet.run(made, task, pictures(), rounds=2, backend=backend)
        for backend in ("serial", "vectorized")
    ]
    assert_close(runs[0].clients["c0"], runs[1].clients["c0"], atol=1e-5, rtol=0)
    x = torch.ones(2, 1, 6, 6)
    assert torch.equal(runs[0].predict("c0", x), runs[0].predict("c0", x))
    dry = motet.Task(with_conv_adapters(Picture, after=("conv",)))
    undropped = motet.run(made, dry, pictures(), rounds=2, backend="serial")
    name = "head.weight"
    assert not torch.allclose(undropped.clients["c0"][name], runs[0].clients["c0"][name], atol=1e-4)


def test_dropout_before_a_module_scales_what_it_keeps():
    task = motet.Task(with_dropout(nn.Flatten, before=(), rate=0.5))
    assert task.names == ()
    network = with_dropout(Picture, before=("head",), rate=0.5)()
    seen = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network.head(torch.ones(1, 4))
    assert set(seen[0].flatten().tolist()) <= {0.0, 2.0}
    network.eval().head(torch.ones(1, 4))
    assert torch.equal(seen[1], torch.ones(1, 4))


# ---- Combined prediction -----------------------------------------------------------------------


def test_combined_outputs_are_the_sum_of_both_networks():
    task = motet.Task(combined(Picture, lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))))
    state, x = task.init(Key(0)), torch.randn(2, 1, 6, 6)
    shared, local = (
        motet.Task(Picture),
        motet.Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))),
    )
    parts = [
        part.outputs({n: state[f"{name}.{n}"] for n in part.names}, x)
        for name, part in (("shared", shared), ("local", local))
    ]
    assert_close(task.outputs(state, x), parts[0] + parts[1])


def test_a_local_network_that_starts_at_zero_leaves_a_trained_model_as_it_was():
    data = pictures()
    trained = motet.run(motet.FedAvg(), motet.Task(Picture), data, rounds=1)
    task = motet.Task(combined(Picture, Picture, start=0.0))
    init = {f"shared.{name}": leaf for name, leaf in trained.server.items()}
    run = motet.run(FedAlt(personal=("local",)), task, data, rounds=0, init=init)
    x = torch.randn(3, 1, 6, 6)
    assert_close(run.predict("c0", x, point="after_broadcast"), trained.predict("c0", x))
    # Zeros in the last layer only: it has a gradient, so the local network does learn.
    after = motet.run(FedAlt(personal=("local",)), task, data, rounds=1, init=init)
    assert after.clients["c0"]["local.head.weight"].abs().sum() > 0
    assert all(name.startswith("shared.") for name in after.server)


# ---- Refusals ----------------------------------------------------------------------------------


def test_a_module_that_does_not_exist_is_refused_with_the_names_that_do():
    with pytest.raises(SelectorError, match=r'did you mean "conv"\? known: body, body.0'):
        motet.Task(with_conv_adapters(Picture, after=("convv",)))


def test_a_module_that_does_not_tell_its_size_asks_for_it():
    class Opaque(Picture):
        def __init__(self):
            super().__init__()
            self.conv = nn.Identity()

    with pytest.raises(RequestError, match="channels="):
        with_conv_adapters(Opaque, after=("conv",))()
    assert (
        with_conv_adapters(Opaque, after=("conv",), channels=4)().conv.adapter.conv.in_channels == 4
    )


def test_two_adapters_in_one_place_are_refused():
    with pytest.raises(RequestError, match="already"):
        with_conv_adapters(Picture, after=("conv", "conv"))()


def test_the_projection_inside_torchs_attention_is_never_called_so_it_takes_no_adapter():
    with pytest.raises(CapabilityError, match="attention module itself"):
        with_bottleneck_adapters(Attentive, after=("attention.out_proj",))()


def test_a_network_without_adapters_has_no_adapter_paths():
    with pytest.raises(RequestError, match=r"motet\.models\.with_conv_adapters"):
        adapter_paths(Picture())


# ---- Modules by pattern ------------------------------------------------------------------------


def added(network, ending):
    return [path for path, _ in network.named_modules() if path.endswith(ending)]


def test_patterns_and_last_parts_name_the_same_modules_as_a_list():
    listed = with_conv_adapters(build_resnet, after=CONVOLUTIONS)()
    for pattern in ("stage*.conv?", ("conv1", "conv2")):
        found = with_conv_adapters(build_resnet, after=pattern)()
        assert sorted(found.state_dict()) == sorted(listed.state_dict())


def test_a_whole_name_means_that_module_alone_and_a_pattern_skips_activations():
    assert added(with_conv_adapters(Picture, after="body.*")(), ".adapter") == ["body.0.adapter"]
    assert added(with_dropout(Picture, before="h*d", rate=0.1)(), "input_dropout") == [
        "head.input_dropout"
    ]
    inner = with_bottleneck_adapters(Attentive, after="att*")()
    assert added(inner, ".adapter") == ["attention.adapter"]


def test_a_pattern_that_fits_nothing_is_refused():
    with pytest.raises(SelectorError, match=r'no module called "conv9\*"'):
        with_conv_adapters(Picture, after="conv9*")()
    with pytest.raises(CapabilityError, match="without calling it"):
        with_dropout(Attentive, before="*.out_proj", rate=0.1)()
