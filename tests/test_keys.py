"""Keys: equal names, equal streams; different names, different streams."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from motet import Key
from motet._core.keys import _philox_keys

steps = st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=4))
paths = st.lists(steps, max_size=4).map(tuple)


@given(st.integers(0, 5), paths, st.integers(0, 5), paths)
def test_streams_of_different_names_never_collide(seed, path, other_seed, other_path):
    a, b = Key(seed).fold(*path), Key(other_seed).fold(*other_path)
    assert (a.integer() == b.integer()) == ((seed, path) == (other_seed, other_path))


@given(paths, paths)
def test_folding_in_steps_is_folding_at_once(first, second):
    assert Key(3).fold(*first).fold(*second) == Key(3).fold(*first, *second)


def test_names_are_not_glued_together():
    glued = [Key(0).fold(1, 23), Key(0).fold(12, 3), Key(0).fold("1", "23"), Key(0).fold("123")]
    assert len({key.integer() for key in glued}) == 4


def test_ten_thousand_streams_are_all_different():
    numbers = {
        Key(0).fold("batches", t, f"client{c}").integer() for t in range(100) for c in range(100)
    }
    assert len(numbers) == 10_000


def test_numpy_numbers_and_strings_name_the_same_stream_as_python_ones():
    theirs, ours = Key(0).fold(np.int64(3), np.str_("a")), Key(0).fold(3, "a")
    assert theirs == ours
    assert theirs.integer() == ours.integer()


def test_a_stream_is_the_same_in_another_process():
    code = "from motet._core.keys import Key; print(Key(7).fold('x', 1).integer())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == Key(7).fold("x", 1).integer()


def test_a_key_can_be_opened_twice_and_starts_afresh():
    key = Key(0).fold("noise")
    assert (key.numpy().normal(size=5) == key.numpy().normal(size=5)).all()


def test_integers_respect_their_bits_and_fill_them():
    drawn = [Key(0).fold(i).integer(bits=8) for i in range(2000)]
    assert min(drawn) >= 0
    assert max(drawn) < 256
    assert len(set(drawn)) > 240


@given(st.integers(0, 2**40), paths, st.lists(paths.filter(len), max_size=5))
def test_many_streams_opened_together_are_the_streams_opened_one_by_one(seed, path, names):
    key = Key(seed).fold(*path)
    together = [s.integers(2**63, size=3).tolist() for s in key.numpy_streams(names)]
    assert together == [key.fold(*n).numpy().integers(2**63, size=3).tolist() for n in names]


@given(st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_keys_of_many_generators_are_those_that_numpy_derives_from_each_seed(seeds):
    found = _philox_keys(np.asarray(seeds, np.uint64)).tolist()
    assert found == [np.random.Philox(seed).state["state"]["key"].tolist() for seed in seeds]
