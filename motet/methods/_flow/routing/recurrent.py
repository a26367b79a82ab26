"""Two recurrent layers side by side, mixed at every time step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from motet.methods._flow.routing.rules import Recurrence, Routing, mix, route_weights
from motet.models._recurrence import lstm_cell
from motet.models._recurrent import LSTM, PARAMETERS

States = tuple[Tensor, ...]
Cell = Callable[[Any, States], States]
Policies = Sequence[Callable[[Tensor], Tensor]]


class Inputs(NamedTuple):
    """What one step reads: the input, and what it adds to the gates of both cells."""

    x: Tensor
    shared: Tensor
    local: Tensor


def routed_steps(
    shared: Cell,
    local: Cell,
    route: Callable[..., Tensor],
    inputs: Sequence[Any],
    state: States,
    *,
    recurrence: Recurrence = "poster",
    hard: bool = False,
) -> list[tuple[States, Tensor]]:
    """Run two cells side by side and mix their states, at every step by new weights.

    Args:
        shared: `(x_t, state) -> state` with the shared parameters.
        local: The same with the local ones.
        route: Weighs the two, [batch, 2], by `x_t` and the states that the recurrence reads.
        inputs: One entry per step.
        state: Before the first step.
        recurrence: The poster's h_t = [g(h_(t-1)); l(h_(t-1))] . r_t(h_(t-1)), or the release's, in
            which the local cell reads its own unmixed state and the policy both new ones.
        hard: Whether one of the two is taken instead of a mixture.

    Returns:
        After each step, the mixed state and the weights.
    """
    own, steps = state, []
    for x in inputs:
        new = shared(x, state)
        own = local(x, state if recurrence == "poster" else own)
        weights = route(x, state) if recurrence == "poster" else route(x, new, own)
        state = mix(weights, new, own, hard=hard)
        steps.append((state, weights))
    return steps


def states_read(recurrence: Recurrence) -> int:
    """Count the hidden states that the policy of a recurrent layer reads beside its input."""
    return 1 if recurrence == "poster" else 2


def routed_lstm(
    shared: LSTM, local: LSTM, policies: Policies, routing: Routing, x: Tensor, *, hard: bool
) -> tuple[tuple[Tensor, tuple[Tensor, Tensor]], list[Tensor]]:
    """Return what `LSTM.forward` does, and each layer's weight of the shared route, [batch, time].

    A policy's parameters come through the callables; there is one for each layer.
    """
    outputs, last, to_shared = x, [], []
    for layer, policy in enumerate(policies):
        steps = _run_layer((shared, local), layer, policy, routing, outputs, hard=hard)
        outputs = torch.stack([state[0] for state, _ in steps], dim=1)  # [batch, time, hidden]
        last.append(steps[-1][0])
        to_shared.append(torch.stack([weights[:, 0] for _, weights in steps], dim=1))
    hidden, cell = (torch.stack(states) for states in zip(*last, strict=True))
    return (outputs, (hidden, cell)), to_shared


def _run_layer(
    lstms: tuple[LSTM, LSTM],
    layer: int,
    policy: Callable[[Tensor], Tensor],
    routing: Routing,
    x: Tensor,
    *,
    hard: bool,
) -> list[tuple[States, Tensor]]:
    def route(step: Inputs, *states: States) -> Tensor:
        logits = policy(torch.cat([step.x, *(hidden for hidden, _ in states)], dim=-1))
        return route_weights(logits, routing.temperature, hard=hard)

    added = [_added_by_inputs(lstm, layer, x) for lstm in lstms]
    inputs = [Inputs(*step) for step in zip(x.unbind(1), *added, strict=True)]
    nothing = x.new_zeros(x.shape[0], lstms[0].hidden_size)
    return routed_steps(
        lambda step, state: _cell(lstms[0], layer, step.shared, state),
        lambda step, state: _cell(lstms[1], layer, step.local, state),
        route,
        inputs,
        (nothing, nothing),
        recurrence=routing.recurrence,
        hard=hard,
    )


def _added_by_inputs(lstm: LSTM, layer: int, x: Tensor) -> tuple[Tensor, ...]:
    """Multiply the inputs of all steps at once; only the recurrent product waits for the step."""
    weights, _, bias, recurrent_bias = (getattr(lstm, f"{name}_l{layer}") for name in PARAMETERS)
    return F.linear(x, weights, bias + recurrent_bias).unbind(1)


# Deviates: LSTM layers mix the hidden and the cell state by the same weights.
def _cell(lstm: LSTM, layer: int, added: Tensor, state: States) -> States:
    hidden, cell = state
    return lstm_cell(added + hidden @ getattr(lstm, f"weight_hh_l{layer}").mT, cell)
