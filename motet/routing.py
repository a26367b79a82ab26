"""Networks that choose, instance by instance, between two sets of parameters.

A routed layer holds its parameters twice, `shared` and `local`, and mixes the two outputs. A policy
network says how much of each: per instance and layer, or, in a recurrent layer, per instance and
time step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from motet.errors import CapabilityError
from motet.models.recurrence import lstm_cell
from motet.models.recurrent import LSTM, PARAMETERS
from motet.selectors import blocks_of
from motet.task import Task
from motet.tree import State, tree_map

Recurrence = Literal["poster", "release"]
States = tuple[Tensor, ...]


@dataclass(frozen=True)
class Routing:
    """How a network is routed.

    Attributes:
        layers: Module paths; None routes every recurrent layer if there are any, else every block.
        hidden: Widths of the policy's hidden layers.
        temperature: Of the policy's softmax; small is nearly hard.
        recurrence: "poster" feeds both cells the mixed state; "release" lets the local cell keep
            its own.
    """

    layers: tuple[str, ...] | None = None
    hidden: tuple[int, ...] = (64, 32)
    temperature: float = 1.0
    recurrence: Recurrence = "poster"


def route_weights(logits: Tensor, temperature: float, *, hard: bool) -> Tensor:
    """Turn two logits (shared, local) into the weights of the two routes; a tie goes to the shared
    one.

    >>> [round(v, 6) for v in route_weights(torch.tensor([1.0, 0.0]), 0.1, hard=False).tolist()]
    [0.999955, 4.5e-05]
    >>> route_weights(torch.tensor([0.5, 0.5]), 1.0, hard=True).tolist()
    [1.0, 0.0]
    """
    if hard:
        shared = (logits[..., 0] >= logits[..., 1]).to(logits.dtype)
        return torch.stack([shared, 1 - shared], dim=-1)
    return (logits / temperature).softmax(-1)


def mix(route: Tensor, shared: Any, local: Any) -> Any:
    """Mix two outputs by per-instance weights [batch, 2]."""

    def one(a: Tensor, b: Tensor) -> Tensor:
        weights = route.view(*route.shape, *[1] * (a.ndim - 1))  # [batch, 2, 1, ...]
        return weights[:, 0] * a + weights[:, 1] * b

    return tree_map(one, shared, local)


def routed_steps(
    shared: Callable[[Tensor, States], States],
    local: Callable[[Tensor, States], States],
    route: Callable[[Tensor, States], Tensor],
    inputs: Sequence[Tensor],
    state: States,
    recurrence: Recurrence = "poster",
) -> list[tuple[States, Tensor]]:
    """Run two recurrent cells side by side, and mix their states at every step."""
    own, steps = state, []
    for x in inputs:
        weights = route(x, state)
        new = shared(x, state)
        own = local(x, state if recurrence == "poster" else own)
        state = mix(weights, new, own)
        steps.append((state, weights))
    return steps


class RoutedLayer(nn.Module):
    """A layer with two sets of parameters; the network around it sets `route` for each batch."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.shared = layer
        self.local = copy.deepcopy(layer)
        self.route: Tensor | None = None

    def forward(self, *inputs: Any) -> Any:
        assert self.route is not None
        return mix(self.route, self.shared(*inputs), self.local(*inputs))


