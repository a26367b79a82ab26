"""An LSTM that stacks over clients, and the next-token networks made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from motet._core.transforms import is_transforming
from motet.models._layers import check_choice, sequence_length
from motet.models._recurrence import fast_steps

Predict: TypeAlias = Literal["every", "last"]
PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of one layer, in torch's order


class LSTM(nn.Module):
    """`nn.LSTM(batch_first=True)` that works under `vmap`, for which torch's own has no rule.

    Parameters have torch's names and layout, so state dicts move between the two. Torch's kernel
    runs wherever no `torch.func` transform is active, our own steps elsewhere.

    Args:
        input_size: Width of an input.
        hidden_size: Width of a layer.
        num_layers: Number of layers.

    Example:
        >>> import torch
        >>> outputs, (hidden, cell) = LSTM(3, 5)(torch.zeros(2, 7, 3))
        >>> outputs.shape, hidden.shape
        (torch.Size([2, 7, 5]), torch.Size([1, 2, 5]))
    """

    loops_over_time: ClassVar[bool] = True  # plans take clients one by one, for torch's kernel

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        bound = 1 / math.sqrt(hidden_size)
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else hidden_size
            shapes = ((inputs,), (hidden_size,), (), ())
            for name, shape in zip(PARAMETERS, shapes, strict=True):
                values = torch.empty(4 * hidden_size, *shape).uniform_(-bound, bound)
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(values))

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read [batch, time, inputs]; return outputs, then each layer's last states."""
        # Under `torch.func.grad` torch's kernel works, but is four times slower than our steps.
        return self.run_steps(x) if is_transforming() else self._run_kernel(x)

    def run_steps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Do what `forward` does, in a way that can be vectorized and differentiated twice.

        Args:
            x: Sequences, [batch, time, inputs].

        Returns:
            The outputs of all steps, and the last hidden and cell states.
        """
        outputs = x.transpose(0, 1)  # [time, batch, inputs]: a step is then one contiguous slice
        hidden, cell = [], []
        for layer in range(self.num_layers):
            outputs, cells = self._run_layer(outputs, layer)
            hidden.append(outputs[-1])
            cell.append(cells[-1])
        return outputs.transpose(0, 1), (torch.stack(hidden), torch.stack(cell))

    def _run_layer(self, x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        weights, recurrent, bias, recurrent_bias = self._weights(layer)
        # The inputs of all steps at once; only the recurrent product waits for the step before.
        return fast_steps(F.linear(x, weights, bias + recurrent_bias), recurrent)

    def _run_kernel(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        weights = [weight for layer in range(self.num_layers) for weight in self._weights(layer)]
        zeros = x.new_zeros(self.num_layers, x.shape[0], self.hidden_size)
        outputs, hidden, cell = torch.lstm(
            x,
            (zeros, zeros),
            weights,
            has_biases=True,
            num_layers=self.num_layers,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=True,
        )
        return outputs, (hidden, cell)

    def _weights(self, layer: int) -> list[Tensor]:
        return [getattr(self, f"{name}_l{layer}") for name in PARAMETERS]


class NextTokenLSTM(nn.Module):
    """Embedding, LSTM layers, an optional linear projection, a linear head over the vocabulary.

    `states` is called with the last hidden and cell states of all layers side by side, and passes
    them on to no layer: it is there to be named as the representation of a sequence, as in kNN-Per.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        embedding: int,
        hidden: int,
        layers: int,
        projection: int | None,
        predict: Predict,
    ) -> None:
        super().__init__()
        check_choice("predict", predict, ("every", "last"))
        self.predict = predict
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = LSTM(embedding, hidden, layers)
        self.states = nn.Identity()
        self.projection = nn.Identity() if projection is None else nn.Linear(hidden, projection)
        self.head = nn.Linear(projection or hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        outputs, (hidden, cell) = self.lstm(self.embedding(x))
        self.states(torch.cat([*hidden, *cell], dim=-1))
        wanted = outputs if self.predict == "every" else outputs[:, -1]
        scores: Tensor = self.head(self.projection(wanted))
        return scores


class CharLSTM(NextTokenLSTM):
    """The next-character network: embedding 8, two layers of 256 (McMahan et al., 2017).

    Args:
        shape: (length,) of a sequence of character numbers.
        classes: Number of characters.
        predict: "every" scores the next character at each position, [batch, time, classes];
            "last" only the one that follows the sequence, [batch, classes].
        embedding: Width of a character's embedding.
        hidden: Width of an LSTM layer.
        layers: Number of LSTM layers.

    Example:
        >>> import torch
        >>> CharLSTM((5,), classes=30, hidden=8)(torch.zeros(2, 5, dtype=torch.long)).shape
        torch.Size([2, 5, 30])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        predict: Predict = "every",
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
    ) -> None:
        sequence_length("char-lstm", shape)
        super().__init__(
            classes,
            classes,
            embedding=embedding,
            hidden=hidden,
            layers=layers,
            projection=None,
            predict=predict,
        )


class WordLSTM(NextTokenLSTM):
    """The next-word network: embedding 96, one layer of 670, projection to 96 (Reddi et al., 2021).

    Args:
        shape: (length,) of a sequence of word numbers.
        classes: Number of words; 10,004 in the papers.
        predict: "every" scores the next word at each position; "last" only the one that follows.
        embedding: Width of a word's embedding and of the projection.
        hidden: Width of the LSTM layer.

    Example:
        >>> import torch
        >>> WordLSTM((20,), classes=50, hidden=8)(torch.zeros(2, 20, dtype=torch.long)).shape
        torch.Size([2, 20, 50])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        predict: Predict = "every",
        embedding: int = 96,
        hidden: int = 670,
    ) -> None:
        sequence_length("word-lstm", shape)
        super().__init__(
            classes,
            classes,
            embedding=embedding,
            hidden=hidden,
            layers=1,
            projection=embedding,
            predict=predict,
        )
