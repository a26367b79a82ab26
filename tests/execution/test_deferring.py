"""Large weights that wait for the last step: the same sums, and only where nobody needs them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap
from toys import arrays, assert_close, assert_same

import motet
from motet._engine.backends.stacking import stack_padded
from motet._engine.federation import start
from motet._tracing.deferring import deferring
from motet._tracing.graphs import simplified
from motet._tracing.nodes import VIEWS
from motet._tracing.op_counter import OperationObserver
from motet._tracing.pending import Deferring, Layer, Pending
from motet._tracing.programs import Program
from motet._training.execution import Execution, executing
from motet._training.stacked import _deferring

CLIENTS, WIDTH, FEATURES, HIDDEN = 3, 4, 40, 48
NET = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))
FLAT = nn.Sequential(nn.Flatten(), *NET)
NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")
DATA = arrays({"a": 3, "b": 5, "c": 9, "d": 12, "e": 17}, features=FEATURES)


def mlp():
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))


def values(*inputs):
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(CLIENTS, *p.shape, generator=generator) for p in NET.parameters()]
    x = torch.randn(CLIENTS, WIDTH, *(inputs or (FEATURES,)), generator=generator)
    y = torch.randint(0, 3, (CLIENTS, WIDTH), generator=generator)
    return [*params, x, y]


def stepping(loss_of, rate=0.1, decay=0.0):
    """Make a step of gradient descent on a loss of parameters, inputs and labels."""

    def one(*values):
        *params, x, y = values
        state = dict(zip(NAMES, params, strict=True))
        slope = grad(lambda state: loss_of(state, x, y))(state)
        decayed = {n: slope[n] + decay * state[n] for n in NAMES} if decay else slope
        return [state[n] - rate * decayed[n] for n in NAMES]

    return vmap(one)


def entropy(state, x, y):
    return nn.functional.cross_entropy(functional_call(NET, state, (x,)), y)


def entropy_of_images(state, x, y):
    renamed = {f"{int(n[0]) + 1}{n[1:]}": v for n, v in state.items()}
    return nn.functional.cross_entropy(functional_call(FLAT, renamed, (x,)), y)


def found(step, given=None):
    given = given or values()
    return deferring(simplified(step, given, 4), donated=4, data=4)


def test_the_first_layer_can_wait():
    (layer,) = found(stepping(entropy)).layers
    assert (layer.place, layer.shape) == (0, (CLIENTS, HIDDEN, FEATURES))


def test_a_layer_that_sees_flattened_images_can_wait():
    step = stepping(entropy_of_images)
    assert [layer.place for layer in found(step, values(2, 4, 5)).layers] == [0]


def penalized(state, x, y):
    return entropy(state, x, y) + state["0.weight"].square().sum()


def aware_of_the_data(state, x, y):
    return entropy(state, x, y) * x.mean()


def seeing_other_data(state, x, y):
    return entropy(state, x.sin(), y)


def seeing_data_backwards(state, x, y):
    return entropy(state, x.flip(0), y)


@pytest.mark.parametrize(
    "step",
    [
        stepping(entropy, decay=0.1),
        stepping(penalized),
        stepping(aware_of_the_data),
        stepping(seeing_other_data),
        stepping(seeing_data_backwards),
    ],
    ids=["decay", "penalized", "aware of the data", "other data", "backwards"],
)
def test_weights_or_data_that_somebody_else_needs_cannot_wait(step):
    assert found(step) is None


def test_weights_that_are_stepped_twice_cannot_wait():
    once = stepping(entropy)

    def twice(*values):
        return once(*once(*values), *values[4:])

    assert found(twice) is None


def plain(w, x):
    return [w - 0.1 * ((x @ w.T).tanh().T @ x)]


def by_half_examples(w, x):
    return plain(w, x.reshape(2 * len(x), -1))


def by_columns(w, x):
    return plain(w, x.T)


def updated_by_other_data(w, x):
    return [w - 0.1 * ((x @ w.T).tanh().T @ x.sin())]


def put_out_for_other_data(w, x):
    return [w - 0.1 * ((x.sin() @ w.T).tanh().T @ x)]


def added_as_they_are(w, x):
    return [w - 0.1 * ((x @ w.T + w.sum()).tanh().T @ x)]


def turned_and_added(w, x):
    return [w - 0.1 * ((x @ w.T + w.T.exp().sum()).tanh().T @ x)]


def multiplied_by_themselves(w, x):
    return [w - 0.1 * ((x @ w.T + (w.T @ w).sum()).tanh().T @ x)]


def met_twice_unturned(w, x):
    return [w - 0.1 * ((x @ (x @ w)).tanh().T @ x)]


def read_again(w, x):
    (new,) = plain(w, x)
    return [new, new.sum()]


def changed_by_two_products(w, x):
    return [plain(w, x)[0] - 0.2 * ((x @ w.T).sin().T @ x)]


@pytest.mark.parametrize(
    ("step", "waits"),
    [
        (plain, True),
        (by_half_examples, False),
        (by_columns, False),
        (updated_by_other_data, False),
        (put_out_for_other_data, False),
        (added_as_they_are, False),
        (turned_and_added, False),
        (multiplied_by_themselves, False),
        (met_twice_unturned, False),
        (read_again, False),
        (changed_by_two_products, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_only_weights_that_do_nothing_but_meet_the_data_can_wait(step, waits):
    rng = torch.Generator().manual_seed(0)
    features = 3 if step is by_half_examples else 6
    w, x = (torch.randn(CLIENTS, n, m, generator=rng) for n, m in ((6, features), (6, 6)))
    program = simplified(vmap(step), [w, x], 1)
    assert (deferring(program, donated=1, data=1) is not None) == waits


def test_programs_that_leave_different_weights_alone_do_not_walk_together():
    def program(place):
        return Program(print, deferring=Deferring(print, (Layer(place, 1.0, (1, 9, 9)),)))

    assert _deferring({True: program(0), False: program(0)}, rows=4) is not None
    assert _deferring({True: program(0), False: program(1)}, rows=4) is None
    assert _deferring({True: program(0), False: Program(print)}, rows=4) is None


def test_a_search_leaves_the_program_as_it_was():
    program = simplified(stepping(entropy), values(), 4)
    before = program.code
    assert deferring(program, donated=4, data=4) is not None
    assert program.code == before


sizes = st.integers(1, 5)


@given(sizes, sizes, sizes, sizes, sizes, st.sampled_from([-1.0, 0.5]), st.booleans())
def test_pending_weights_put_out_what_up_to_date_weights_would(
    clients, steps, width, features, outputs, number, shared
):
    rng = torch.Generator().manual_seed(steps)
    seen = torch.randn(clients, steps * width, features, generator=rng, dtype=torch.float64)
    first = torch.randn(clients, outputs, features, generator=rng, dtype=torch.float64)
    weights = first[:1].expand(clients, -1, -1) if shared else first
    layer = Layer(0, number, tuple(weights.shape))
    pending, current = Pending(layer, weights, seen, width), weights.clone()
    for step in range(steps):
        x = seen[:, step * width : (step + 1) * width]
        assert_close(pending.outputs(step), x @ current.mT, 1e-12)
        back = torch.randn(clients, outputs, width, generator=rng, dtype=torch.float64)
        pending.note(step, back)
        current = current + number * (back @ x)
    assert_close(pending.weights(), current, 1e-12)


class LargeOperations(OperationObserver):
    """Counts operations on something as large as the first layer's weights of all clients."""

    count = 0

    def observe(self, func, args, kwargs):
        result = func(*args, **kwargs)
        tensors = [v for v in (*args, result) if isinstance(v, torch.Tensor)]
        large = any(v.numel() >= len(DATA.clients) * HIDDEN * FEATURES for v in tensors)
        computed = func not in VIEWS and all(v.device.type == "cpu" for v in tensors)
        self.count += large and computed
        return result