class RoutedNetwork(nn.Module):
    """A network whose blocks are routed per instance, by a policy that reads the input."""

    def __init__(
        self, network: nn.Module, blocks: list[list[str]], routing: Routing, example: Tensor
    ) -> None:
        super().__init__()
        self.blocks, self.temperature, self.hard = blocks, routing.temperature, False
        self.embedding = _embedding_path(network, example)
        width = _features(network, self.embedding, example).shape[1]
        for path in (path for block in blocks for path in block):
            network.set_submodule(path, RoutedLayer(network.get_submodule(path)))
        self.network = network
        self.policy = policy_network(width, routing.hidden, 2 * len(blocks))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, and the weight of the shared route, [batch, blocks, 1]."""
        logits = self.policy(_features(self.network, self.embedding, x))
        routes = route_weights(
            logits.view(-1, len(self.blocks), 2), self.temperature, hard=self.hard
        )
        self._set_routes(routes.unbind(1))
        outputs = self.network(x)
        self._set_routes([None] * len(self.blocks))
        return outputs, routes[..., :1]

    def _set_routes(self, routes: Sequence[Tensor | None]) -> None:
        for block, route in zip(self.blocks, routes, strict=True):
            for path in block:
                layer = self.network.get_submodule(path)
                assert isinstance(layer, RoutedLayer)
                layer.route = route


class RoutedLSTM(nn.Module):
    """An LSTM whose layers are routed at every time step, by [x_t ; h_(t-1)]."""

    def __init__(self, lstm: LSTM, routing: Routing) -> None:
        super().__init__()
        self.shared, self.local = lstm, copy.deepcopy(lstm)
        self.routing, self.hard = routing, False
        widths = [getattr(lstm, f"weight_ih_l{i}").shape[1] for i in range(lstm.num_layers)]
        self.policy = nn.ModuleList(
            policy_network(width + lstm.hidden_size, routing.hidden, 2) for width in widths
        )
        self.routes: Tensor | None = None  # of the last batch: weight of the shared route

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs, hidden, cell, routes = x, [], [], []
        for layer in range(self.shared.num_layers):
            steps = self._run_layer(outputs, layer)
            outputs = torch.stack([state[0] for state, _ in steps], dim=1)  # [batch, time, hidden]
            hidden.append(steps[-1][0][0])
            cell.append(steps[-1][0][1])
            routes.append(torch.stack([weights[:, 0] for _, weights in steps], dim=1))
        self.routes = torch.stack(routes, dim=1)  # [batch, layers, time]
        return outputs, (torch.stack(hidden), torch.stack(cell))

    def _run_layer(self, x: Tensor, layer: int) -> list[tuple[States, Tensor]]:
        nothing = x.new_zeros(x.shape[0], self.shared.hidden_size)

        def route(x_t: Tensor, state: States) -> Tensor:
            logits = self.policy[layer](torch.cat([x_t, state[0]], dim=-1))
            return route_weights(logits, self.routing.temperature, hard=self.hard)

        cells = [_cell(lstm, layer) for lstm in (self.shared, self.local)]
        return routed_steps(*cells, route, x.unbind(1), (nothing, nothing), self.routing.recurrence)


class RoutedRecurrentNetwork(nn.Module):
    """A network whose recurrent layers are routed per time step; every other layer is shared."""

    def __init__(self, network: nn.Module, layers: list[str], routing: Routing) -> None:
        super().__init__()
        self.layers = layers
        for path in layers:
            lstm = network.get_submodule(path)
            assert isinstance(lstm, LSTM)
            network.set_submodule(path, RoutedLSTM(lstm, routing))
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, and the weight of the shared route, [batch, layers, time]."""
        outputs = self.network(x)
        routes = []
        for path in self.layers:
            layer = self.network.get_submodule(path)
            assert isinstance(layer, RoutedLSTM)
            routes.append(layer.routes)
            layer.routes = None
        return outputs, torch.cat([r for r in routes if r is not None], dim=1)


def policy_network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Make a small ReLU network; without normalisation, a route depends on its instance only."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


@lru_cache(maxsize=64)
def routed_task(task: Task, routing: Routing, *, hard: bool) -> Task:
    """Make the routed network of a task; first outside `vmap`, because building draws weights."""
    build = lambda: _route(task, routing, hard=hard)  # noqa: E731
    return Task(build, task.criterion.example_loss, kind=task.criterion.kind)


def policy_names(task: Task, routing: Routing) -> list[str]:
    """Name the policy's parameters inside the routed network."""
    names = routed_task(task, routing, hard=False).names
    return [name for name in names if "policy" in name.split(".")]


