"""Attention is torch's, to rounding; nothing looks ahead; adapters start as nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from motet import models
from motet.errors import RequestError
from motet.models._adapters import ConvAdapter
from motet.models._transformer import CausalAttention, TransformerLayer


def small(**options):
    sizes = {"width": 8, "feedforward": 16, "layers": 2} | options
    return models.build("transformer", shape=(6,), classes=9, **sizes)


def tokens():
    return torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))


def test_attention_equals_torchs():
    generator = torch.Generator().manual_seed(0)
    attention = CausalAttention(8, heads=2)
    for weight in attention.parameters():
        nn.init.normal_(weight, generator=generator)
    x = torch.randn(3, 5, 8, generator=generator)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in attention.qkv(x).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention(x), attention.output(mixed))


def test_a_layer_equals_torchs_post_norm_layer():
    ours = TransformerLayer(8, heads=2, feedforward=16, adapters=None)
    theirs = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=False)
    copies = {
        theirs.self_attn.in_proj_weight: ours.attention.qkv.weight,
        theirs.self_attn.out_proj.weight: ours.attention.output.weight,
        theirs.linear1.weight: ours.feedforward[0].weight,
        theirs.linear2.weight: ours.feedforward[2].weight,
    }
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for target, source in copies.items():
            target.copy_(source.normal_(generator=generator))
        for name, parameter in theirs.named_parameters():
            if "bias" in name:
                parameter.zero_()
    x = torch.randn(3, 5, 8, generator=generator)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x), theirs(x, src_mask=future), atol=1e-5, rtol=1e-5)


def test_a_token_is_scored_without_looking_ahead():
    network, x = small(), tokens()
    changed = x.clone()
    changed[:, 4] = (x[:, 4] + 1) % 9
    same = (network(x) - network(changed)).abs().amax((0, 2)) < 1e-7
    assert same.tolist() == [True] * 4 + [False] * 2


def test_the_last_position_is_what_predict_last_returns():
    every, last = small(), small(predict="last")
    last.load_state_dict(every.state_dict())
    torch.testing.assert_close(last(tokens()), every(tokens())[:, -1])


def test_a_shorter_sequence_is_welcome_and_a_longer_one_refused():
    assert small()(tokens()[:, :4]).shape == (2, 4, 9)
    with pytest.raises(RequestError, match=r"up to 6 tokens; got 12.*shape=\(12,\)"):
        small()(tokens().repeat(1, 2))


def test_the_head_shares_the_word_embedding_unless_untied():
    tied, untied = small(), small(tied=False)
    assert tied.head.weight is tied.embedding.word.weight
    assert "head.weight" not in dict(tied.named_parameters())
    extra = models.count_parameters(untied) - models.count_parameters(tied)
    assert extra == 9 * 8


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(RequestError, match="3 heads must share a width of 8"):
        small(heads=3)


def switch_off_adapters(network):
    for path, module in network.named_modules():
        if path.endswith((".up", ".conv")) and "adapter" in path:
            nn.init.zeros_(module.weight)


@pytest.mark.parametrize(
    ("name", "shape", "options", "adapters"),
    [
        ("transformer", (6,), {"width": 8, "feedforward": 16}, 2),
        ("resnet-18", (1, 6, 6), {"width": 8}, True),
    ],
)
def test_an_adapter_that_adds_nothing_leaves_the_network_as_it_was(name, shape, options, adapters):
    base = models.build(name, shape=shape, classes=9, **options)
    adapted = models.build(name, shape=shape, classes=9, adapters=adapters, **options)
    missing = adapted.load_state_dict(base.state_dict(), strict=False).missing_keys
    assert missing
    assert all("adapter" in key for key in missing)
    switch_off_adapters(adapted)
    x = tokens() if name == "transformer" else torch.rand(2, *shape)
    assert torch.equal(adapted(x), base(x))


def test_a_fresh_adapter_changes_next_to_nothing():
    adapter = ConvAdapter(64, norm="group")
    x = torch.randn(2, 64, 4, 4, generator=torch.Generator().manual_seed(0))
    assert 0 < (adapter(x) - x).abs().max() < 0.01


def test_adapter_paths_leave_the_shortcut_norms_shared():
    network = models.build("resnet-18", shape=(1, 6, 6), classes=2, width=8, adapters=True)
    paths = models.adapter_paths(network)
    assert "stem.norm" in paths
    assert "stage2.0.norm2" in paths
    assert "stage2.0.adapter1" in paths
    assert not any("shortcut" in path or path.endswith("adapter1.norm") for path in paths)


def test_a_network_without_adapters_says_how_to_get_them():
    with pytest.raises(RequestError, match=r"without adapters.*adapters=True"):
        models.adapter_paths(models.build("resnet-18", shape=(1, 6, 6), classes=2, width=8))