def trained(optimizer, *, traced, steps=4, spoiled=None):
    """Train a stack of ragged clients; say where it ends, and how often large weights are used."""
    task, method = motet.Task(mlp), motet.FedAvg(batch_size=WIDTH, steps=steps)
    run = start(method, task, DATA, rounds=1)
    data = [run.setting.work(client, 0)["train"] for client in DATA.clients]
    stacked = stack_padded([{"train": d} for d in data])["train"]
    if spoiled is not None:
        stacked.x[spoiled] = torch.nan

    def one(state, batches):
        return motet.fit(task, state, batches, optimizer)

    with executing(Execution(traced=traced, widths=frozenset({WIDTH}))):
        torch.func.vmap(one, in_dims=(None, 0))(run.server, stacked)
        with LargeOperations() as large:
            return torch.func.vmap(one, in_dims=(None, 0))(run.server, stacked), large.count


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_walk_with_weights_last_ends_where_a_plain_walk_ends(steps):
    sgd = motet.Sgd(lr=0.1)
    came, _ = trained(sgd, traced=True, steps=steps)
    expected, _ = trained(sgd, traced=False, steps=steps)
    assert_close(came, expected, 1e-5)


def test_large_weights_are_used_as_often_in_five_steps_as_in_two():
    counts = [trained(motet.Sgd(lr=0.1), traced=True, steps=steps)[1] for steps in (2, 5)]
    assert counts == [2, 2]
    assert trained(motet.Sgd(lr=0.1, momentum=0.9), traced=True, steps=5)[1] > 5


def test_many_rows_go_step_by_step():
    few = FEATURES // 2 // WIDTH  # steps
    assert Layer(0, 1.0, (1, HIDDEN, FEATURES)).can_wait_for(few * WIDTH)
    assert trained(motet.Sgd(lr=0.1), traced=True, steps=few)[1] == 2
    assert trained(motet.Sgd(lr=0.1), traced=True, steps=few + 1)[1] > few


def test_clients_that_run_out_of_data_stay_as_they_are():
    method, task = motet.FedAvg(batch_size=WIDTH, epochs=1), motet.Task(mlp)
    options = {"rounds": 2, "backend": "vectorized", "traced": True}
    together = motet.run(method, task, DATA, chunk_size=5, **options)
    assert any(program.deferring for program in task.programs._made.values())
    serial = motet.run(method, task, DATA, rounds=2, backend="serial")
    assert_close(together.server, serial.server, 1e-5)


def test_a_number_that_is_none_spoils_its_own_client_alone():
    sgd = motet.Sgd(lr=0.1)
    clean, _ = trained(sgd, traced=True)
    came, _ = trained(sgd, traced=True, spoiled=1)
    assert not came["0.weight"][1].isfinite().any()
    others = [0, 2, 3, 4]
    assert_same({n: v[others] for n, v in came.items()}, {n: v[others] for n, v in clean.items()})