def route_names(task: Task, routing: Routing) -> list[str]:
    """Name the routed layers, in the order of the routes."""
    recurrent, blocks = _places(task, routing)
    if not recurrent:
        return ["+".join(block) for block in blocks]
    lstms = {path: task.skeleton.get_submodule(path) for path in recurrent}
    return [
        f"{p}[{i}]" for p, m in lstms.items() if isinstance(m, LSTM) for i in range(m.num_layers)
    ]


def routed_state(task: Task, routing: Routing, shared: State, local: State, policy: State) -> State:
    """Fill the routed network: both models where a layer is routed, the shared one elsewhere."""
    state: State = {}
    for name in routed_task(task, routing, hard=False).names:
        steps = name.removeprefix("network.").split(".")
        if name in policy:
            state[name] = policy[name]
        elif "local" in steps and _without(steps, "local") in local:
            state[name] = local[_without(steps, "local")]
        else:
            state[name] = shared[_without(steps, "shared")]
    return state


def _without(steps: list[str], word: str) -> str:
    place = steps.index(word) if word in steps else len(steps)
    return ".".join(steps[:place] + steps[place + 1 :])


def _route(task: Task, routing: Routing, *, hard: bool) -> nn.Module:
    network = task.build()
    recurrent, blocks = _places(task, routing)
    if recurrent:
        routed: nn.Module = RoutedRecurrentNetwork(network, recurrent, routing)
    else:
        assert task.example is not None
        routed = RoutedNetwork(network, blocks, routing, task.example)
    for module in routed.modules():
        if isinstance(module, RoutedNetwork | RoutedLSTM):
            module.hard = hard
    return routed


def _places(task: Task, routing: Routing) -> tuple[list[str], list[list[str]]]:
    """Say which recurrent layers, or else which blocks, are routed."""
    modules = dict(task.skeleton.named_modules())
    recurrent = [path for path, module in modules.items() if isinstance(module, LSTM)]
    blocks = [[p for p in block if p in modules] for block in blocks_of(task.skeleton)]
    blocks = [b for b in blocks if b and not any(isinstance(modules[p], nn.Embedding) for p in b)]
    if routing.layers is not None:
        for name in routing.layers:
            task.select(name)  # refuses a name that is not there, with the nearest one
        recurrent = [path for path in recurrent if path in routing.layers]
        blocks = [[name] for name in routing.layers if name not in recurrent]
        if recurrent and blocks:
            raise CapabilityError(
                f"recurrent layers are routed per time step and others per instance; {recurrent} "
                "and "
                f"{[b[0] for b in blocks]} cannot be routed together. Name one kind."
            )
    if not recurrent and not blocks:
        raise CapabilityError(
            "routing needs named layers, but the network has no modules with parameters inside; "
            "wrap its layers in modules."
        )
    return recurrent, blocks


def _embedding_path(network: nn.Module, example: Tensor) -> str | None:
    if example.is_floating_point():
        return None
    paths = [path for path, m in network.named_modules() if isinstance(m, nn.Embedding)]
    if not paths:
        raise CapabilityError(
            f"the policy reads the input, which is of type {example.dtype}, but the network has "
            "no embedding "
            "for it; use floating-point inputs or an nn.Embedding."
        )
    return paths[0]


def _features(network: nn.Module, embedding: str | None, x: Tensor) -> Tensor:
    """Return what the policy reads: the input, or the mean of its tokens' embeddings."""
    if embedding is None:
        return x.flatten(1)
    embedded: Tensor = network.get_submodule(embedding)(x)
    return embedded.mean(1)


def _cell(lstm: LSTM, layer: int) -> Callable[[Tensor, States], States]:
    weights, recurrent, bias, recurrent_bias = (
        getattr(lstm, f"{name}_l{layer}") for name in PARAMETERS
    )

    def cell(x: Tensor, state: States) -> States:
        sums = F.linear(x, weights, bias) + F.linear(state[0], recurrent, recurrent_bias)
        return lstm_cell(sums, state[1])

    return cell
