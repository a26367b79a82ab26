"""Networks of Hugging Face `transformers`, and what `peft` makes of them, as networks of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from motet._core.dropout import KeyedDropout
from motet._core.transforms import is_recording
from motet.errors import RequestError
from motet.models._packing import pack

Build: TypeAlias = Callable[[], nn.Module]
Pool: TypeAlias = Literal["mean", "first"]
REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)  # of a model, in a trial


class HuggingFace(nn.Module):
    """Reads token numbers [batch, length]; padding is masked out.

    Returns the logits of a model that has some, or those of `head` on pooled hidden states. For
    the latter, texts of one client are packed one behind the other, and padding costs nothing.

    Attributes:
        packs_padding: Whether the model computes the same for packed texts.
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
        self.adds_mask = _adds_mask(self)
        if pool is not None:
            if classes is None:
                raise RequestError(f'pool="{pool}" needs classes=: the outputs of the new head.')
            self.head = nn.Linear(config.hidden_size, classes)
        self.packs_padding = pool is not None and self.adds_mask and _packs(self)

    def forward(self, tokens: Tensor) -> Tensor:
        real = self._real(tokens)
        if self.pool is None:
            logits: Tensor = self._said(tokens, real).logits
            return logits
        packs = self.packs_padding and self._is_unobserved()
        hidden = self._packed(tokens, real) if packs else self._padded(tokens, real)
        scores: Tensor = self.head(_pooled(hidden, real, self.pool))
        return scores

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Set the mode, but let nothing be drawn for a layer dropout of rate 0 (OPT, BART)."""
        super().train(mode)
        for module in self.modules():
            if getattr(module, "layerdrop", None) == 0 and not getattr(module, "dropout", 0):
                module.training = False
        return self

    def _real(self, tokens: Tensor) -> Tensor:
        """Say which tokens are no padding; an empty text is one token of it."""
        if self.pad is None:
            return torch.ones_like(tokens)
        real = (tokens != self.pad).long()
        is_first = torch.arange(tokens.shape[1], device=tokens.device) == 0
        return torch.where(is_first & (real.sum(1, keepdim=True) == 0), 1, real)

    def _is_unobserved(self) -> bool:
        """Tell whether padding can be removed without a visible effect.

        It cannot while a step is recorded, which is replayed for other texts; with dropout, which
        draws by position; or with a hook, which may read positions.
        """
        return not is_recording() and not any(_sees_places(module) for module in self.modules())

    def _padded(self, tokens: Tensor, real: Tensor) -> Tensor:
        found: Tensor = self._said(tokens, real).last_hidden_state
        return found

    def _said(self, tokens: Tensor, real: Tensor) -> Any:
        mask = self._added(real) if self.adds_mask else real
        return self.model(input_ids=tokens, attention_mask=mask)

    def _packed(self, tokens: Tensor, real: Tensor, *, shift: int = 0) -> Tensor:
        packed = pack(tokens, real)
        said = self.model(
            input_ids=packed.tokens,
            attention_mask=packed.mask(self._kind, causal=self.causal),
            position_ids=packed.positions + shift,
        )
        return packed.unpacked(said.last_hidden_state)

    @property
    def _kind(self) -> torch.dtype:
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    def _added(self, real: Tensor) -> Tensor:
        """Say who may look at whom, as numbers to add: no value of the mask is ever asked for."""
        kind = self._kind
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
        ...         found = self.embed(input_ids)
        ...         return SimpleNamespace(last_hidden_state=found, hidden_states=(found,))
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
    word, other, *end = _words(model)
    tokens = torch.tensor([[word, word, word, *end], [word, word, other, *end]])
    was_training = model.training
    try:
        with torch.no_grad():
            seen = {"attention_mask": torch.ones_like(tokens), "output_hidden_states": True}
            said = model.eval()(input_ids=tokens, **seen)
    except REFUSALS:  # of such short texts, or of a mask
        return False
    finally:
        model.train(was_training)
    states = getattr(said, "hidden_states", None)
    if not states:  # an encoder and a decoder: the mask is the encoder's
        return False
    return bool(torch.equal(states[-1][0, 0], states[-1][1, 0]))


def _words(model: nn.Module) -> list[int]:
    """Return two ordinary tokens, and the one that ends a text, if there is one."""
    config = _config(model)
    named = [getattr(config, f"{kind}_token_id", None) for kind in ("eos", "pad", "bos", "cls")]
    special = {n for ids in named for n in (ids if isinstance(ids, (list, tuple)) else [ids])}
    ordinary = [n for n in range(1, min(config.vocab_size, 20)) if n not in special]
    end = named[0][0] if isinstance(named[0], (list, tuple)) else named[0]
    found = [*ordinary, 1, 2][:2]
    return [*found, end] if end is not None and end < config.vocab_size else found


def _adds_mask(network: HuggingFace) -> bool:
    """Find out whether a mask of numbers does what flags do, as the model was published.

    It suits most models and every backend. Some count positions by the flags (OPT, BLOOM), or read
    everything as flags (DeBERTa).
    """
    text = _words(network.model)
    filling = text[0] if network.pad is None else network.pad
    tokens = torch.tensor([[*text, filling, filling]])
    real = (torch.arange(tokens.shape[1]) < len(text)).long()[None]
    was_training = network.training
    network.eval()
    plain = _tried(network, tokens[:, : len(text)], real[:, : len(text)])
    found = _tried(network, tokens, network._added(real))
    network.train(was_training)
    if plain is None or found is None:
        return False
    return _close(found[:, : plain.shape[1]], plain)


def _tried(network: HuggingFace, tokens: Tensor, mask: Tensor) -> Tensor | None:
    """Return what the model says; None if it refuses."""
    try:
        with torch.no_grad():
            said = network.model(input_ids=tokens, attention_mask=mask)
    except REFUSALS:
        return None
    logits = getattr(said, "logits", None)
    found: Tensor = said.last_hidden_state if logits is None else logits
    return found


def _packs(network: HuggingFace) -> bool:
    """Find out whether a model takes positions, and computes the same for texts in one row."""
    tokens, real = torch.tensor([[1, 2, 2], [2, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
    was_training = network.training
    try:
        with torch.no_grad():
            plain = network.eval()._padded(tokens, real)[real.bool()]
            same, other = (
                network._packed(tokens, real, shift=shift)[real.bool()] for shift in (0, 1)
            )
    except REFUSALS:  # it takes no positions
        return False
    finally:
        network.train(was_training)
    # A model that does not tell positions apart could count them in another way, unseen.
    return _close(same, plain) and not _close(other, plain)


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def _sees_places(module: nn.Module) -> bool:
    drops = isinstance(module, (nn.Dropout, KeyedDropout)) and module.training and module.p > 0
    return drops or bool(module._forward_pre_hooks)


def _pooled(hidden: Tensor, real: Tensor, pool: Pool) -> Tensor:
    if pool == "first":  # that is real: padding may be on the left
        place = real.argmax(1)[:, None, None].expand(-1, 1, hidden.shape[-1])
        return hidden.gather(1, place)[:, 0]
    weight = real[:, :, None].to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
