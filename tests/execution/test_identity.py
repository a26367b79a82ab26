"""Losses and optimizers by value: equal ones share a traced step, captured tensors are refused."""

from __future__ import annotations

import functools
import gc
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from toys import arrays

import motet
from motet import Key, Task
from motet._core.tree import squared_distance
from motet._engine.backends.stacking import stack_padded
from motet._engine.federation import start
from motet._tracing.programs import Programs
from motet._training.execution import Execution, executing
from motet._training.identity import identity_of, loss_identity
from motet.errors import StructureError
from motet.testing import ragged
from motet.testing._worlds import TinyNet

TASK = ragged().task
TRACED = Execution(mode="stack", traced=True, widths=frozenset({4}))


# -- ways to write a loss that holds something --------------------------------


@dataclass(frozen=True)
class Frozen:
    held: Any

    def __call__(self, state, batch):
        return TASK.loss(state, batch)

    def as_method(self, state, batch):
        return TASK.loss(state, batch)


class Named(NamedTuple):
    held: Any


def plain(held, state, batch):
    return TASK.loss(state, batch)


def by_lambda(held):
    return lambda state, batch: (held, TASK.loss(state, batch))[1]


def by_inner_function(held):
    def loss(state, batch):
        return (held, TASK.loss(state, batch))[1]

    return loss


def by_inner_inner_function(held):
    def penalty():
        return held

    def loss(state, batch):
        return (penalty(), TASK.loss(state, batch))[1]

    return loss


def by_itself(held):
    def loss(state, batch, again=True):
        return loss(state, batch, again=False) if again and held else TASK.loss(state, batch)

    return loss


def by_default(held):
    def loss(state, batch, held=held):
        return TASK.loss(state, batch)

    return loss


def by_keyword_default(held):
    def loss(state, batch, *, held=held):
        return TASK.loss(state, batch)

    return loss


WAYS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "lambda": by_lambda,
    "inner function": by_inner_function,
    "inner function of an inner function": by_inner_inner_function,
    "recursive function": by_itself,
    "default argument": by_default,
    "keyword-only default": by_keyword_default,
    "partial": lambda held: functools.partial(plain, held),
    "partial by keyword": lambda held: functools.partial(by_default(0), held=held),
    "partial of a lambda": lambda held: functools.partial(by_lambda(held)),
    "frozen dataclass": Frozen,
    "bound method": lambda held: Frozen(held).as_method,
    "dataclass in a dataclass": lambda held: Frozen(Frozen(held)),
    "named tuple in a closure": lambda held: by_lambda(Named(held)),
    "dict in a closure": lambda held: by_lambda({"held": held}),
    "list in a partial": lambda held: functools.partial(plain, [held]),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(width=16)
    | st.sampled_from(["", "a", torch.float32, torch.float64, int, torch.relu])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.tuples(inner)
        | st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        | st.builds(Frozen, inner)
    ),
    max_leaves=3,
)


def twin(value):
    """Make an equal value out of new objects."""
    if isinstance(value, list | tuple):
        return type(value)(map(twin, value))
    if isinstance(value, dict):
        return {name: twin(part) for name, part in value.items()}
    return Frozen(twin(value.held)) if isinstance(value, Frozen) else value


@EVERY_WAY
@settings(max_examples=25, deadline=None)
@given(value=VALUES)
def test_a_loss_made_anew_of_equal_values_is_the_same_loss(way, value):
    first, second = loss_identity(way(value)), loss_identity(way(twin(value)))
    assert first == second
    assert hash(first) == hash(second)


@EVERY_WAY
@settings(max_examples=25, deadline=None)
@given(values=st.tuples(VALUES, VALUES))
def test_losses_of_different_values_are_different(way, values):
    one, other = values
    same = repr(one) == repr(other)  # 1, 1.0 and True are equal, but compute different types
    assert (loss_identity(way(one)) == loss_identity(way(other))) == same


def test_different_ways_are_different_losses():
    found = [loss_identity(way(0.5)) for way in WAYS.values()]
    assert len(set(found)) == len(found)


# -- what has no value --------------------------------------------------------


