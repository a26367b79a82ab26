"""Checks that a network is a function of its state: it changes no weight, and hides none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from motet._core.keys import Key
from motet._tracing import support
from motet.data._federation import Examples
from motet.errors import CapabilityError, StructureError
from motet.task import Batch, Task


def check_pure(task: Task, examples: Examples) -> None:
    """Refuse a network that changes its weights, uses hidden ones, or draws by itself."""
    state = task.init(Key(0))
    batch = Batch(*examples, torch.ones(len(examples.y)), torch.tensor(0))
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        outputs, _ = task.training_outputs(state, batch)
        drew = not torch.equal(before, torch.get_rng_state())
        written = support.memory_written(
            lambda: (task.training_outputs(state, batch), task.outputs(state, examples.x))
        )
    for name in task.parameters:
        if state[name].numel() and support.memory_of(state[name]) in (written or ()):
            _refuse_change(task, name)
    _check_registered(task, outputs)
    if drew:
        raise CapabilityError(
            "the network draws random numbers from torch's own generator, so a result would depend "
            "on which client ran first; use `nn.Dropout` layers instead of functional dropout and "
            "the like. In the config of a transformers model, set the rate of attention dropout to "
            "0: attention_probs_dropout_prob=0 (BERT) or attn_pdrop=0 (GPT-2)."
        )


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
