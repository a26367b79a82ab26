"""Messages from anybody: a tree like the template comes out, or an error; no memory goes."""

import io
import json
import resource
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import NUMBERS, TEXTS, spoilt_bytes, spoilt_tree

from motet._core import tree, wire
from motet.deploy._runtime.parcels import read_npy, scalar, unpack
from motet.errors import WireError

TEMPLATE = {"w": torch.zeros(2, 3), "steps": torch.zeros((), dtype=torch.int64)}
WRITTEN = wire.to_bytes(TEMPLATE)
ROOM = 2_000_000  # bytes that refusing a message may take
PROMISES = 10**12  # elements that its header promises


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def safetensors(header, body=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def read(written):
    """Read a message; what is no error of ours is a failure, what comes out fits the template."""
    try:
        value = wire.from_bytes(TEMPLATE, written)
    except WireError:
        return
    for (_, came), (_, like) in zip(tree.flatten(value), tree.flatten(TEMPLATE), strict=True):
        assert (came.shape, came.dtype) == (like.shape, like.dtype)


@settings(max_examples=300)
@given(st.one_of(spoilt_bytes(WRITTEN), st.binary(max_size=100)))
def test_bytes_of_any_kind_are_a_fitting_tree_or_an_error_of_ours(written):
    read(written)


HEADER = json.loads(WRITTEN[8 : 8 + struct.unpack("<Q", WRITTEN[:8])[0]])


@settings(max_examples=200)
@given(spoilt_tree(HEADER))
def test_so_are_headers_with_values_of_any_kind(header):
    read(safetensors(header, WRITTEN[-32:]))


@settings(max_examples=200)
@given(st.one_of(spoilt_bytes(as_npy(np.zeros((2, 3), np.float32))), st.binary(max_size=100)))
def test_arrays_of_any_bytes_fit_or_are_refused(written):
    try:
        array = read_npy("w", written)
        unpack({"w": TEMPLATE["w"]}, {"w": array})
    except WireError:
        return
    assert array.nbytes <= len(written)


@settings(max_examples=100)
@given(st.sampled_from((*NUMBERS, *TEXTS, 0.5, True, None, b"x", [])))
def test_an_entry_of_a_header_has_the_kind_that_is_asked_for(value):
    for kind in (bool, int, float, str):
        try:
            assert type(scalar({"n": value}, "n", kind)) is kind
        except WireError:
            assert type(value) is not kind


def promising(written):
    """A header that promises a trillion elements, and a few bytes."""
    return {
        "safetensors": lambda: wire.from_bytes(TEMPLATE, written),
        "npy": lambda: unpack({"w": TEMPLATE["w"]}, {"w": read_npy("w", written)}),
    }


LYING_NPY = as_npy(np.zeros(100, np.float32)).replace(b"(100,), ", b"(10**9,)")
BIG_NPY = as_npy(np.zeros((1, 1), np.int8)).replace(
    b"(1, 1), }" + b" " * 24, b"(1000000000000, 1000), }         "
)
LIES = {
    "a trillion elements": (
        "safetensors",
        safetensors(
            {"w": {"dtype": "F32", "shape": [PROMISES], "data_offsets": [0, 4 * PROMISES]}}
        ),
    ),
    "more than there are numbers": (
        "safetensors",
        safetensors(
            {"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, bytes(8)
        ),
    ),
    "a header without an end": ("safetensors", struct.pack("<Q", 2**63) + b"{"),
    "a trillion in an array": ("npy", BIG_NPY),
    "a calculation": ("npy", LYING_NPY),
    "an object": ("npy", as_npy(np.zeros(1, np.float32)).replace(b"'<f4'", b"'|O' ")),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_header_promises_is_not_believed(lie):
    form, written = LIES[lie]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            promising(written)[form]()
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak)
    assert grown < 10 * ROOM  # also what is not Python's


@pytest.mark.parametrize("kind", ["f8", ">f4", "f2", "i4", "u1", "c8", "M8[s]", "S4", "U4", "V8"])
def test_arrays_of_another_kind_are_refused(kind):
    with pytest.raises(WireError):
        unpack({"w": torch.zeros(2)}, {"w": read_npy("w", as_npy(np.zeros(2, kind)))})
