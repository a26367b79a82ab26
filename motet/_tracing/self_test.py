"""Two small steps that take every pass over a graph at least once, traced and as they are written.

They are compared in double precision, so a difference is a mistake and not rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from motet._core.gradient import grad
from motet._tracing.pending import Deferring, Pending

CLIENTS, ROWS, STEPS = 2, 3, 2
Step = Callable[..., Sequence[Tensor]]


def disagreement(trace: Callable[..., Any]) -> str | None:
    """Say which of the steps differs from its program; None if all agree.

    Args:
        trace: `motet._tracing.support.trace`.
    """
    for name, check in (("a stack of clients", _check_stack), ("one client", _check_image)):
        if not check(trace):
            return f"the program for {name} gives other numbers"
    return None


def _check_stack(trace: Callable[..., Any]) -> bool:
    """Check two layers, momentum, a pull, and a client without a batch; the first layer waits."""
    params = [_values(CLIENTS, *shape) for shape in ((5, 8), (5,), (4, 5), (5,))]
    x, y = _values(CLIENTS, ROWS, 8), torch.arange(CLIENTS * ROWS, device="cpu") % 4
    fixed = [
        _values(CLIENTS, 4, 5) + 1,
        torch.tensor([0.1, 0.2], dtype=torch.float64, device="cpu"),
    ]
    rest = [y.view(CLIENTS, ROWS), torch.tensor([True, False], device="cpu")]
    values = [*params, *fixed, x, *rest]
    traced = trace(_stacked, _copied(values), donated=len(params), data=len(params) + len(fixed))
    expected = _repeated(_stacked, values, len(params))
    if not _agree(_repeated(traced.run, _copied(values), len(params)), expected):
        return False
    if traced.deferring is None:  # slower, but not wrong
        return True
    return _agree(_repeated_later(traced.deferring, _copied(params), fixed, x, rest), expected)


def _stacked(*values: Tensor) -> list[Tensor]:
    *others, active = values
    new = vmap(_one_of_stack)(*others)
    old = others[: len(new)]
    return [
        torch.where(active.view(-1, *[1] * (n.ndim - 1)), n, o)
        for n, o in zip(new, old, strict=True)
    ]


def _one_of_stack(
    first: Tensor,
    bias: Tensor,
    last: Tensor,
    velocity: Tensor,
    anchor: Tensor,
    rate: Tensor,
    x: Tensor,
    y: Tensor,
) -> tuple[Tensor, ...]:
    def loss(params: dict[str, Tensor]) -> Tensor:
        hidden = F.linear(x, params["first"], params["bias"]).relu()
        scores = F.linear(hidden, params["last"]).log_softmax(-1)
        # Not `cross_entropy`: under vmap it imports torch's compiler.
        return -scores.gather(-1, y[:, None]).mean()

    slope = grad(loss)({"first": first, "bias": bias, "last": last})
    velocity = 0.9 * velocity + slope["bias"]
    turned = (anchor.mT @ (anchor @ anchor.mT)).mT  # a product that is transposed afterwards
    pulled = slope["last"] + 0.3 * (last - anchor) + turned
    stepped = (first - rate * slope["first"], bias - rate * velocity, last - rate * pulled)
    return *stepped, velocity


def _repeated_later(
    later: Deferring, params: list[Tensor], fixed: list[Tensor], x: Tensor, rest: list[Tensor]
) -> list[Tensor]:
    """Take the steps as `motet._training.stacked` does, on the same batch each time."""
    seen = torch.cat([x] * STEPS, dim=1)
    pending = {
        layer.place: Pending(layer, params[layer.place], seen, ROWS) for layer in later.layers
    }
    state = params
    for step in range(STEPS):
        outputs = [layer.outputs(step) for layer in pending.values()]
        state = list(later.run(*state, *fixed, x, *rest, *outputs))
        for place, layer in pending.items():
            layer.note(step, state[place])
    return [pending[n].weights() if n in pending else leaf for n, leaf in enumerate(state)]


def _check_image(trace: Callable[..., Any]) -> bool:
    """Check a convolution, a rectifier, a pool, and a layer large enough to be multiplied first."""
    params = [_values(4, 1, 3, 3), _values(2048, 36), _values(2048)]
    values = [*params, _values(2, 1, 8, 8)]
    traced = trace(_one_image_step, _copied(values), donated=len(params))
    results = _repeated(traced.run, _copied(values), len(params))
    return _agree(results, _repeated(_one_image_step, values, len(params)))


def _one_image_step(kernel: Tensor, weight: Tensor, bias: Tensor, x: Tensor) -> list[Tensor]:
    def loss(params: tuple[Tensor, ...]) -> Tensor:
        seen = F.max_pool2d(F.conv2d(x, params[0]).relu(), 2).flatten(1)
        return F.linear(seen, params[1], params[2]).tanh().square().sum() / 64

    params = (kernel, weight, bias)
    slopes: tuple[Tensor, ...] = grad(loss)(params)
    stepped = [param - 0.1 * slope for param, slope in zip(params, slopes, strict=True)]
    stepped[-1] = stepped[-1] + kernel.sum()  # the old kernel, though the new one is known
    return stepped


def _repeated(step: Step, values: list[Tensor], changing: int) -> list[Tensor]:
    state, rest = values[:changing], values[changing:]
    for _ in range(STEPS):  # the second step reads what the first one has written
        state = list(step(*state, *rest))
    return state


def _agree(results: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    pairs = zip(results, expected, strict=True)
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in pairs)


def _copied(values: list[Tensor]) -> list[Tensor]:
    return [value.clone() for value in values]


def _values(*shape: int) -> Tensor:
    """Make numbers without a pattern, and without drawing any."""
    count = math.prod(shape)
    return torch.arange(1, count + 1, dtype=torch.float64, device="cpu").mul(7.3).sin().view(shape)
