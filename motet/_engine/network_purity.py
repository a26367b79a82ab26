"""Checks that a network is a function of its state and its input.

It changes no weight and no input, hides no weight, draws nothing and remembers nothing: clients,
methods and threads share one network, and a stack of clients runs it once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

from motet._core.frozen import copied, hold_still
from motet._core.keys import Key
from motet._core.text import listed
from motet._core.tree import State
from motet._tracing import support
from motet.data._federation import Examples
from motet.errors import CapabilityError, MotetError, StructureError, what_happened
from motet.task import Batch, Task


def check_pure(task: Task, examples: Examples) -> None:
    """Refuse a network whose outputs are not a function of its state and its input alone."""
    state, x = task.init(Key(0)), examples.x.clone()
    batch = Batch(x, examples.y, torch.ones(len(x)), torch.tensor(0))
    kept = {name: (support.memory_of(leaf), leaf.clone()) for name, leaf in state.items()}
    with torch.random.fork_rng(devices=[]), _in_training_mode():
        before = torch.get_rng_state()
        outputs, _ = task.training_outputs(state, batch)
        task.outputs(state, x)
        drew = not torch.equal(before, torch.get_rng_state())
        written = support.memory_written(
            lambda: (task.training_outputs(state, batch), task.outputs(state, x))
        )
        _check_unchanged(task, state, kept, written or set())
        if support.memory_of(x) in (written or ()) or not _equal(x, examples.x):
            raise StructureError(
                "the network changes its input inside of forward, but the examples are used again. "
                "Compute a new tensor instead: x = x + 1 for x += 1 or x.add_(1), and no "
                "inplace=True in a layer that takes the input itself."
            )
        _check_registered(task, outputs, task.training_outputs(state, batch)[0])
        if drew:
            _refuse_draws(task.skeleton)
        _check_memory(task, state, examples.x)


@contextmanager
def _in_training_mode() -> Iterator[None]:
    try:
        yield
    except MotetError:
        raise
    except Exception as reason:
        raise StructureError(
            f"the network fails in training mode: {what_happened(reason)}. In evaluation mode it "
            "works; look for what `forward` does only while self.training is true."
        ) from reason


def _check_unchanged(
    task: Task, state: State, kept: dict[str, tuple[int, Tensor]], written: set[int]
) -> None:
    for name in sorted(task.parameters):
        memory, value = kept[name]
        moved = support.memory_of(state[name]) != memory  # self.weight.data = ...
        if value.numel() and (memory in written or moved or not _equal(state[name], value)):
            _refuse_change(task, name)


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


def _check_registered(task: Task, outputs: Tensor, again: Tensor) -> None:
    """Refuse outputs that depend on a weight that is not in the state: no state needs gradients."""
    # What is a leaf in one call only was made in it, to differentiate inside of forward.
    lasting = {id(leaf) for leaf in _leaves(again)}
    hidden = [
        leaf for leaf in _leaves(outputs) if isinstance(leaf, nn.Parameter) or id(leaf) in lasting
    ]
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
        "nn.ModuleDict, not in a plain list or dict, and make them in __init__; wrap a tensor of "
        "your own in nn.Parameter."
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


def _rates_to_set(network: nn.Module) -> str:
    """Name the rates of dropout in the config of a transformers model, those of attention first."""
    configs: list[Any] = [getattr(module, "config", None) for module in network.modules()]
    described = (config.to_dict() for config in configs if hasattr(config, "to_dict"))
    known: dict[str, Any] = next(described, {})
    rates = [f"{n}=0" for n, v in known.items() if "drop" in n and isinstance(v, float) and v > 0]
    attention = [rate for rate in rates if "att" in rate]
    others = [rate for rate in rates if rate not in attention]
    if not attention:
        return f". In the config of the model, set {listed(others)}" if others else ""
    also = f"; if it still draws, {listed(others)}, too" if others else ""
    return f". In the config of the model, set {listed(attention)}{also}"


def _refuse_draws(network: nn.Module) -> None:
    rates = _rates_to_set(network)
    remedy = f"use `nn.Dropout` layers instead of functional dropout and the like{rates}"
    for path, layer in network.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.RNNBase) and layer.dropout:
            remedy = (
                f'leave dropout={layer.dropout} out of "{path}", an nn.{kind}, and put nn.Dropout '
                "after it, or between two of them"
            )
        elif isinstance(layer, nn.MultiheadAttention) and layer.dropout:
            remedy = f'leave dropout={layer.dropout} out of "{path}", an nn.{kind}'
        elif isinstance(layer, _DRAWING):
            remedy = f'use nn.Dropout in place of "{path}", an nn.{kind}'
        else:
            continue
        break
    raise CapabilityError(
        "the network draws random numbers from torch's own generator, so a result would depend on "
        f"which client ran first; {remedy}."
    )


_DRAWING = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


def _check_memory(task: Task, state: State, x: Tensor) -> None:
    """Refuse a network that answers the same question otherwise after other ones."""
    x = x if len(x) > 1 else torch.cat([x, x])  # batch statistics need two
    other = x * 0.5 + 1 if x.is_floating_point() else x.flip(0)
    trained = {k: v * 0.9 + 0.01 if v.is_floating_point() else v for k, v in state.items()}
    caching: list[int] = []
    answer = _answering(task, caching)
    first = [answer(state, x, training=False), answer(state, x, training=True)]
    answer(state, other, training=True)
    answer(state, other, training=False)
    again = [answer(state, x, training=False), answer(state, x, training=True)]
    # A product of weights that is kept would stay the one of the first weights.
    first.append(_answering(task, caching)(trained, x, training=False))
    again.append(answer(trained, x, training=False))
    if any(caching):
        raise CapabilityError(
            "the network uses parametrize.cached() inside of forward, whose cache is shared by "
            "all threads of the process, so a client could get the weights of another one. Compute "
            "the weight once instead: weight = self.layer.weight, then F.linear(x, weight)."
        )
    if not all(map(_equal, first, again)):
        raise StructureError(
            "the network gives other outputs for the same weights and the same input when it is "
            "called again: it remembers or draws something outside of its state, and clients would "
            "share that. Keep what it must remember in a buffer, "
            'self.register_buffer("count", torch.tensor(0)), not with persistent=False, and change '
            "it in place (self.count += 1); draw by nn.Dropout layers, not by a generator of your "
            "own."
        )


def _answering(task: Task, caching: list[int]) -> Callable[..., Tensor]:
    """Make one network for both modes: a task has a copy for each, with a memory of its own."""
    network = copied(task.skeleton)
    for layer in network.modules():
        if isinstance(layer, torch.jit.ScriptModule):  # takes no hooks
            continue
        layer.register_forward_pre_hook(
            lambda *_: caching.append(getattr(parametrize, "_cache_enabled", 0))
        )
    kinds = {leaf.dtype for leaf in network.parameters() if leaf.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else None

    def answer(state: State, x: Tensor, *, training: bool) -> Tensor:
        hold_still(network.train(training), task.frozen)
        own = state | {name: state[name].clone() for name in task.buffers}
        x = x.to(kind) if kind and x.is_floating_point() else x.clone()
        outputs: Tensor = functional_call(network, own, (x,))
        return outputs.detach()

    return answer


def _equal(a: Tensor, b: Tensor) -> bool:
    """Compare all but the last digit, which may depend on where in memory the numbers are."""
    if a.shape != b.shape or not a.is_floating_point():
        return torch.equal(a, b)
    bound = 4 * torch.finfo(a.dtype).eps
    size = float(b.abs().nan_to_num().max()) if b.numel() else 0.0
    return torch.allclose(a, b, rtol=bound, atol=bound * size, equal_nan=True)
