"""What is learnt: an architecture and a loss, as pure functions of a model's state."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from motet.criteria import Kind, criterion
from motet.dropout import hash_32, use_keyed_dropout
from motet.errors import CapabilityError, StructureError
from motet.execution.programs import Programs
from motet.keys import Key
from motet.selectors import Selector, select, state_names
from motet.tree import State

_INIT_LOCK = threading.Lock()  # module constructors draw from torch's global generator


class Batch(NamedTuple):
    """The examples of one step; padding has weight 0."""

    x: Tensor
    y: Tensor
    weight: Tensor  # [batch], 1 for a real example
    key: Tensor  # an integer, for dropout


@dataclass(frozen=True)
class Loss:
    """A loss, and the buffers the forward pass has updated; adding a penalty keeps them."""

    value: Tensor
    buffers: State

    def __add__(self, penalty: Tensor | float) -> Loss:
        return Loss(self.value + penalty, self.buffers)

    __radd__ = __add__

    def __mul__(self, factor: Tensor | float) -> Loss:
        return Loss(self.value * factor, self.buffers)

    __rmul__ = __mul__


class Task:
    """An architecture and a loss. Holds no weights: a model's state is always an argument.

    Args:
        build: Makes the network, an `nn.Module`, freshly initialised.
        loss: A name ("cross_entropy", "binary_cross_entropy", "mse", "mae") or a callable
            `(outputs, y) -> one loss per example`.
        kind: What the outputs are, if `loss` is a callable: "classes" (scores), "binary" (one
            score) or "values".

    >>> task = Task(build=lambda: nn.Linear(3, 2))
    >>> sorted(task.init(Key(0)))
    ['bias', 'weight']
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        loss: str | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
        *,
        kind: Kind | None = None,
    ) -> None:
        self.build = build
        self.criterion = criterion(loss, kind)
        # Built now, not on first use: the first use may be inside vmap, where initialisation is
        # illegal.
        with _forked_randomness(Key(0)):
            self.skeleton = build()
        self.dropout_keys = use_keyed_dropout(self.skeleton)
        self.names = tuple(state_names(self.skeleton))
        self.parameters = frozenset(name for name, _ in self.skeleton.named_parameters())
        self.buffers = frozenset(self.names) - self.parameters
        self.fixed = frozenset(
            n for n, p in self.skeleton.named_parameters() if not p.requires_grad
        )
        self.has_batch_statistics = _has_batch_statistics(self.skeleton)
        self.example: Tensor | None = None
        self.programs = Programs()  # traced steps, shared by the copies of this task
        self._modules = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_modules", "programs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.programs = Programs()
        self._modules = threading.local()

    def init(self, key: Key) -> State:
        """Draw a fresh state. Equal keys give equal weights."""
        with _forked_randomness(key):
            module = self.build()
        use_keyed_dropout(module)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        return {name: tensors[name].detach().clone() for name in self.names}

    def seeing(self, x: Tensor) -> Task:
        """Return this task with `example` set: an input of zeros, for parts built to its shape."""
        task = copy.copy(self)
        task.programs = self.programs
        task.example = torch.zeros_like(x[:1])
        return task

    def is_buffer(self, name: str) -> bool:
        """Tell whether a name, also inside a slot such as "local/bn.running_mean", is a buffer."""
        return name.rpartition("/")[2] in self.buffers

    def is_fixed(self, name: str) -> bool:
        """Tell whether no optimizer may step on a name: a buffer, or `requires_grad=False`."""
        return self.is_buffer(name) or name.rpartition("/")[2] in self.fixed

    def trainable(self, state: Mapping[str, Tensor]) -> State:
        """Leave the buffers out."""
        return {k: v for k, v in state.items() if not self.is_buffer(k)}

    def select(self, selector: Selector) -> frozenset[str]:
        """Resolve a selector to names of parameters and buffers."""
        return select(self.skeleton, selector)

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Run the network in evaluation mode."""
        out: Tensor = self.call(state, x)
        return out

    def predict(self, state: State, x: Tensor) -> Tensor:
        """Return class probabilities (or values, for a regression)."""
        return self.criterion.probabilities(self.outputs(state, x))

    def features(self, state: State, x: Tensor, module: str) -> Tensor:
        """Return the input of a named module, flattened per example, in evaluation mode."""
        return self.features_and_outputs(state, x, module)[0]

    def features_and_outputs(
        self, state: State, x: Tensor, module: str, *, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return what `features` and `outputs` do, from one pass through the network."""
        self._check_complete(state)
        seen: list[Tensor] = []
        network = self._train_module(len(x)) if training else self._eval_module()
        layer = network.get_submodule(module)
        hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            outputs = functional_call(network, state, (x,))
        finally:
            hook.remove()
        if not seen:
            raise StructureError(
                f'the network never calls its module "{module}", so that module has no input; name '
                "one that `forward` calls."
            )
        return seen[-1].flatten(1), outputs

    def loss(self, state: State, batch: Batch) -> Loss:
        """Compute the weighted mean training loss, in training mode."""
        outputs, buffers = self.training_outputs(state, batch)
        return Loss(self.loss_of(outputs, batch), buffers)

    def training_outputs(self, state: State, batch: Batch) -> tuple[Tensor, State]:
        """Run the network in training mode; the buffers come back as the pass has updated them."""
        ready, buffers = self._ready(state, batch)
        return self.call(ready, batch.x, training=True), buffers

    def loss_of(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute the weighted mean loss of outputs, however they were made."""
        losses = self.criterion.example_loss(outputs, batch.y)
        return (losses * batch.weight).sum() / batch.weight.sum().clamp(min=1)

    def loss_and_features(self, state: State, batch: Batch, module: str) -> tuple[Loss, Tensor]:
        """Return `loss`, and the input of a named module in the same pass, flattened."""
        ready, buffers = self._ready(state, batch)
        features, outputs = self.features_and_outputs(ready, batch.x, module, training=True)
        return Loss(self.loss_of(outputs, batch), buffers), features

    def _ready(self, state: State, batch: Batch) -> tuple[State, State]:
        """Add the keys for dropout, and buffers that the forward pass may write into."""
        # Copies, because normalisation layers write their statistics in place. The added 0 makes a
        # copy per client also where a stack of clients shares one buffer.
        nothing = 0 * batch.weight.sum()
        buffers = {k: v + nothing.to(v.dtype) for k, v in state.items() if k in self.buffers}
        return state | buffers | self._layer_keys(batch.key), buffers

    def evaluation_loss(self, state: State, batch: Batch) -> Tensor:
        """Compute the weighted mean loss in evaluation mode: no dropout, no statistics touched."""
        return self.loss_of(self.outputs(state, batch.x), batch)

    def merge(self, initial: State, given: Mapping[str, Any] | None) -> State:
        """Replace entries of `initial` by those handed over, checked by name and shape."""
        given = given or {}
        unknown = sorted(given.keys() - initial.keys())
        if unknown:
            raise StructureError(
                f"init= names {unknown[:4]}, which the model does not have; it has "
                f"{sorted(initial)[:6]}."
            )
        return initial | {name: as_leaf(name, given[name], initial[name]) for name in given}

    def _layer_keys(self, key: Tensor) -> State:
        return {name: hash_32(key + i) + (key << 32) for i, name in enumerate(self.dropout_keys)}

    def call(self, state: State, x: Tensor, *, training: bool = False) -> Any:
        """Run the network with this state, and return whatever it returns."""
        self._check_complete(state)
        module = self._train_module(len(x)) if training else self._eval_module()
        return functional_call(module, state, (x,))

    def _check_complete(self, state: State) -> None:
        missing = [name for name in self.names if name not in state]
        if missing:  # torch would go on, with the weights of our skeleton
            raise StructureError(
                f"a state of this network has {len(self.names)} tensors; {missing[:4]} did not "
                "come. Join the parts of the model: `shared | private`."
            )

    # `functional_call` swaps tensors inside the module it is given, so each thread needs its own
    # copy.
    def _train_module(self, examples: int) -> nn.Module:
        # One example has no batch statistics, so it is normalised by the running ones.
        kind = "alone" if examples == 1 and self.has_batch_statistics else "train"
        if not hasattr(self._modules, kind):
            module = copy.deepcopy(self.skeleton).train()
            setattr(self._modules, kind, module if kind == "train" else _frozen_statistics(module))
        made: nn.Module = getattr(self._modules, kind)
        return made

    def _eval_module(self) -> nn.Module:
        if not hasattr(self._modules, "eval"):
            self._modules.eval = copy.deepcopy(self.skeleton).eval()
        module: nn.Module = self._modules.eval
        return module


def as_leaf(name: str, value: Any, like: Tensor) -> Tensor:
    """Turn a number, array or tensor into a leaf of the shape and type of `like`, or refuse."""
    leaf = torch.as_tensor(value, dtype=like.dtype).detach().clone()
    if leaf.shape != like.shape:
        raise StructureError(
            f"{name} has shape {tuple(like.shape)}, but {tuple(leaf.shape)} was handed over."
        )
    return leaf


def _has_batch_statistics(module: nn.Module) -> bool:
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    for norm in norms:
        if norm.momentum is None and norm.track_running_stats:
            raise CapabilityError(
                "a normalisation layer with momentum=None counts batches in Python, which cannot "
                "be stacked over "
                "clients; give it a momentum, e.g. 0.1."
            )
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in norms)


def _frozen_statistics(module: nn.Module) -> nn.Module:
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    return module


@contextmanager
def _forked_randomness(key: Key) -> Iterator[None]:
    """Let module constructors draw from a stream of ours, and give torch its own stream back."""
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key.integer())
        yield