class Unfrozen:
    def __call__(self, state, batch):
        return TASK.loss(state, batch)


@dataclass
class Thawed:
    strength: float = 1.0

    def __call__(self, state, batch):
        return TASK.loss(state, batch)


TENSORS = {
    "a tensor of shape (3,)": torch.ones(3),
    "an ndarray of tensors": np.ones(3),
    "a dict of tensors": {"w": torch.ones(3)},
    "a tuple of tensors": (1.0, torch.ones(3)),
    "a network (Linear)": nn.Linear(2, 2),
}


@EVERY_WAY
@pytest.mark.parametrize("what", TENSORS)
def test_a_captured_tensor_is_refused_with_its_name_and_the_line_to_write(way, what):
    with pytest.raises(StructureError) as refusal:
        loss_identity(way(TENSORS[what]))
    sentence = str(refusal.value)
    assert "held" in sentence
    assert "given=(" in sentence
    assert "def loss(state, batch, " in sentence


@pytest.mark.parametrize("held", [torch.Generator(), object(), Unfrozen(), Thawed()])
def test_what_cannot_be_compared_is_refused(held):
    with pytest.raises(StructureError, match=r"captures `held`, an? \w+\. .* frozen dataclasses"):
        loss_identity(by_lambda(held))


@pytest.mark.parametrize("loss", [Unfrozen(), Thawed()])
def test_an_object_that_is_no_frozen_dataclass_is_refused_as_a_loss(loss):
    with pytest.raises(StructureError, match=r"Write @dataclass\(frozen=True\) above its class"):
        loss_identity(loss)


def batches_of(size=4):
    data = arrays({"a": size})
    run = start(motet.FedAvg(batch_size=4), TASK, data, rounds=1)
    return run.setting.work("a", 0)["train"]


@pytest.mark.parametrize("stacked", [False, True])
def test_fit_refuses_a_captured_tensor_for_one_client_and_for_a_stack(stacked):
    state, batches = TASK.init(Key(0)), batches_of()

    def train(anchor, batches):
        def pulled(own, batch):
            return TASK.loss(own, batch) + squared_distance(own, anchor)

        return motet.fit(TASK, state, batches, motet.Sgd(), loss=pulled)

    if stacked:
        train, batches = vmap(train, in_dims=(None, 0)), stack_padded([{"t": batches}] * 2)["t"]
    with pytest.raises(StructureError, match=r"line \d+, captures `anchor`, a dict of tensors"):
        train(state, batches)


# -- constants, modules, tasks ------------------------------------------------

STRENGTH = 1.0


def reads_a_constant(state, batch):
    return TASK.loss(state, batch) * STRENGTH


def calls_another(state, batch):
    return reads_a_constant(state, batch)


@pytest.mark.parametrize("loss", [reads_a_constant, calls_another])
def test_a_constant_that_is_changed_makes_another_loss(loss, monkeypatch):
    before = loss_identity(loss)
    monkeypatch.setitem(globals(), "STRENGTH", 2.0)
    assert loss_identity(loss) != before


def test_a_module_without_weights_is_known_by_its_settings():
    first, second, other = (
        loss_identity(by_lambda(nn.CrossEntropyLoss(label_smoothing=s))) for s in (0.1, 0.1, 0.2)
    )
    assert first == second != other


def test_copies_of_a_task_are_one_task_and_other_tasks_are_not():
    task, other = Task(TinyNet), Task(TinyNet)
    seen, elsewhere = task.seeing(torch.zeros(2, 4)), task.seeing(torch.zeros(2, 5))
    again = task.seeing(torch.ones(1, 4))
    assert loss_identity(by_lambda(seen)) == loss_identity(by_lambda(again))
    assert loss_identity(seen.loss) == loss_identity(again.loss)
    assert loss_identity(by_lambda(seen)) != loss_identity(by_lambda(elsewhere))
    assert loss_identity(by_lambda(task)) != loss_identity(by_lambda(other))


# -- programs -----------------------------------------------------------------


