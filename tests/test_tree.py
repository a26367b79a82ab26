"""Trees of named tensors: what goes in comes out, by name."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import assert_close, assert_same

from motet._core import tree
from motet.errors import StructureError


class Pair(NamedTuple):
    first: object
    second: object


names = st.text("ab/%.0", min_size=1, max_size=4)
tensors = st.one_of(
    st.lists(st.floats(-4, 4, width=32), max_size=3).map(torch.tensor),
    st.integers(-9, 9).map(torch.tensor),
)
trees = st.recursive(
    tensors,
    lambda inner: st.one_of(
        st.dictionaries(names, inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


def shifted(value):
    return tree.tree_map(lambda leaf: leaf + 1, value)


@given(trees)
def test_flattening_and_rebuilding_is_the_identity(value):
    named = dict(tree.flatten(value))
    again = tree.unflatten(shifted(value), named)
    assert type(again) is type(value)
    assert_same(value, again)


@given(trees)
def test_every_leaf_has_a_path_of_its_own(value):
    paths = [path for path, _ in tree.flatten(value)]
    assert len(set(paths)) == len(paths) == len(tree.leaves(value))


@given(trees)
def test_stacking_and_taking_rows_is_the_identity(value):
    stacked = tree.stack([value, shifted(value)])
    assert_same(tree.row(stacked, 0), value)
    assert_same(tree.row(stacked, 1), shifted(value))


@given(trees, st.booleans())
def test_where_chooses_a_whole_tree(value, condition):
    chosen = tree.where(torch.tensor(condition), value, shifted(value))
    assert_same(chosen, value if condition else shifted(value))


def test_an_interpolation_ends_at_its_ends():
    a, b = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, -2.0])}
    assert_same(tree.interpolate(a, b, 0.0), a)
    assert_close(tree.interpolate(a, b, 1.0), b)
    assert_close(tree.interpolate(a, b, 0.25), {"w": torch.tensor([1.5, 1.0])})


def test_rows_and_clones_share_no_memory():
    state = {"w": torch.zeros(2, 3)}
    for copied in (tree.row(state, 0), tree.clone(state)):
        copied["w"].add_(1)
    assert state["w"].sum() == 0


def test_leaves_are_matched_by_name_not_by_position():
    a = {"x": torch.tensor(1.0), "y": torch.tensor(2.0)}
    b = {"y": torch.tensor(20.0), "x": torch.tensor(10.0)}
    assert tree.subtract(b, a) == {"y": torch.tensor(18.0), "x": torch.tensor(9.0)}
    assert tree.squared_distance(a, b).item() == 9**2 + 18**2
    assert tree.dot(a, b).item() == 10 + 40


def test_pick_and_drop_part_a_state_and_a_join_restores_it():
    state = {"body.w": torch.ones(1), "head.w": torch.ones(2), "head.b": torch.ones(3)}
    head, body = tree.pick(state, {"head.w", "head.b"}), tree.drop(state, {"head.w", "head.b"})
    assert list(head) == ["head.w", "head.b"]
    assert list(body) == ["body.w"]
    assert_same(body | head, state)


def test_slots_keep_two_models_apart():
    local, shared = {"w": torch.ones(1)}, {"w": torch.zeros(1)}
    both = tree.prefixed("local", local) | tree.prefixed("locally", shared)
    assert_same(tree.slot("local", both), local)
    assert_same(tree.slot("locally", both), shared)


def test_slashes_in_names_stay_one_step_and_read_well():
    ((path, _),) = tree.flatten({"lear/fool": {"w": torch.zeros(1)}})
    assert path == "lear%2Ffool/w"
    assert tree.readable(path) == "lear/fool/w"


def test_distances_skip_counters_and_work_on_nothing():
    a = {"w": torch.tensor([3.0]), "count": torch.tensor(5)}
    b = {"w": torch.tensor([1.0]), "count": torch.tensor(0)}
    assert tree.squared_distance(a, b).item() == 4
    assert tree.squared_distance({}, {}).item() == 0
    assert tree.dot({}, {}).item() == 0


def test_bytes_are_those_of_the_tensors():
    value = {"a": torch.zeros(3), "b": (torch.zeros(2, dtype=torch.int64), torch.zeros(()))}
    assert tree.count_bytes(value) == 12 + 16 + 4
    assert tree.count_bytes({}) == 0


def test_trees_of_different_names_are_refused_with_the_names():
    with pytest.raises(StructureError, match=r"missing \['b'\], unexpected \['c'\]"):
        tree.subtract({"b": torch.ones(1)}, {"c": torch.ones(1)})


def test_a_plain_number_in_a_tree_is_refused_with_a_way_out():
    with pytest.raises(StructureError, match=r"holds float; .*torch\.tensor"):
        tree.clone({"lam": 0.5})


def test_numbers_are_finite_even_where_their_sum_is_not():
    assert tree.is_finite({"w": torch.full((4,), 3e38), "steps": torch.tensor(7)})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_none_is_found(bad):
    assert not tree.is_finite({"a": torch.ones(3), "b": torch.tensor([1.0, bad, 2.0])})
    assert not tree.is_finite({"b": torch.tensor([float("inf"), -float("inf")])})
