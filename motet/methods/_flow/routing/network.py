"""A network with two sets of parameters, and a policy that routes every instance between them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from motet._core.criteria import Criterion
from motet._core.frozen import twin
from motet._core.keys import Key
from motet._core.tree import State, float_type
from motet._tracing.layouts import layout
from motet._tracing.programs import Programs
from motet.errors import CapabilityError
from motet.methods._flow.routing.places import Place, places
from motet.methods._flow.routing.recurrent import routed_lstm, states_read
from motet.methods._flow.routing.rules import Routing, mix, regulariser, route_weights
from motet.models._recurrent import LSTM
from motet.task import Task

Routes = dict[str, Tensor]  # by routed layer, the weight of the shared route: [batch, steps]


class RoutedNetwork(nn.Module):
    """Two networks, `shared` and `local`, run as one: routed layers mix the outputs of both.

    What is not routed is the shared network's. The policy of all layers routed per instance reads
    the network's input; that of a recurrent layer, [x_t ; h_(t-1)] at every step.
    """

    def __init__(
        self, network: nn.Module, routing: Routing, example: Tensor, *, hard: bool
    ) -> None:
        super().__init__()
        found = places(network, routing.layers)
        self.whole = [place for place in found if not place.recurrent]
        self.recurrent = [place for place in found if place.recurrent]
        self.routing, self.hard = routing, hard
        self.reads = _embedding_path(network, example) if self.whole else None
        self.shared, self.local = network, twin(network)
        precision = float_type(dict(network.named_parameters()))
        self.policy = self._make_policy(example).to(precision)

    def _make_policy(self, example: Tensor) -> nn.ModuleDict:
        hidden = self.routing.hidden
        policy = nn.ModuleDict()
        if self.whole:
            width = self._features(example).shape[1]
            policy["instance"] = policy_network(width, hidden, 2 * len(self.whole))
        for number, place in enumerate(self.recurrent):
            widths = _step_widths(_lstm(self.shared, place), self.routing)
            networks = [policy_network(width, hidden, 2) for width in widths]
            policy[f"steps_{number}"] = nn.ModuleList(networks)
        return policy

    def forward(self, x: Tensor) -> tuple[Tensor, Routes]:
        """Return the outputs, and the weights of the shared route."""
        taken: Routes = {}
        with ExitStack() as replaced:
            for path, forward in self._routed_layers(x, taken):
                layer = self.shared.get_submodule(path)
                replaced.enter_context(_forward_replaced(layer, forward))
            outputs = self.shared(x)
        return outputs, taken

    def _routed_layers(self, x: Tensor, taken: Routes) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Say what each routed layer does for this batch, and write down the routes it takes."""
        for place, weights in zip(self.whole, self._instance_weights(x), strict=True):
            taken[place.name] = weights[:, :1]
            for path in place.paths:
                yield path, self._mixed(path, weights)
        for number, place in enumerate(self.recurrent):
            yield place.paths[0], partial(self._run_steps, place, number, taken)

    def _instance_weights(self, x: Tensor) -> Sequence[Tensor]:
        if not self.whole:
            return ()
        policy = self.policy["instance"]
        features = self._features(x).to(next(policy.parameters()).dtype)
        # Deviates: All layers of the policy read the same features.
        logits = policy(features).unflatten(1, (len(self.whole), 2))
        return route_weights(logits, self.routing.temperature, hard=self.hard).unbind(1)

    def _features(self, x: Tensor) -> Tensor:
        """Return what the policy reads: the input, or the mean of its tokens' embeddings."""
        if self.reads is None:
            return x.flatten(1)
        embedded: Tensor = self.shared.get_submodule(self.reads)(x)
        return embedded.flatten(1, -2).mean(1)

    def _mixed(self, path: str, weights: Tensor) -> Callable[..., Any]:
        shared = self.shared.get_submodule(path).forward  # read before it is replaced
        local = self.local.get_submodule(path)

        def forward(*inputs: Any, **named: Any) -> Any:
            both = shared(*inputs, **named), local(*inputs, **named)
            return mix(weights, *both, hard=self.hard)

        return forward

    def _run_steps(self, place: Place, number: int, taken: Routes, x: Tensor) -> Any:
        lstms = _lstm(self.shared, place), _lstm(self.local, place)
        policies: Any = self.policy[f"steps_{number}"]
        outputs, to_shared = routed_lstm(*lstms, policies, self.routing, x, hard=self.hard)
        taken |= {f"{place.name}[{i}]": route for i, route in enumerate(to_shared)}
        return outputs


