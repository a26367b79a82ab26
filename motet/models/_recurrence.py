"""The steps of one LSTM layer, as a plain loop and as a fast one.

Autograd through the plain loop makes a gradient as large as the weights at every step, and adds
them up. The fast version makes it once, from all steps, which halves the time of a training step.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import Function
from torch.func import vjp

Pair: TypeAlias = tuple[Tensor, Tensor]

sigmoid_backward = torch.ops.aten.sigmoid_backward  # (gradient, output) -> gradient of the input
tanh_backward = torch.ops.aten.tanh_backward


def lstm_cell(sums: Tensor, cell: Tensor) -> Pair:
    """Turn the gates' sums (input, forget, candidate, output) into the next hidden and cell."""
    let_in, keep, candidate, let_out = sums.chunk(4, dim=-1)
    cell = keep.sigmoid() * cell + let_in.sigmoid() * candidate.tanh()
    return let_out.sigmoid() * cell.tanh(), cell


def plain_steps(inputs: Tensor, recurrent: Tensor) -> Pair:
    """Run a layer from zero states: the obvious version.

    Args:
        inputs: What the inputs and biases add to the gates, [time, batch, 4 * hidden].
        recurrent: What multiplies the hidden state, [4 * hidden, hidden].

    Returns:
        Hidden and cell states after each step, [time, batch, hidden].
    """
    hidden = cell = inputs.new_zeros(inputs.shape[1], recurrent.shape[1])
    states = []
    for step in inputs.unbind(0):
        hidden, cell = lstm_cell(step + hidden @ recurrent.mT, cell)
        states.append((hidden, cell))
    hiddens, cells = zip(*states, strict=True)
    return torch.stack(hiddens), torch.stack(cells)


def fast_steps(inputs: Tensor, recurrent: Tensor) -> Pair:
    """Compute what `plain_steps` computes."""
    hidden, cell, _ = _Steps.apply(inputs, recurrent)  # type: ignore[no-untyped-call]
    return hidden, cell


class _Steps(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = recurrent.shape[1]
        weights = recurrent.mT.contiguous()  # read at every step: worth laying out well
        hidden = cell = inputs.new_zeros(inputs.shape[1], size)
        states = []
        for step in inputs.unbind(0):
            gates = torch.addmm(step, hidden, weights)
            let_in, keep, candidate, let_out = gates.chunk(4, dim=-1)
            gates[:, : 2 * size].sigmoid_()
            candidate.tanh_()
            let_out.sigmoid_()
            cell = torch.addcmul(keep * cell, let_in, candidate)
            hidden = cell.tanh().mul_(let_out)
            states.append((hidden, cell, gates))
        hiddens, cells, all_gates = zip(*states, strict=True)
        return torch.stack(hiddens), torch.stack(cells), torch.stack(all_gates)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor, d_cell: Tensor, _: Tensor) -> Any:
        return _StepsGradient.apply(*ctx.saved_tensors, d_hidden, d_cell)  # type: ignore[no-untyped-call]


class _StepsGradient(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        _inputs: Tensor,
        recurrent: Tensor,
        hidden: Tensor,
        cell: Tensor,
        gates: Tensor,
        d_hidden: Tensor,
        d_cell: Tensor,
    ) -> Pair:
        backwards = [
            reversed(steps.unbind(0))
            for steps in (gates, cell.tanh(), _delayed(cell), d_hidden, d_cell)
        ]
        dh = dc = torch.zeros_like(cell[0])
        d_inputs = []
        for gate, squashed, cell_before, dh_out, dc_out in zip(*backwards, strict=True):
            let_in, keep, candidate, let_out = gate.chunk(4, dim=-1)
            dh = dh + dh_out
            dc = dc + dc_out + tanh_backward(dh * let_out, squashed)
            d_sums = torch.cat(
                [
                    sigmoid_backward(dc * candidate, let_in),
                    sigmoid_backward(dc * cell_before, keep),
                    tanh_backward(dc * let_in, candidate),
                    sigmoid_backward(dh * squashed, let_out),
                ],
                dim=-1,
            )
            d_inputs.append(d_sums)
            dh, dc = d_sums @ recurrent, dc * keep
        stacked = torch.stack(d_inputs[::-1])
        return stacked, stacked.flatten(0, 1).mT @ _delayed(hidden).flatten(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], _output: Pair) -> None:
        first, second, *_, d_hidden, d_cell = inputs
        ctx.save_for_backward(first, second, d_hidden, d_cell)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> Any:
        # A second derivative is rare (MAML): let autograd find it in the plain version. The states
        # and gates among the inputs are functions of the first two, which carry their share.
        pull = vjp(_plain_gradient, *ctx.saved_tensors)[1]
        d_inputs, d_recurrent, d_hidden, d_cell = pull(d_output)
        return d_inputs, d_recurrent, None, None, None, d_hidden, d_cell


def _plain_gradient(inputs: Tensor, recurrent: Tensor, d_hidden: Tensor, d_cell: Tensor) -> Any:
    pull = vjp(plain_steps, inputs, recurrent)[1]
    return pull((d_hidden, d_cell))


def _delayed(states: Tensor) -> Tensor:
    """Shift by one step: the state each step started from."""
    return torch.cat([torch.zeros_like(states[:1]), states[:-1]])
