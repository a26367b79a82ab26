"""Texts packed one behind the other: outputs and training are those of padded texts."""

from __future__ import annotations

import warnings

import pytest
import torch
from test_hugging_face_models import PAD, WORDS, agree, data, encoder, gpt2

import motet
from motet import Key, Task
from motet.models import _packing as packing
from motet.models import hugging_face, with_lora

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def body():
    return gpt2().transformer


def with_dropout(make, rate):
    model = make()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and module.p > 0:
            module.p = rate
    return model


def ragged(texts=7, length=6, seed=0):
    """Texts of all lengths, one empty, one padded on the left, one with a gap."""
    draws = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, WORDS, (texts, length), generator=draws)
    for number in range(texts):
        tokens[number, number % (length + 1) :] = PAD
    tokens[1] = torch.tensor([PAD, PAD, 3, 4, PAD, PAD])
    tokens[2] = torch.tensor([5, PAD, 6, PAD, PAD, PAD])
    return tokens


@pytest.mark.parametrize("make", [encoder, body])
@pytest.mark.parametrize("pool", ["mean", "first"])
def test_packed_texts_have_the_outputs_of_padded_ones(make, pool, monkeypatch):
    network = hugging_face(make, pool=pool, classes=3)().eval()
    assert network.packs_padding
    monkeypatch.setattr(packing, "ROW", 7)  # several rows
    rows = []
    network.model.register_forward_hook(
        lambda _, __, said: rows.append(said.last_hidden_state.shape[:2].numel())
    )
    tokens = ragged()
    with torch.no_grad():
        packed = network(tokens)
        network.packs_padding = False
        padded = network(tokens)
    torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)
    assert rows[0] < rows[1] == tokens.numel()


@pytest.mark.parametrize(("make", "at"), [(encoder, "query"), (body, "c_attn")])
def test_stacked_clients_pack_too_and_learn_the_same(make, at):
    network = hugging_face(lambda: with_dropout(make, 0.0), pool="mean", classes=3)
    task = Task(with_lora(network, at, rank=2, train="head"))
    assert task.skeleton.packs_padding
    agree(motet.FedSim(personal="lora_B", batch_size=4), task, data())


def test_a_model_that_counts_positions_in_its_own_way_is_not_packed():
    config = transformers.RobertaConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=12, pad_token_id=PAD,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    build = hugging_face(lambda: transformers.RobertaModel(config), pool="mean", classes=3)
    network = build().eval()
    assert not network.packs_padding
    assert torch.isfinite(network(ragged())).all()


def test_dropout_and_hooks_see_texts_where_they_were():
    network = hugging_face(encoder, pool="mean", classes=3)()
    seen = []
    handle = network.model.encoder.register_forward_pre_hook(
        lambda _, given: seen.append(given[0].shape)
    )
    network.eval()(ragged())
    handle.remove()
    assert seen == [torch.Size([7, 6, 8])]
    task = Task(hugging_face(lambda: with_dropout(encoder, 0.1), pool="mean", classes=3))
    agree(motet.FedAvg(batch_size=4), task, data())


def test_features_inside_the_model_are_per_example():
    task = Task(hugging_face(encoder, pool="mean", classes=3))
    features = task.features(task.init(Key(0)), ragged(), "model.encoder.layer.0")
    assert features.shape == (7, 6 * 8)