class PolicyLayer(nn.Linear):
    """A linear layer that draws nothing when it is made: that may happen inside `vmap`."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def policy_network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Make a small ReLU network; without normalisation, a route depends on its instance only."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [PolicyLayer(a, b), nn.ReLU()]
    return nn.Sequential(*layers, PolicyLayer(widths[-1], outputs))


# By the programs of a task, which its copies share: a routed network is built once for all of them.
_ROUTED: WeakKeyDictionary[Programs, dict[Hashable, Task]] = WeakKeyDictionary()
_MAKING = threading.Lock()


def routed_task(task: Task, routing: Routing, *, hard: bool = False) -> Task:
    """Return the task of a routed network; its loss is regularised.

    It is the same one in every round, because it keeps the traced steps.
    """
    if task.example is None:
        raise CapabilityError(
            "a routed network is built to the shape of its input, and this task has seen none; "
            "use `task.seeing(x)`."
        )
    key = (routing, hard, layout(task.example))
    with _MAKING:
        made = _ROUTED.setdefault(task.programs, {})
        if key not in made:
            build = partial(_build, task.skeleton, routing, task.example, hard=hard)
            loss = RoutedLoss(task.criterion, routing)
            times = task.criterion.times or None
            made[key] = Task(build, loss, kind=task.criterion.kind, times=times)
        return made[key]


@dataclass(frozen=True)
class RoutedLoss:
    """A task's own loss per example, plus what the policy pays for its routes."""

    criterion: Criterion
    routing: Routing

    def __call__(self, outputs: Any, y: Tensor) -> Tensor:
        outputs, to_shared = outputs
        losses = self.criterion.example_loss(outputs, y)
        return losses + self.routing.lam * regulariser(to_shared, self.routing.favour)


def routed_state(shared: State, local: State, policy: State) -> State:
    """Name the tensors of both models and of the policy as the routed network does."""
    parts = {"shared": shared, "local": local, "policy": policy}
    return {f"{part}.{name}": v for part, state in parts.items() for name, v in state.items()}


def routed_names(task: Task, routing: Routing) -> frozenset[str]:
    """Name the tensors of a model that belong to routed layers."""
    paths = [path for place in places(task.skeleton, routing.layers) for path in place.paths]
    starts = tuple(f"{path}." if path else "" for path in paths)
    return frozenset(name for name in task.names if name.startswith(starts))


def draw_policy(routed: Task, key: Key) -> State:
    """Draw a policy as `nn.Linear` draws its parameters: uniform in +-1 / sqrt(inputs)."""
    drawn: State = {}
    for path, layer in routed.skeleton.get_submodule("policy").named_modules():
        if isinstance(layer, PolicyLayer):
            bound = 1 / math.sqrt(layer.in_features)
            for name, like in layer.named_parameters(prefix=path):
                values = key.fold(name).numpy().uniform(-bound, bound, tuple(like.shape))
                drawn[name] = torch.from_numpy(values).to(like.dtype)
    return drawn


def _build(skeleton: nn.Module, routing: Routing, example: Tensor, *, hard: bool) -> nn.Module:
    # A copy, because a fresh network would draw its weights, which is illegal inside vmap.
    return RoutedNetwork(twin(skeleton), routing, example, hard=hard)


@contextmanager
def _forward_replaced(layer: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a layer do something else for a while; its parameters keep their place and names."""
    vars(layer)["forward"] = forward
    try:
        yield
    finally:
        del vars(layer)["forward"]


def _lstm(network: nn.Module, place: Place) -> LSTM:
    layer = network.get_submodule(place.paths[0])
    assert isinstance(layer, LSTM)
    return layer


def _step_widths(lstm: LSTM, routing: Routing) -> list[int]:
    states = states_read(routing.recurrence) * lstm.hidden_size
    inputs = [getattr(lstm, f"weight_ih_l{i}").shape[1] for i in range(lstm.num_layers)]
    return [width + states for width in inputs]


def _embedding_path(network: nn.Module, example: Tensor) -> str | None:
    if example.is_floating_point():
        return None
    for path, module in network.named_modules():
        if isinstance(module, nn.Embedding):
            return str(path)
    raise CapabilityError(
        f"the policy reads the input, which is of type {example.dtype}, but the network has no "
        "embedding for it; use floating-point inputs or an nn.Embedding."
    )
