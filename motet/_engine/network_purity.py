"""Checks that a network is a function of its state: it changes no weight, and hides none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from motet._core.keys import Key
from motet.data._federation import Examples
from motet.errors import CapabilityError, StructureError
from motet.task import Batch, Task


def check_pure(task: Task, examples: Examples) -> None:
    """Refuse a network that changes its weights, uses hidden ones, or draws by itself."""
    state = task.init(Key(0))
    batch = Batch(*examples, torch.ones(len(examples.y)), torch.tensor(0))
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        with _Writes({name: state[name] for name in task.parameters}) as writes:
            outputs, _ = task.training_outputs(state, batch)
            task.outputs(state, examples.x)
        drew = not torch.equal(before, torch.get_rng_state())
    if writes.found:
        _refuse_change(task, writes.found[0])
    _check_registered(task, outputs)
    if drew:
        raise CapabilityError(
            "the network draws random numbers from torch's own generator, so a result would depend "
            "on which client ran first; use `nn.Dropout` layers instead of functional dropout and "
            "the like. In the config of a transformers model, set the rate of attention dropout to "
            "0: attention_probs_dropout_prob=0 (BERT) or attn_pdrop=0 (GPT-2)."
        )


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which of some tensors are written into, also where their values stay the same."""

    def __init__(self, watched: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []
        self._names = {_memory(leaf): name for name, leaf in watched.items() if leaf.numel()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        given = dict(kwargs or {})
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[place] if place < len(args) else given.get(argument.name)
                self._note(value)
        return func(*args, **given)

    def _note(self, written: Any) -> None:
        for leaf in written if isinstance(written, list | tuple) else (written,):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self.found += [self._names[m] for m in (_memory(leaf),) if m in self._names]


def _memory(leaf: Tensor) -> int:
    return int(leaf.untyped_storage()._cdata)


def _refuse_change(task: Task, name: str) -> None:
    path = name.rpartition(".")[0]
    layer = task.skeleton.get_submodule(path)
    if getattr(layer, "max_norm", None) is not None:
        remedy = f"Leave max_norm= out of {type(layer).__name__}(...)"
    else:
        remedy = (
            "Compute a new tensor instead, e.g. F.linear(x, self.weight.clamp(-1, 1)), or use "
            "torch.nn.utils.parametrize"
        )
    raise StructureError(
        f'the network changes its parameter "{name}" inside of forward, but only optimizers may '
        f"change weights: clients, methods and stacked steps share them. {remedy}."
    )


def _check_registered(task: Task, outputs: Tensor) -> None:
    """Refuse outputs that depend on a weight that is not in the state: no state needs gradients."""
    hidden = [leaf for leaf in _leaves(outputs) if isinstance(leaf, nn.Parameter)]
    if not hidden:
        return
    own = {id(leaf): name for name, leaf in task.skeleton.named_parameters()}
    for leaf in hidden:
        if id(leaf) in own:
            raise StructureError(
                f'the network reaches its parameter "{own[id(leaf)]}" through a function that '
                "keeps the module it was made in (a lambda or a hook), so a copy of the network "
                "would use the weights of the first one. Make that function a method, or let it "
                "take the module as an argument."
            )
    raise StructureError(
        f"the network uses a weight of shape {tuple(hidden[0].shape)} that parameters() does not "
        "list, so it would be neither trained, sent nor saved. Keep layers in nn.ModuleList or "
        "nn.ModuleDict, not in a plain list or dict, and make them in __init__."
    )


def _leaves(outputs: Tensor) -> Iterator[Tensor]:
    """List the tensors from which gradients would flow to the outputs."""
    todo: list[Any] = [outputs.grad_fn]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        todo += [following for following, _ in node.next_functions]
