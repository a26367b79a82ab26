"""The LSTM is torch's, to rounding: forward, gradient, second derivative, stacked or not."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from motet import models
from motet.errors import RequestError
from motet.models._recurrence import fast_steps, plain_steps

BATCH, TIME, INPUTS, HIDDEN = 4, 7, 3, 5


def twins(layers, seed=0):
    """Make torch's LSTM and ours, with the same weights."""
    generator = torch.Generator().manual_seed(seed)
    theirs = nn.LSTM(INPUTS, HIDDEN, layers, batch_first=True)
    for weight in theirs.parameters():
        nn.init.uniform_(weight, -0.7, 0.7, generator=generator)
    ours = models.LSTM(INPUTS, HIDDEN, layers)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def sequences():
    return torch.randn(BATCH, TIME, INPUTS, generator=torch.Generator().manual_seed(0))


def flat(outputs):
    out, (hidden, cell) = outputs
    return torch.cat([out.flatten(), hidden.flatten(), cell.flatten()])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_parameters_have_the_names_shapes_and_order_of_torch(layers):
    ours, theirs = twins(layers)
    shapes = [[(n, p.shape) for n, p in lstm.named_parameters()] for lstm in (ours, theirs)]
    assert shapes[0] == shapes[1]


def test_fresh_weights_are_drawn_within_torchs_bounds():
    weights = torch.cat([p.flatten() for p in models.LSTM(50, 100, 2).parameters()])
    assert weights.abs().max() <= 0.1
    assert abs(weights.std() - 0.1 / 3**0.5) < 1e-3


@pytest.mark.parametrize("run", ["forward", "run_steps"])
@pytest.mark.parametrize("layers", [1, 2])
def test_outputs_and_states_equal_torchs(layers, run):
    ours, theirs = twins(layers)
    x = sequences()
    torch.testing.assert_close(flat(getattr(ours, run)(x)), flat(theirs(x)), atol=1e-6, rtol=1e-6)


def test_gradients_equal_torchs():
    ours, theirs = twins(2)
    x = sequences()
    ours.run_steps(x)[0].square().sum().backward()
    theirs(x)[0].square().sum().backward()
    for name, parameter in ours.named_parameters():
        expected = theirs.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, expected, atol=1e-5, rtol=1e-5)


def test_a_client_of_a_stack_gets_what_torch_would_give_it():
    pairs = [twins(2, seed) for seed in range(3)]
    x = sequences()
    stacked = {
        name: torch.stack([ours.get_parameter(name).detach() for ours, _ in pairs])
        for name, _ in pairs[0][0].named_parameters()
    }
    out = vmap(lambda weights: functional_call(pairs[0][0], weights, (x,))[0])(stacked)
    expected = torch.stack([theirs(x)[0] for _, theirs in pairs])
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)


def layer_arguments():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(TIME, BATCH, 4 * HIDDEN, generator=generator, dtype=torch.float64)
    recurrent = torch.randn(4 * HIDDEN, HIDDEN, generator=generator, dtype=torch.float64)
    return inputs, recurrent


def scalar(steps):
    """Weigh hidden and cell states differently at every step, so that no gradient can hide."""
    weights = torch.linspace(-1, 2, TIME, dtype=torch.float64)[:, None, None]

    def function(inputs, recurrent):
        hidden, cell = steps(inputs, recurrent)
        return (weights * hidden.square() + weights.flip(0) * cell.sin()).sum()

    return function


def derivative_norm(steps):
    """Make a function whose gradient holds second derivatives of the steps."""

    def function(inputs, recurrent):
        first = grad(scalar(steps), argnums=(0, 1))(inputs, recurrent)
        return sum(part.square().sum() for part in first)

    return function


@pytest.mark.parametrize("of", [scalar, derivative_norm], ids=["first", "second"])
def test_fast_steps_have_the_derivatives_of_plain_steps(of):
    fast, plain = (
        grad(of(s), argnums=(0, 1))(*layer_arguments()) for s in (fast_steps, plain_steps)
    )
    torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize("of", [scalar, derivative_norm], ids=["first", "second"])
def test_stacked_fast_steps_have_the_derivatives_of_a_loop(of):
    inputs, recurrent = layer_arguments()
    stack = torch.stack([recurrent, 0.5 * recurrent, -recurrent])
    derivative = grad(of(fast_steps), argnums=1)
    stacked = vmap(derivative, in_dims=(None, 0))(inputs, stack)
    torch.testing.assert_close(stacked, torch.stack([derivative(inputs, r) for r in stack]))


def test_fast_steps_pass_gradcheck():
    inputs, recurrent = layer_arguments()
    leaves = inputs[:3, :2].clone().requires_grad_(), recurrent.requires_grad_()
    assert torch.autograd.gradcheck(fast_steps, leaves)


def test_next_characters_are_scored_at_every_position_or_after_the_last():
    x = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    every = models.build("char-lstm", shape=(6,), classes=9, hidden=4)
    last = models.build("char-lstm", shape=(6,), classes=9, hidden=4, predict="last")
    last.load_state_dict(every.state_dict())
    assert every(x).shape == (2, 6, 9)
    torch.testing.assert_close(last(x), every(x)[:, -1])


def test_a_character_is_scored_without_looking_ahead():
    network = models.build("char-lstm", shape=(6,), classes=9, hidden=4)
    x = torch.zeros(1, 6, dtype=torch.int64)
    changed = x.clone()
    changed[0, 4] = 5
    same = (network(x) - network(changed)).abs().amax(-1)[0] < 1e-7
    assert same.tolist() == [True] * 4 + [False] * 2


def test_states_name_the_last_hidden_and_cell_states_of_all_layers():
    network = models.build("char-lstm", shape=(6,), classes=9, hidden=4)
    seen = []
    network.states.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    network(x)
    _, (hidden, cell) = network.lstm(network.embedding(x))
    torch.testing.assert_close(seen[0], torch.cat([hidden[0], hidden[1], cell[0], cell[1]], 1))


def test_tables_are_not_taken_for_text():
    with pytest.raises(RequestError, match=r"tokens of shape \(length,\).*\(128, 6\)"):
        models.build("char-lstm", shape=(128, 6), classes=6)
