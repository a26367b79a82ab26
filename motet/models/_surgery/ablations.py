"""Networks whose base is replaced by one linear layer, to see what the base contributes.

Arivazhagan et al. ask with it whether the base layers learn anything (section 4.4).
https://arxiv.org/abs/1912.00818
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from motet._core.selectors import Blocks, blocks_of
from motet.errors import CapabilityError, SelectorError, nearest

LINEAR = "linear_base"
CLASSIFIER = Blocks(last=1)


def linear_base(
    build: Callable[[], nn.Module], *, shape: Sequence[int], keep: str | Blocks = CLASSIFIER
) -> Callable[[], nn.Module]:
    """Return what makes the network with all layers before `keep` replaced by one linear layer.

    Args:
        build: Makes the network.
        shape: The shape of one example, as in `Federation.shape`.
        keep: Where the personalization layers start: `Blocks(last=k)` for the paper's K_P = k, or
            the dotted path of a block.

    Returns:
        A function that makes the network, for a `Task`.

    Raises:
        SelectorError: The network has no such block.
        CapabilityError: What is left of the network does not accept a linear layer's output.

    Example:
        >>> import motet
        >>> make = linear_base(lambda: motet.models.MLP((4,), 2, hidden=(8,)), shape=(4,))
        >>> motet.models.count_parameters(make())
        58
    """
    with torch.random.fork_rng(devices=[]):  # this network is only inspected
        network = build()
    first = _first_kept(network, keep)
    # Traced here and not in `build`: tracing patches every module of the process, and networks are
    # built while other threads train.
    graph = _BlockTracer(network).trace(network)
    _feed(graph, first)
    _check_base_is_gone(graph, first)
    wanted = _input_shape(network, first, torch.zeros(2, *shape))
    # The copy leaves out the removed base, which cannot always be sent to a process.
    short = copy.deepcopy(graph)
    return partial(_build_short, build, short, tuple(shape), wanted)


def _build_short(
    build: Callable[[], nn.Module], graph: fx.Graph, shape: Sequence[int], wanted: Sequence[int]
) -> nn.Module:
    return _Short(build(), _Linear(shape, wanted), copy.deepcopy(graph))


class _Short(nn.Module):
    """The rest of a network behind a linear layer, called as the graph says."""

    def __init__(self, network: nn.Module, linear: nn.Module, graph: fx.Graph) -> None:
        super().__init__()
        self.add_module(LINEAR, linear)
        for path in _called(graph)[1:]:
            self._adopt(path, network.get_submodule(path))
        self.graph = graph

    def _adopt(self, path: str, module: nn.Module) -> None:
        """Keep a module under the name it had, in containers of the names they had."""
        place: nn.Module = self
        *above, name = path.split(".")
        for container in above:
            if not hasattr(place, container):
                place.add_module(container, nn.Sequential())
            place = place.get_submodule(container)
        place.add_module(name, module)

    def forward(self, x: Tensor) -> Any:
        return fx.Interpreter(self, garbage_collect_values=False, graph=self.graph).run(x)


class _Linear(nn.Module):
    """A linear layer from a whole example to the input of the next layer."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        self.outputs = tuple(outputs)
        self.linear = nn.Linear(math.prod(inputs), math.prod(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1)).unflatten(1, self.outputs)
        return out


class _BlockTracer(fx.Tracer):
    """Records how a network calls its blocks, without tracing into them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.blocks = {path for block in blocks_of(network) for path in block}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.blocks or super().is_leaf_module(
            m, module_qualified_name
        )


def _first_kept(network: nn.Module, keep: str | Blocks) -> str:
    blocks = blocks_of(network)
    if isinstance(keep, Blocks):
        if not 0 < keep.last < len(blocks):
            raise SelectorError(
                f"keep=Blocks(last={keep.last}) leaves no base to replace; the network has "
                f"{len(blocks)} blocks, so use 1 to {len(blocks) - 1}."
            )
        return blocks[-keep.last][0]
    known = [path for block in blocks for path in block]
    if keep not in known:
        raise SelectorError(f'no block is called "{keep}"; {nearest(keep, known)}.')
    return keep


def _input_shape(network: nn.Module, path: str, examples: Tensor) -> tuple[int, ...]:
    seen: list[Any] = []
    layer = network.get_submodule(path)
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1:]))
    with torch.no_grad():
        was_training = network.training
        network.eval()(examples)
        network.train(was_training)
    hook.remove()
    return tuple(seen[0])


def _feed(graph: fx.Graph, path: str) -> None:
    """Let the layer called `path` read the linear layer, and drop layers without a reader."""
    nodes = list(graph.nodes)
    source = next(node for node in nodes if node.op == "placeholder")
    reader = next(node for node in nodes if node.op == "call_module" and node.target == path)
    with graph.inserting_after(source):
        linear = graph.call_module(LINEAR, (source,))
    reader.args = (linear, *reader.args[1:])
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def _check_base_is_gone(graph: fx.Graph, first: str) -> None:
    called = _called(graph)
    loose = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    if called[:2] != [LINEAR, first] or loose:
        read = [*called[1:2], *loose][-1]
        raise CapabilityError(
            f'layers after "{first}" read {read} directly, so one linear layer cannot stand '
            "in for the base; keep more blocks."
        )


def _called(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_module"]
