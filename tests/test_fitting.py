"""`fit`: plain SGD for one client, the same for a stack, and blind to padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from torch.nn.functional import pad
from toys import assert_close, assert_same

import motet
from motet import Key, Task, fit
from motet._core import tree
from motet._engine.backends.stacking import stack_padded
from motet._training.batching import Batches, Plan, batches, draw
from motet._training.execution import Execution, executing
from motet._training.fitting import mean_loss
from motet.errors import StructureError
from motet.testing import batch_norm, dropout, ragged

TASKS = {"plain": ragged().task, "batch_norm": batch_norm().task, "dropout": dropout().task}
WAYS = {
    "stack": Execution(mode="stack"),
    "loop": Execution(mode="loop"),
    "traced stack": Execution(mode="stack", traced=True, widths=frozenset(range(1, 5))),
    "traced loop": Execution(mode="loop", traced=True, widths=frozenset(range(1, 5))),
}


def examples(size, seed=0):
    rng = Key(seed).fold("examples", size).numpy()
    x = torch.from_numpy(rng.normal(size=(size, 4)).astype("float32"))
    return x, torch.from_numpy(rng.integers(0, 3, size))


def walk(size, plan=None, seed=0, rate=1.0):
    """The batches of a client with `size` random examples."""
    plan = plan or Plan(epochs=2, batch_size=4)
    return batches(*examples(size, seed), draw(plan, size, Key(seed), Key(seed)), rate)


def torch_loop(task, state, walked, make):
    """The loop everybody would write with torch's own optimizer."""
    params = {k: v.clone().requires_grad_() for k, v in state.items()}
    optimizer = make(list(params.values()))
    for batch in walked.steps():
        real = batch.weight > 0
        outputs = task.outputs(params, batch.x[real])
        optimizer.zero_grad()
        nn.functional.cross_entropy(outputs, batch.y[real]).backward()
        optimizer.step()
    return {k: v.detach() for k, v in params.items()}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (motet.Sgd(lr=0.2), lambda p: torch.optim.SGD(p, lr=0.2)),
        (
            motet.Sgd(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        ),
        (motet.Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    ],
)
def test_fit_is_the_loop_everybody_would_write(ours, theirs):
    task, walked = TASKS["plain"], walk(11)
    state = task.init(Key(0))
    assert_close(fit(task, state, walked, ours), torch_loop(task, state, walked, theirs), 2e-6)


def test_batch_statistics_are_those_of_torch_in_training_mode():
    task, walked = TASKS["batch_norm"], walk(8)  # batches of 4: none is short
    state = task.init(Key(0))
    module = task.build()
    module.load_state_dict(state)
    optimizer = torch.optim.SGD(module.train().parameters(), lr=0.1)
    for batch in walked.steps():
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(batch.x), batch.y).backward()
        optimizer.step()
    assert_close(fit(task, state, walked, motet.Sgd(lr=0.1)), dict(module.state_dict()), 1e-6)


def test_inputs_are_left_alone():
    task, walked = TASKS["batch_norm"], walk(9)
    state = task.init(Key(0))
    before = tree.clone((state, walked))
    fit(task, state, walked, motet.Adam())
    assert_same(before, (state, walked))


# -- what may change, and what may not ----------------------------------------


@pytest.mark.parametrize("name", list(TASKS))
def test_entries_that_are_not_trained_come_back_bit_for_bit(name):
    task = TASKS[name]
    state, head = task.init(Key(0)), task.select("head")
    fitted = fit(task, state, walk(9), motet.Sgd(lr=0.5, weight_decay=0.1), train=head)
    for k in state:
        assert torch.equal(fitted[k], state[k]) == (k not in head), k


