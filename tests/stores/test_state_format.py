"""The one format of private states: what is written is read, and damage is found."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from kept import state as everything

from motet._core import tree
from motet._engine.stores.disk import DiskStore
from motet._engine.stores.state_format import Layout, Sealed, from_file, to_file
from motet.deploy._runtime.private import Kept, PrivateFile
from motet.errors import StateError, WireError
from motet.testing._comparing import require_same

STATE = {"head": torch.arange(6.0).reshape(2, 3), "steps": torch.tensor(3), "none": torch.empty(0)}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def sealed(client="a", version=4):
    return Sealed(client, version, Layout.of(STATE).write_one(STATE))


@given(client=NAMES, version=st.integers(0, 2**40), about=st.dictionaries(NAMES, NAMES, max_size=2))
def test_a_file_gives_back_state_client_version_and_remarks(client, version, about):
    about = {f"remark {name}": text for name, text in about.items()}
    written = to_file(sealed(client, version), about)
    found, remarks = from_file(written)
    assert found == sealed(client, version)
    assert about.items() <= remarks.items()
    require_same(STATE, Layout.of(STATE).read_one(found.state), "the state")


def test_any_safetensors_reader_reads_a_file():
    assert safetensors.torch.load(to_file(sealed(), {})).keys() == STATE.keys()


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_never_changes_a_state_unnoticed(place, bit):
    written = bytearray(to_file(sealed(), {}))
    written[place % len(written)] ^= 1 << bit
    try:
        found, _ = from_file(bytes(written))
    except (WireError, StateError):
        return
    assert found == sealed()


@given(length=st.integers(min_value=0))
def test_a_file_that_was_cut_short_is_refused(length):
    written = to_file(sealed(), {})
    with pytest.raises(WireError):
        from_file(written[: length % len(written)])


def test_a_store_and_a_site_write_the_same_bytes_of_a_state(tmp_path):
    state = everything(1)
    store = DiskStore(tmp_path / "state.sqlite")
    both = {"before": state, "after": state}
    store.put("few", both)
    (row,) = store.database.rows((bytes,), "SELECT state FROM states")
    store.close()
    file = PrivateFile.of(tmp_path, "stage", "few", "agreed")
    file.write(Kept(0, state, state))
    assert from_file(file.path.read_bytes())[0].state == row[0]


def test_a_file_without_a_format_is_refused_with_the_way_out(tmp_path):
    file = PrivateFile.of(tmp_path, "stage", "few", "agreed")
    file.path.parent.mkdir()
    named = {name: leaf.clone() for name, leaf in tree.flatten({"before": STATE, "after": STATE})}
    about = {"agreed": "agreed", "round": "0"}
    file.path.write_bytes(safetensors.torch.save(named, metadata=about))
    with pytest.raises(StateError, match=r"few.safetensors cannot be used: it has format 1"):
        file.read(STATE)


def test_the_file_of_another_client_is_refused(tmp_path):
    file = PrivateFile.of(tmp_path, "stage", "few", "agreed")
    file.write(Kept(0, STATE, STATE))
    other = PrivateFile.of(tmp_path, "stage", "many", "agreed")
    file.path.rename(other.path)
    with pytest.raises(StateError, match='holds the state of "few", expected "many"'):
        other.read(STATE)
