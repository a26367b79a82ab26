"""Tasks: an architecture and a loss, as pure functions of a model's state."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from motet._core.batch_statistics import has_batch_statistics, with_running_statistics
from motet._core.building import built
from motet._core.criteria import DiscreteHazard, Kind, criterion
from motet._core.dropout import hash_32, use_keyed_dropout
from motet._core.frozen import Frozen, copied, frozen_in, hold_still, moved
from motet._core.keys import Key
from motet._core.selectors import Selector, select, state_names
from motet._core.tree import State
from motet._tracing.programs import Programs
from motet.errors import SelectorError, StructureError

__all__ = ["Batch", "DiscreteHazard", "Loss", "Task"]

_INIT_LOCK = threading.Lock()  # module constructors draw from torch's global generator


class Batch(NamedTuple):
    """The examples of one step; padding has weight 0.

    Attributes:
        x: Inputs, [batch, ...].
        y: Targets, [batch, ...].
        weight: 1 for a real example and 0 for padding, [batch].
        key: An integer, for dropout.

    Example:
        >>> padded = torch.tensor([1.0, 0.0])
        >>> Batch(torch.zeros(2, 4), torch.zeros(2), padded, torch.tensor(0)).weight.sum()
        tensor(1.)
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    key: Tensor


@dataclass(frozen=True)
class Loss:
    """A loss, and the buffers the forward pass has updated; adding a penalty keeps them.

    Attributes:
        value: The loss, a tensor without dimensions.
        buffers: Buffers that the forward pass has updated, by name.

    Example:
        >>> (2 * Loss(torch.tensor(1.5), {}) + 0.25).value
        tensor(3.2500)
    """

    value: Tensor
    buffers: State

    def __add__(self, penalty: Tensor | float) -> Loss:
        return Loss(self.value + penalty, self.buffers)

    __radd__ = __add__

    def __mul__(self, factor: Tensor | float) -> Loss:
        return Loss(self.value * factor, self.buffers)

    __rmul__ = __mul__


