"""Plans: the order in which a phase walks a client's data, drawn from keys alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet import Key
from motet._training.batching import Plan, batches, draw
from motet.errors import RequestError

KEY, PARTS = Key(0).fold("batches"), Key(0).fold("client")
sizes = st.integers(1, 40)
widths = st.one_of(st.none(), st.integers(1, 12))


def real_rows(order):
    return order.rows[order.weight > 0]


@given(sizes, widths, st.integers(1, 3))
def test_an_epoch_visits_every_example_exactly_once(size, batch_size, epochs):
    order = draw(Plan(epochs=epochs, batch_size=batch_size), size, KEY, PARTS)
    counts = np.bincount(real_rows(order), minlength=size)
    assert (counts == epochs).all()


@given(sizes, widths, st.integers(0, 9))
def test_steps_are_counted_and_never_empty(size, batch_size, steps):
    order = draw(Plan(steps=steps, batch_size=batch_size), size, KEY, PARTS)
    assert len(order.rows) == len(order.key) == steps
    assert (order.weight.sum(-1) > 0).all()


@given(sizes, widths)
def test_filling_has_weight_zero_and_is_the_clients_own_data(size, batch_size):
    plan = Plan(batch_size=batch_size)
    order = draw(plan, size, KEY, PARTS)
    assert order.rows.shape[1] == plan.width(size)
    assert order.rows.min() >= 0
    assert order.rows.max() < size
    assert set(np.unique(order.weight)) <= {0.0, 1.0}


@given(st.integers(2, 40), st.integers(2, 5))
def test_parts_are_disjoint_complete_nearly_equal_and_the_same_in_every_round(size, parts):
    def rows(i, number):
        plan = Plan(part=(i, parts), batch_size=None)
        return sorted(real_rows(draw(plan, size, KEY.fold(number), PARTS)))

    if size < parts:
        assert all(rows(i, 0) == list(range(size)) for i in range(parts))
        return
    walked = [rows(i, 0) for i in range(parts)]
    assert sorted(row for part in walked for row in part) == list(range(size))
    assert max(map(len, walked)) - min(map(len, walked)) <= 1
    assert walked == [rows(i, 1) for i in range(parts)]


@given(sizes, widths, st.integers(1, 4))
def test_the_width_of_a_part_is_known_before_it_is_drawn(size, batch_size, parts):
    for i in range(parts):
        plan = Plan(part=(i, parts), batch_size=batch_size)
        order = draw(plan, size, KEY, PARTS)
        assert order.rows.shape[1] == plan.width(size) <= len(real_rows(order))


def test_the_full_batch_is_one_step_in_the_listed_order():
    order = draw(Plan(batch_size=None, epochs=2), 5, KEY, PARTS)
    assert order.rows.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_epochs_are_shuffled_anew_and_rounds_differ():
    order = draw(Plan(batch_size=4, epochs=2), 20, KEY, PARTS)
    first, second = order.rows[:5].ravel(), order.rows[5:].ravel()
    other = draw(Plan(batch_size=4, epochs=2), 20, KEY.fold("another round"), PARTS)
    assert not np.array_equal(first, second)
    assert not np.array_equal(order.rows, other.rows)


def test_equal_streams_replay_the_same_batches_and_others_do_not():
    same = [draw(Plan(batch_size=4, stream="s"), 20, KEY, PARTS) for _ in range(2)]
    other = draw(Plan(batch_size=4, stream="t"), 20, KEY, PARTS)
    assert np.array_equal(same[0].rows, same[1].rows)
    assert np.array_equal(same[0].key, same[1].key)
    assert not np.array_equal(same[0].rows, other.rows)
    assert not np.array_equal(same[0].key, other.key)


def test_every_step_has_a_dropout_key_of_its_own():
    keys = [draw(Plan(batch_size=2, stream=s), 20, KEY, PARTS).key for s in ("train", "head")]
    assert len({int(key) for walked in keys for key in walked}) == 20


def test_more_steps_go_on_where_fewer_stopped():
    short, long = (draw(Plan(steps=n, batch_size=3), 10, KEY, PARTS) for n in (3, 9))
    assert np.array_equal(short.rows, long.rows[:3])
    assert np.array_equal(short.key, long.key[:3])


@pytest.mark.parametrize("plan", [Plan(steps=0), Plan(epochs=0), Plan(split="val")])
def test_no_work_is_an_order_of_no_steps(plan):
    size = 0 if plan.split == "val" else 7
    order = draw(plan, size, KEY, PARTS)
    assert order.rows.shape == (0, 1)


def test_batches_gather_their_rows():
    x, y = torch.arange(10.0).view(5, 2), torch.arange(5)
    walk = batches(x, y, draw(Plan(batch_size=2), 5, KEY, PARTS), rate=0.5)
    steps = list(walk.steps())
    assert len(steps) == int(walk.active_steps()) == 3
    assert sorted(torch.cat([s.y[s.weight > 0] for s in steps]).tolist()) == [0, 1, 2, 3, 4]
    for step in steps:
        assert torch.equal(step.x[:, 0], 2.0 * step.y)
    assert walk.rate.item() == 0.5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epochs": 1, "steps": 2}, "give epochs= or steps=, not both; got epochs=1 and steps=2"),
        ({"epochs": -1}, "epochs must be 0 or more; got -1"),
        ({"steps": -3}, "steps must be 0 or more; got -3"),
        ({"batch_size": 0}, "batch_size must be 1 or more, or None for the full batch; got 0"),
        ({"split": "test"}, "test data never train, adapt or select"),
        ({"part": (2, 2)}, r"the i-th of k parts, counted from 0; got \(2, 2\)"),
    ],
)
def test_a_plan_that_cannot_be_walked_is_refused(options, sentence):
    with pytest.raises(RequestError, match=sentence):
        Plan(**options)
