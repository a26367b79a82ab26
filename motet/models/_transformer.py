"""A small post-norm transformer language model, with attention written out to stack over clients.

Vaswani et al., 2017, https://arxiv.org/abs/1706.03762; sizes, embedding and initialisation as in
Pillutla et al., ICML 2022, https://arxiv.org/abs/2204.03809.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from motet.errors import RequestError
from motet.models._adapters import BottleneckAdapter
from motet.models._layers import check_choice, sequence_length
from motet.models._recurrent import Predict


class TokenEmbedding(nn.Module):
    """Word and position embeddings, added."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        nn.init.normal_(self.word.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        length, longest = x.shape[1], self.position.num_embeddings
        if length > longest:
            raise RequestError(
                f"the transformer was built for up to {longest} tokens; got {length}. "
                f"Cut the sequences, or build it with shape=({length},)."
            )
        words: Tensor = self.word(x) * math.sqrt(self.word.embedding_dim)
        # Pillutla et al. rectify the sum.
        return (words + self.position.weight[:length]).relu()


class CausalAttention(nn.Module):
    """Multi-head attention in which a position sees itself and the positions before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise RequestError(
                f"{heads} heads must share a width of {width} equally; choose a divisor of {width}."
            )
        self.heads = heads
        self.qkv = _linear(width, 3 * width, bias=False)
        self.output = _linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # [batch, time, 3, heads, size]
        # Each is [batch, heads, time, size].
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        attended = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        out: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return out


class TransformerLayer(nn.Module):
    """Attention, then a two-layer network, each added to its input and normalised."""

    def __init__(self, width: int, heads: int, feedforward: int, adapters: int | None) -> None:
        super().__init__()
        self.attention = CausalAttention(width, heads)
        self.adapter1 = _adapter(width, adapters)
        self.norm1 = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            _linear(width, feedforward), nn.ReLU(), _linear(feedforward, width)
        )
        # Deviates: the second text adapter adapts the output of the feed-forward network. The
        # authors' code adapts the other term of the second sum, the layer's input.
        self.adapter2 = _adapter(width, adapters)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.adapter1(self.attention(x)))
        out: Tensor = self.norm2(x + self.adapter2(self.feedforward(x)))
        return out


class Transformer(nn.Module):
    """A next-token transformer; the defaults are the StackOverflow network of Pillutla et al.

    Args:
        shape: (length,) of the longest sequence of tokens; 20 in the paper.
        classes: Size of the vocabulary; 10,004 in the paper.
        predict: "every" scores the next token at each position; "last" only the one that follows.
        layers: Number of transformer layers.
        heads: Attention heads of a layer.
        width: Width of embeddings and layers.
        feedforward: Hidden width of the feed-forward networks.
        tied: Share the word embedding with `head`, which then owns nothing but its bias.
        bias: Give `head` a bias.
        adapters: Width of the two adapters in each layer (16 or 64 in the paper); None for none.

    Example:
        >>> import torch
        >>> network = Transformer((20,), classes=50, layers=1, width=8, heads=2)
        >>> network(torch.zeros(2, 20, dtype=torch.long)).shape
        torch.Size([2, 20, 50])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        predict: Predict = "every",
        layers: int = 4,
        heads: int = 4,
        width: int = 256,
        feedforward: int = 1024,
        tied: bool = True,
        bias: bool = True,
        adapters: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("predict", predict, ("every", "last"))
        self.predict = predict
        self.embedding = TokenEmbedding(classes, sequence_length("transformer", shape), width)
        self.layers = nn.ModuleList(
            TransformerLayer(width, heads, feedforward, adapters) for _ in range(layers)
        )
        self.head = _linear(width, classes, bias=bias)
        if tied:
            self.head.weight = self.embedding.word.weight

    def forward(self, x: Tensor) -> Tensor:
        out = self.embedding(x)
        for layer in self.layers:
            out = layer(out)
        scores: Tensor = self.head(out if self.predict == "every" else out[:, -1])
        return scores


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Make a linear layer drawn as Pillutla et al. draw theirs: N(0, 0.02), biases zero."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=0.02)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _adapter(width: int, bottleneck: int | None) -> nn.Module:
    return nn.Identity() if bottleneck is None else BottleneckAdapter(width, bottleneck)