class Task:
    """An architecture and a loss. What is trained is not in it: a state is always an argument.

    Weights that no client trains (`requires_grad=False`, and the buffers of frozen layers) are part
    of the task: one copy in a process, in no state, on no wire and in no checkpoint.

    Args:
        build: Makes the network, an `nn.Module`, freshly initialised.
        loss: A name ("cross_entropy", "masked_cross_entropy", "binary_cross_entropy",
            "multi_label", "ordinal", "mse", "mae"), a `DiscreteHazard`, or a callable
            `(outputs, y) -> one loss per example`.
        kind: What the outputs are, if `loss` is a callable: "classes" (scores), "binary" (one
            score), "ordinal" (a score per step between classes), "labels" (a score per label),
            "values" or "survival" (the logit of the hazard of each time bin).
        times: Ends of the time bins, for "survival".
        base: The frozen weights: a safetensors file, which is mapped into memory, or tensors by
            name. None: as `build` makes them.

    Attributes:
        names: The tensors of a state: trained parameters, then buffers.
        parameters: Those that are trained.
        buffers: Those that the forward pass updates.
        skeleton: A network of the architecture; only its frozen weights mean anything.

    Shared arguments:
        state: Tensors by name, trained parameters and buffers.
        x: Inputs, one row per example.
        batch: Inputs, targets, weights and the key for dropout.
        outputs: What the network returned for the batch.
        module: Dotted name of a module of the network.
        training: Whether dropout and batch statistics are active.
        key: Source of the initial weights.
        name: Name of a tensor.
        selector: Names, dotted prefixes or a `Blocks`.
        initial: A state.
        given: Values by name that replace some of its tensors.
        values: Frozen weights by name.
        agreed: Hash of frozen weights.

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
        times: Sequence[float] | None = None,
        base: str | Path | Mapping[str, Any] | None = None,
    ) -> None:
        self.build = build
        self.criterion = criterion(loss, kind, times)
        # Built now, not on first use: the first use may be inside vmap, where initialisation is
        # illegal.
        with _forked_randomness(Key(0)):
            self.skeleton = built(build)
        self.dropout_keys = use_keyed_dropout(self.skeleton)
        frozen = frozen_in(self.skeleton)
        self.names = tuple(n for n in state_names(self.skeleton) if n not in frozen)
        self.parameters = frozenset(dict(self.skeleton.named_parameters())).intersection(self.names)
        self.buffers = frozenset(self.names) - self.parameters
        kinds = {p.dtype for p in self.skeleton.parameters() if p.is_floating_point()}
        self._input_type = kinds.pop() if len(kinds) == 1 else None  # None: the network decides
        hold_still(self.skeleton.train(), frozen)
        self.has_batch_statistics = has_batch_statistics(self.skeleton)
        self.example: Tensor | None = None
        self._hold(Frozen.of(base, frozen))

    def _hold(self, frozen: Frozen) -> None:
        """Take these frozen weights, and forget what knows others."""
        self._frozen = frozen
        self.skeleton = copied(self.skeleton, frozen.tensors)
        self.programs = Programs(_constants(self).values())  # traced steps, shared by copies
        self._elsewhere: dict[torch.device, State] = {}
        self._modules = threading.local()

    def __copy__(self) -> Task:
        task = object.__new__(type(self))
        task.__dict__.update(self.__dict__)
        return task

    def __getstate__(self) -> dict[str, Any]:
        made_here = ("_elsewhere", "_modules", "programs")
        nothing = {name: leaf.new_empty(0) for name, leaf in self.frozen.items()}
        kept = {k: v for k, v in self.__dict__.items() if k not in made_here}
        return kept | {"skeleton": copied(self.skeleton, nothing)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hold(self._frozen)

    @property
    def frozen(self) -> State:
        """The frozen tensors, by name."""
        return self._frozen.tensors

    @property
    def frozen_hash(self) -> str:
        """A hash of the frozen weights; "" if there are none."""
        return self._frozen.hash

    def require_frozen(self, agreed: str) -> None:
        """Refuse other frozen weights than the ones with this hash."""
        self._frozen.require(agreed)

    def holding(self, values: Mapping[str, Any]) -> Task:
        """Return this task with other frozen weights, for those that `values` names."""
        frozen = self._frozen.replaced(values)
        if frozen is self._frozen:
            return self
        task = copy.copy(self)
        task._hold(frozen)
        return task

    def complete(self, state: Mapping[str, Tensor]) -> State:
        """Add the frozen weights to a state: all tensors that a checkpoint of the network has."""
        every = self.frozen | dict(state)
        return {name: every[name] for name in state_names(self.skeleton) if name in every}

    def network(self, state: Mapping[str, Tensor]) -> nn.Module:
        """Build the network with these weights, as a plain module in evaluation mode."""
        module = self.build().eval()
        module.load_state_dict(self.complete(state), strict=False)
        return module

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
        task.example = self._as_input(torch.zeros_like(x[:1]))
        return task

    def is_buffer(self, name: str) -> bool:
        """Return whether a tensor is a buffer; names such as "local/bn.running_mean" work, too."""
        return name.rpartition("/")[2] in self.buffers

    def trainable(self, state: Mapping[str, Tensor]) -> State:
        """Return the state without buffers."""
        return {k: v for k, v in state.items() if not self.is_buffer(k)}

    def select(self, selector: Selector) -> frozenset[str]:
        """Resolve a selector to names of parameters and buffers; frozen ones are left out."""
        named = select(self.skeleton, selector)
        found = named.intersection(self.names)
        if named and not found:
            raise SelectorError(
                f"{selector!r} names frozen weights only, such as {min(named)}: they are part of "
                "the task, and the same for all clients. Name what is trained, such as "
                f"{sorted(self.parameters)[:3]}."
            )
        return found

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Run the network in evaluation mode."""
        out: Tensor = self.call(state, x)
        return out

    def predict(self, state: State, x: Tensor) -> Tensor:
        """Return class probabilities, label probabilities, survival curves or values."""
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
        network = self._network_for(x, training=training)
        layer = network.get_submodule(module)
        hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            outputs = functional_call(network, state, (self._as_input(x),))
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
        """Replace entries of `initial` by those handed over, checked by name and shape.

        Frozen weights are no part of a state: `holding` takes them.
        """
        given = {k: v for k, v in (given or {}).items() if k not in self.frozen}
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
        module = self._network_for(x, training=training)
        return functional_call(module, state, (self._as_input(x),))

    def _as_input(self, x: Tensor) -> Tensor:
        """Give real inputs the precision of the network's parameters, if they have one."""
        if self._input_type is None or not x.is_floating_point():
            return x
        return x.to(self._input_type)

    def _check_complete(self, state: State) -> None:
        missing = [name for name in self.names if name not in state]
        if missing:  # torch would go on, with the weights of our skeleton
            raise StructureError(
                f"a state of this network has {len(self.names)} tensors; {missing[:4]} are "
                "missing. Join the parts of the model: `shared | private`."
            )

    # `functional_call` swaps tensors inside the module it is given, so each thread needs its own
    # copy; frozen tensors are not swapped, and all copies hold the same ones.
    def _module(self, device: torch.device, *, training: bool, alone: bool = False) -> nn.Module:
        made: dict[Any, nn.Module] = self._modules.__dict__
        key = (device, training, alone)
        if key not in made:
            module = copied(self.skeleton, self._constants_on(device)).train(training)
            hold_still(module, self.frozen)
            made[key] = with_running_statistics(module) if alone else module
        return made[key]

    def _network_for(self, x: Tensor, *, training: bool) -> nn.Module:
        # One example has no batch statistics, so it is normalised by the running ones.
        alone = training and len(x) == 1 and self.has_batch_statistics
        return self._module(x.device, training=training, alone=alone)

    def _constants_on(self, device: torch.device) -> State:
        """Return what is not swapped, for another device: copies that are made once."""
        if device.type == "cpu":
            return {}
        with _INIT_LOCK:
            if device not in self._elsewhere:
                self._elsewhere[device] = moved(_constants(self), device)
                self.programs.constants.extend(self._elsewhere[device].values())
            return self._elsewhere[device]


def as_leaf(name: str, value: Any, like: Tensor) -> Tensor:
    """Turn a number, array or tensor into a leaf of the shape and type of `like`, or refuse."""
    leaf = torch.as_tensor(value, dtype=like.dtype).detach().clone()
    if leaf.shape != like.shape:
        raise StructureError(
            f"{name} has shape {tuple(like.shape)}, but {tuple(leaf.shape)} was handed over."
        )
    return leaf


def _constants(task: Task) -> State:
    """Name what a network reads besides its state: frozen weights, and buffers never saved."""
    passed = {*task.names, *task.dropout_keys}
    tensors = dict(task.skeleton.named_parameters()) | dict(task.skeleton.named_buffers())
    return {name: tensor for name, tensor in tensors.items() if name not in passed}


@contextmanager
def _forked_randomness(key: Key) -> Iterator[None]:
    """Let module constructors draw from a stream of ours, and give torch its own stream back."""
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key.integer())
        yield
