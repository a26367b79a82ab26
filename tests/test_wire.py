"""Trees as bytes: they come back bit for bit, and what does not fit is refused."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from motet._core import tree, wire
from motet.errors import WireError


class Pair(NamedTuple):
    weight: torch.Tensor
    inner: dict[str, torch.Tensor]


def example():
    return Pair(
        weight=torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
        inner={"steps": torch.tensor(7), "lear/fool": torch.zeros(0, 4), "on": torch.tensor(True)},
    )


def same(a, b):
    named_a, named_b = dict(tree.flatten(a)), dict(tree.flatten(b))
    return named_a.keys() == named_b.keys() and all(
        torch.equal(named_a[k], named_b[k]) and named_a[k].dtype == named_b[k].dtype
        for k in named_a
    )


@pytest.mark.parametrize("trip", ["bytes", "arrays"])
def test_a_tree_survives_the_trip_with_structure_and_types(trip):
    value, template = example(), tree.zeros_like(example())
    if trip == "bytes":
        back = wire.from_bytes(template, wire.to_bytes(value))
    else:
        back = wire.from_arrays(template, wire.to_arrays(value))
    assert isinstance(back, Pair)
    assert same(back, value)


def test_an_empty_tree_survives_the_trip():
    assert wire.from_bytes({}, wire.to_bytes({})) == {}


def test_names_that_share_memory_and_views_with_gaps_can_be_sent():
    whole = torch.arange(12.0).view(3, 4)
    value = {"a": whole, "b": whole, "column": whole[:, 1], "wide": torch.ones(1).expand(5)}
    assert same(wire.from_bytes(tree.zeros_like(value), wire.to_bytes(value)), value)


def test_bfloat16_travels_as_bytes_and_says_why_not_as_an_array():
    value = {"w": torch.ones(2, dtype=torch.bfloat16)}
    assert same(wire.from_bytes(value, wire.to_bytes(value)), value)
    with pytest.raises(WireError, match="bfloat16"):
        wire.to_arrays(value)


def test_arrays_share_no_memory_with_the_tree():
    value = {"w": torch.zeros(2)}
    wire.to_arrays(value)["w"][:] = 5
    assert value["w"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("came", "what"),
    [
        ({"a": torch.zeros(2), "c": torch.zeros(1)}, "unexpected ['c']"),
        ({"a": torch.zeros(2)}, "missing ['b']"),
        ({"a": torch.zeros(3), "b": torch.zeros(())}, "shape (3,)"),
        ({"a": torch.zeros(2).double(), "b": torch.zeros(())}, "torch.float64"),
    ],
)
def test_what_does_not_fit_the_template_is_refused_by_name(came, what):
    template = {"a": torch.ones(2), "b": torch.ones(())}
    with pytest.raises(WireError) as refused:
        wire.from_bytes(template, wire.to_bytes(came))
    assert what in str(refused.value)


@pytest.mark.parametrize("keep", [0, 4, 8, 20, -1])
def test_bytes_that_were_cut_short_are_refused(keep):
    written = wire.to_bytes(example())
    with pytest.raises(WireError, match="not a complete safetensors file"):
        wire.from_bytes(example(), written[:keep])


def test_bytes_of_something_else_are_refused():
    with pytest.raises(WireError):
        wire.from_bytes(example(), b"\x80\x04\x95 a pickle, perhaps" * 10)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        arrays.arrays(
            st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]),
            arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        ),
        max_size=4,
    )
)
def test_any_named_arrays_come_back_bit_for_bit(named):
    value = {name: torch.from_numpy(np.array(array)) for name, array in named.items()}
    back = wire.to_arrays(wire.from_bytes(tree.zeros_like(value), wire.to_bytes(value)))
    assert {k: v.tobytes() for k, v in back.items()} == {
        k: v.tobytes() for k, v in wire.to_arrays(value).items()
    }
