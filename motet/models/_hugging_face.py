"""Networks of Hugging Face `transformers`, and what `peft` makes of them, as networks of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from motet.errors import RequestError

Build: TypeAlias = Callable[[], nn.Module]
Pool: TypeAlias = Literal["mean", "first"]


class HuggingFace(nn.Module):
    """Reads token numbers [batch, length]; padding is masked out.

    Returns the logits of a model that has some, or those of `head` on pooled hidden states.
    """

    def __init__(
        self, model: nn.Module, *, pad: int | None, pool: Pool | None, classes: int | None
    ) -> None:
        super().__init__()
        self.model, self.pool = model, pool
        config = _config(model)
        self.pad = getattr(config, "pad_token_id", None) if pad is None else pad
        choose: Any = getattr(model, "set_attn_implementation", None)
        if choose is not None:
            # The others decide by the value of the mask, which cannot be stacked over clients.
            choose("eager")
        self.causal = _is_causal(model)
        if pool is not None:
            if classes is None:
                raise RequestError(f'pool="{pool}" needs classes=: the outputs of the new head.')
            self.head = nn.Linear(config.hidden_size, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        real = torch.ones_like(tokens) if self.pad is None else (tokens != self.pad).long()
        said = self.model(input_ids=tokens, attention_mask=self._mask(real))
        if self.pool is None:
            logits: Tensor = said.logits
            return logits
        hidden: Tensor = said.last_hidden_state
        scores: Tensor = self.head(_pooled(hidden, real, self.pool))
        return scores

    def _mask(self, real: Tensor) -> Tensor:
        """Say who may look at whom, as numbers to add: no value of the mask is ever asked for."""
        kind = next(p.dtype for p in self.model.parameters() if p.is_floating_point())
        seen = real[:, None, None, :].to(kind)
        if self.causal:
            length = real.shape[1]
            earlier = torch.ones(length, length, dtype=kind, device=real.device).tril()
            # A row of padding still sees itself: a softmax over nothing is not a number.
            own = torch.eye(length, dtype=kind, device=real.device)
            seen = torch.maximum(seen * earlier, own)
        return (1 - seen) * torch.finfo(kind).min


def hugging_face(
    make: Build,
    *,
    pad: int | None = None,
    pool: Pool | None = None,
    classes: int | None = None,
) -> Build:
    """Return what makes a network of tokens from a model of `transformers` or `peft`.

    Args:
        make: Makes the model, such as `lambda: AutoModel.from_pretrained(folder)`, or the same in
            `peft.get_peft_model`. Freeze what is not trained, or use `with_lora` on the result.
        pad: Token number of padding; that of the model's config if None.
        pool: How hidden states become one vector for a new linear `head`: "mean" over real tokens,
            or the "first" token. None: the model has logits of its own.
        classes: Outputs of the new head.

    Returns:
        What makes the network, for `Task` or `with_lora`.

    Raises:
        RequestError: `pool` is neither "mean" nor "first".

    Example:
        >>> from types import SimpleNamespace
        >>> from torch import nn
        >>> class Encoder(nn.Module):  # in place of AutoModel.from_pretrained(folder)
        ...     config = SimpleNamespace(vocab_size=100, pad_token_id=0, hidden_size=8)
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embed = nn.Embedding(100, 8)
        ...     def forward(self, input_ids, **options):
        ...         return SimpleNamespace(hidden_states=(self.embed(input_ids),))
        >>> hugging_face(Encoder, pool="mean", classes=3)().head
        Linear(in_features=8, out_features=3, bias=True)
    """
    if pool not in (None, "mean", "first"):
        raise RequestError(f'pool= is "mean" or "first"; got {pool!r}.')
    return partial(_build, make, pad, pool, classes)


def _build(make: Build, pad: int | None, pool: Pool | None, classes: int | None) -> nn.Module:
    return HuggingFace(make(), pad=pad, pool=pool, classes=classes)


def _config(model: nn.Module) -> Any:
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "vocab_size"):
        raise RequestError(
            f"hugging_face expects a text model of transformers or peft; got "
            f"{type(model).__name__}, which has no config with a vocab_size."
        )
    return config


def _is_causal(model: nn.Module) -> bool:
    """Find out whether later tokens change what the model makes of earlier ones."""
    tokens = torch.tensor([[1, 1, 1], [1, 1, 2]])
    was_training = model.training
    with torch.no_grad():
        said = model.eval()(input_ids=tokens, output_hidden_states=True)
    model.train(was_training)
    first = said.hidden_states[-1][:, 0]
    return bool(torch.equal(first[0], first[1]))


def _pooled(hidden: Tensor, real: Tensor, pool: Pool) -> Tensor:
    if pool == "first":
        return hidden[:, 0]
    weight = real[:, :, None].to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