def fit_rounds(task, make_loss, optimizer=None, rounds=4):
    """Fit a stack in several rounds, and count the programs after each."""
    state, stacked = task.init(Key(0)), stack_padded([{"t": batches_of()}] * 2)["t"]
    counts = []
    for number in range(rounds):
        one = functools.partial(
            motet.fit, task, state, optimizer=optimizer or motet.Sgd(), loss=make_loss(number)
        )
        with executing(TRACED):
            vmap(lambda batches, one=one: one(batches=batches))(stacked)
        counts.append(len(task.programs))
    return counts


@EVERY_WAY
def test_a_loss_made_anew_in_every_round_is_traced_once(way):
    assert fit_rounds(Task(TinyNet), lambda number: way(0.5)) == [1, 1, 1, 1]


def test_a_loss_that_differs_in_every_round_is_traced_in_every_round():
    assert fit_rounds(Task(TinyNet), lambda number: by_lambda(float(number))) == [1, 2, 3, 4]


def test_the_number_of_programs_is_bounded_the_oldest_goes_and_the_log_says_so_once(caplog):
    task = Task(TinyNet)
    task.programs = Programs(most=2)
    with caplog.at_level(logging.WARNING, logger="motet"):
        assert fit_rounds(task, lambda number: by_lambda(float(number)), rounds=5) == [
            1,
            2,
            2,
            2,
            2,
        ]
    (record,) = caplog.records
    assert "more than 2 traced steps" in record.message
    assert "given=" in record.message


def test_what_was_used_last_is_kept_and_what_is_dropped_is_freed():
    programs, x = Programs(most=2), [torch.ones(3)]

    def get(name, factor):
        return programs.get(name, lambda x: [x * factor], x, donated=0)

    first, dropped = get("a", 1), weakref.ref(get("b", 2))
    assert get("a", 9) is first  # used again, so "b" is the oldest now
    get("c", 3)
    gc.collect()
    assert dropped() is None
    assert get("a", 9) is first


def test_a_step_that_cannot_be_traced_keeps_nothing_of_its_first_call():
    outside = torch.ones(3)
    programs, x = Programs(), torch.ones(3)

    def step(factor):
        return lambda x: [x * outside * factor]

    first = step(1.0)
    freed = weakref.ref(first)
    programs.get("a", first, [x], donated=0)
    del first
    gc.collect()
    assert freed() is None
    (result,) = programs.get("a", step(2.0), [x], donated=0).run(x)
    assert torch.equal(result, 2 * x)


@dataclass
class Homemade:
    """An optimizer as many would write it: neither frozen nor hashable."""

    lr: float = 0.1
    scale: torch.Tensor = field(default_factory=lambda: torch.ones(()))

    def init(self, params):
        return {}

    def step(self, grads, moments, params, rate=1.0):
        return {k: params[k] - self.lr * rate * self.scale * grads[k] for k in params}, moments


def test_an_optimizer_without_a_value_runs_as_written_and_the_log_says_so_once(caplog):
    data = arrays({"a": 8, "b": 5})
    method = motet.FedAvg(batch_size=4, optimizer=Homemade())
    task = Task(TinyNet)
    with caplog.at_level(logging.WARNING, logger="motet"):
        came = motet.run(method, task, data, rounds=3, backend="vectorized", traced=True)
    (record,) = caplog.records
    assert "the optimizer Homemade cannot be compared by value" in record.message
    plain = motet.FedAvg(batch_size=4, optimizer=motet.Sgd(lr=0.1))
    expected = motet.run(plain, Task(TinyNet), data, rounds=3, backend="vectorized", traced=False)
    assert len(task.programs) == 0
    for name, leaf in expected.server.items():
        assert torch.allclose(came.server[name], leaf, atol=1e-6)


def test_equal_optimizers_are_one_optimizer():
    assert identity_of(motet.Sgd(lr=0.1)) == identity_of(motet.Sgd(lr=0.1))
    assert identity_of(motet.Sgd(lr=0.1)) != identity_of(motet.Sgd(lr=0.2))
    assert identity_of(motet.Sgd(lr=0.1)) != identity_of(motet.Adam(lr=0.1))
