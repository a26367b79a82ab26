"""Ways to spoil a file: bytes, and values of the wrong kind anywhere in a tree of JSON or TOML."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

# Whole numbers that are small, or that nobody can mean: those between would be run.
NUMBERS = (-(10**18), -1, 0, 1, 2, 10**10, 2**63, 10**18, 10**30)
FLOATS = (0.0, -1.0, 0.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "none",
    "../../x",
    "/tmp/x",
    "os:system",
    "x" * 5000,
    "</script><script>alert(1)</script>",
    "\u202egnp.exe",
    "=1+1",
    "\U0001f600",
)
VALUES = st.sampled_from(
    (*NUMBERS, *FLOATS, *TEXTS, True, [], {}, [[]], ["x"], [10**18], {"kind": "sgd"}, {"x": {}})
).map(copy.deepcopy)  # a tree never shares them


@st.composite
def spoilt_bytes(draw: st.DrawFn, contents: bytes) -> bytes:
    """Flip, insert, delete or repeat a few bytes, or cut the rest off."""
    spoilt = bytearray(contents)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(spoilt)))
        end = min(len(spoilt), place + draw(st.integers(1, 20)))
        how = draw(st.sampled_from(("flip", "insert", "delete", "repeat", "cut")))
        if how == "flip" and place < len(spoilt):
            spoilt[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "insert":
            spoilt[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif how == "delete":
            del spoilt[place:end]
        elif how == "repeat":
            spoilt[place:place] = spoilt[place:end]
        elif how == "cut":
            del spoilt[place:]
    return bytes(spoilt)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree of tables and lists; of a long list only the first two."""
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value[:2]) if isinstance(value, list) else inside
    for key, below in inside:
        yield (*path, key)
        yield from places(below, (*path, key))


@st.composite
def spoilt_tree(draw: st.DrawFn, value: Any) -> Any:
    """Replace, remove or add one to three values somewhere in a tree."""
    spoilt = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        known = list(places(spoilt))
        if not known:
            break
        *path, last = draw(st.sampled_from(known))
        below = spoilt
        for key in path:
            below = below[key]
        how = draw(st.sampled_from(("replace", "replace", "remove", "add")))
        if how == "remove":
            del below[last]
        elif how == "add" and isinstance(below, dict):
            below[draw(st.sampled_from(TEXTS))] = draw(VALUES)
        else:
            below[last] = draw(VALUES)
    return spoilt