@pytest.mark.parametrize("mode", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("shared", [True, False])
def test_frozen_statistics_stay_bit_for_bit_in_a_stack_too(shared, mode):
    task = TASKS["batch_norm"]
    state, head = task.init(Key(0)), task.select("head")
    stacked = stack_padded([{"train": walk(9, seed=s)} for s in range(3)])["train"]
    states = state if shared else tree.stack([state] * 3)

    def one(state, walked):
        return fit(task, state, walked, motet.Sgd(), train=head)

    with executing(mode):
        fitted = vmap(one, in_dims=(None if shared else 0, 0))(states, stacked)
    for s in range(3):
        assert_close(tree.row(fitted, s), one(state, walk(9, seed=s)))
        assert_same(tree.drop(tree.row(fitted, s), head), tree.drop(state, head))


def test_statistics_can_be_trained_while_the_affine_part_is_not():
    task = TASKS["batch_norm"]
    state = task.init(Key(0))
    fitted = fit(task, state, walk(9), motet.Sgd(), train=task.buffers | {"head.bias"})
    changed = {k for k in state if not torch.equal(fitted[k], state[k])}
    assert changed == task.buffers | {"head.bias"}


def test_nothing_to_train_and_no_steps_return_the_state_as_it_was():
    task = TASKS["batch_norm"]
    state = task.init(Key(0))
    assert_same(fit(task, state, walk(9), motet.Sgd(), train=()), state)
    assert_same(fit(task, state, walk(9), motet.Sgd(), train=task.buffers), state)
    assert_same(fit(task, state, walk(9, Plan(steps=0)), motet.Adam()), state)
    assert_same(fit(task, state, walk(0), motet.Adam()), state)


def test_parameters_that_need_no_gradient_are_not_trained():
    def build():
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        net[0].requires_grad_(False)
        return net

    task = Task(build=build)
    state = task.init(Key(0))
    before = {name: leaf.clone() for name, leaf in task.frozen.items()}
    fitted = fit(task, state, walk(9), motet.Sgd(weight_decay=0.1))
    assert fitted.keys() == {"1.weight", "1.bias"}
    assert_same(task.frozen, before)
    assert not torch.equal(fitted["1.weight"], state["1.weight"])


def test_a_typo_in_train_is_refused():
    task = TASKS["plain"]
    with pytest.raises(StructureError, match=r"train= names \['hed.weight'\]"):
        fit(task, task.init(Key(0)), walk(3), motet.Sgd(), train=("hed.weight",))


def test_weight_decay_and_clipping_see_only_the_trained_part():
    task = TASKS["plain"]
    state = task.init(Key(0))
    huge = state | {"body.0.weight": 1e3 * state["body.0.weight"]}
    optimizer = motet.Sgd(lr=0.1, weight_decay=0.5, clip=0.1)
    fitted = fit(task, huge, walk(4, Plan(batch_size=None)), optimizer, train=task.select("head"))
    # The clipped gradient is at most 0.1 long, the decay is that of the head alone.
    moved = tree.subtract(
        tree.pick(state, task.select("head")), tree.pick(fitted, task.select("head"))
    )
    decay = {k: 0.1 * 0.5 * state[k] for k in moved}
    assert tree.squared_distance(moved, decay).sqrt().item() <= 0.1 * 0.1 + 1e-6


# -- objectives, rates, types -------------------------------------------------


def pulled(state, batch, anchor):
    return TASKS["plain"].loss(state, batch) + 0.5 * tree.squared_distance(state, anchor)


@pytest.mark.parametrize("mode", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("own_anchor", [True, False])
def test_what_the_loss_needs_may_differ_between_the_clients_of_a_stack(own_anchor, mode):
    task = TASKS["plain"]
    states = [task.init(Key(s)) for s in range(3)]
    anchors = [task.init(Key(10 + s if own_anchor else 10)) for s in range(3)]
    walks = [walk(n) for n in (3, 9, 6)]

    def one(state, walked, anchor):
        return fit(task, state, walked, motet.Sgd(), loss=pulled, given=(anchor,))

    with executing(mode):
        stacked = vmap(one, in_dims=(0, 0, 0 if own_anchor else None))(
            tree.stack(states),
            stack_padded([{"train": w} for w in walks])["train"],
            tree.stack(anchors) if own_anchor else anchors[0],
        )
    for i in range(3):
        assert_close(tree.row(stacked, i), one(states[i], walks[i], anchors[i]))


def test_a_rate_scales_the_learning_rate():
    task = TASKS["plain"]
    state = task.init(Key(0))
    halved = fit(task, state, walk(9, rate=0.5), motet.Sgd(lr=0.2))
    assert_close(halved, fit(task, state, walk(9), motet.Sgd(lr=0.1)))
    assert_same(fit(task, state, walk(9, rate=0.0), motet.Sgd(lr=0.2)), state)


class Double(nn.Module):
    """A network in double precision, with a scalar parameter, on single-precision inputs."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3).double()
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def forward(self, x):
        return self.scale * self.head(x.double())


@pytest.mark.parametrize("optimizer", [motet.Sgd(lr=0.1, momentum=0.9), motet.Adam(lr=0.1)])
def test_double_precision_is_double_precision_on_both_paths(optimizer):
    task = Task(build=Double)
    states = [task.init(Key(s)) for s in range(3)]
    walks = [walk(n) for n in (3, 9, 6)]
    stacked = vmap(lambda state, walked: fit(task, state, walked, optimizer))(
        tree.stack(states), stack_padded([{"train": w} for w in walks])["train"]
    )
    for i in range(3):
        single = fit(task, states[i], walks[i], optimizer)
        assert {leaf.dtype for leaf in single.values()} == {torch.float64}
        assert_close(tree.row(stacked, i), single, 1e-13)


@pytest.mark.parametrize("optimizer", [motet.Sgd(momentum=0.5), motet.Adam()])
def test_scalar_parameters_keep_single_precision_in_a_stack(optimizer):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x):
            return self.scale * x[:, :3]

    task = Task(build=Scaled)
    stacked = stack_padded([{"train": walk(n)} for n in (3, 9)])["train"]
    fitted = vmap(lambda w: fit(task, task.init(Key(0)), w, optimizer))(stacked)
    assert fitted["scale"].dtype == torch.float32
    for i, n in enumerate((3, 9)):
        assert_close(tree.row(fitted, i), fit(task, task.init(Key(0)), walk(n), optimizer))


# -- stacks and padding -------------------------------------------------------


@pytest.mark.parametrize("mode", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("optimizer", [motet.Sgd(momentum=0.9), motet.Adam(lr=0.05)])
@pytest.mark.parametrize("name", ["plain", "dropout"])
def test_a_stack_of_ragged_clients_is_each_of_them(name, optimizer, mode):
    task = TASKS[name]
    state = task.init(Key(0))
    walks = [walk(n, seed=n) for n in (1, 4, 13, 0)]
    with executing(mode):
        stacked = vmap(lambda w: fit(task, state, w, optimizer))(
            stack_padded([{"train": w} for w in walks])["train"]
        )
    for i, walked in enumerate(walks):
        assert_close(tree.row(stacked, i), fit(task, state, walked, optimizer), 2e-6)


def padded(walked: Batches, rows: int, steps: int, columns: int) -> Batches:
    """Add examples nobody asked for, steps without examples, and places in every batch."""
    return walked._replace(
        x=pad(walked.x, (0, 0, 0, rows), value=7.0),
        y=pad(walked.y, (0, rows)),
        rows=pad(walked.rows, (0, columns, 0, steps)),
        weight=pad(walked.weight, (0, columns, 0, steps)),
        key=pad(walked.key, (0, steps)),
    )


@settings(max_examples=15)
@given(
    st.sampled_from(["plain", "dropout"]),
    st.integers(1, 9),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_padding_is_invisible(name, size, rows, steps, columns):
    task, walked = TASKS[name], walk(size)
    state, more = task.init(Key(0)), padded(walked, rows, steps, columns)

    def one(walked):
        return fit(task, state, walked, motet.Adam(lr=0.05))

    assert_close(tree.row(vmap(one)(tree.stack([more, more])), 0), one(walked), 2e-6)
    torch.testing.assert_close(mean_loss(task, state, more), mean_loss(task, state, walked))


@pytest.mark.parametrize("name", ["plain", "batch_norm", "dropout"])
def test_several_models_may_share_a_clients_data_under_a_vmap_of_the_methods_own(name):
    task = TASKS[name]
    models = [task.init(Key(s)) for s in range(3)]
    walks = [walk(n, seed=n) for n in (8, 8)]

    def mine(walked):
        return vmap(lambda state: fit(task, state, walked, motet.Sgd(momentum=0.5)))(
            tree.stack(models)
        )

    nested = vmap(mine)(stack_padded([{"train": w} for w in walks])["train"])
    for i, walked in enumerate(walks):
        for j, state in enumerate(models):
            single = fit(task, state, walked, motet.Sgd(momentum=0.5))
            assert_close(tree.row(tree.row(nested, i), j), single, 2e-6)


def test_several_models_with_frozen_statistics_in_a_stack_of_clients():
    task = TASKS["batch_norm"]
    head = task.select("head")
    heads = tree.stack([tree.pick(task.init(Key(s)), head) for s in range(3)])
    body = tree.drop(task.init(Key(0)), head)
    stacked = stack_padded([{"train": walk(8, seed=s)} for s in range(2)])["train"]

    def mine(walked):
        return vmap(lambda h: fit(task, body | h, walked, motet.Sgd(), train=head))(heads)

    nested = vmap(mine)(stacked)
    single = fit(task, body | tree.row(heads, 2), walk(8, seed=1), motet.Sgd(), train=head)
    assert_close(tree.row(tree.row(nested, 1), 2), single, 2e-6)


def test_the_mean_loss_weighs_examples_not_batches():
    task = TASKS["plain"]
    state, (x, y) = task.init(Key(0)), examples(7)
    one_by_one = nn.functional.cross_entropy(task.outputs(state, x), y)
    torch.testing.assert_close(mean_loss(task, state, walk(7, Plan(batch_size=3))), one_by_one)
    assert mean_loss(task, state, walk(0)).item() == 0
