"""What the disk store promises beyond the others: durable, sparse, checked, readable meanwhile."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import safetensors.torch
import torch
from kept import state

import motet
from motet._core import tree
from motet._engine.federation import start
from motet._engine.stores.disk import DiskStore
from motet.errors import StateError, StructureError, WireError
from motet.testing import ragged

CLIENTS = [f"c{number:02d}" for number in range(20)]


def opened(path, **how):
    store = DiskStore(path, **how)
    store.expect(lambda: state(0))
    return store


@pytest.fixture
def file(tmp_path):
    """A store of 20 clients, closed."""
    store = opened(tmp_path / "states.sqlite")
    store.put_rows(CLIENTS, tree.stack([state(number) for number in range(20)]))
    store.commit()
    store.close()
    return tmp_path / "states.sqlite"


def rewrite(file, statement):
    with closing(sqlite3.connect(file)) as database, database:
        assert database.execute(statement).rowcount == 1


def test_no_file_is_made_before_anything_is_put(tmp_path):
    store = opened(tmp_path / "deep" / "states.sqlite")
    assert "a" not in store
    store.rows(["a"], lambda client: state(1))
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_committed_is_there_again_and_what_is_not_is_gone(file):
    store = opened(file)
    store.put("c00", state(77))
    store.put("new", state(78))
    assert store.get("c00").steps == state(77).steps  # visible here at once
    store.close()
    store = opened(file)
    assert list(store) == CLIENTS
    assert store.get("c00").steps == state(0).steps
    store.verify()
    store.close()


def test_another_process_reads_the_last_commit_while_this_one_writes(file):
    writer = opened(file)
    writer.put("c00", state(77))
    look = (
        "import sys, torch; sys.path.insert(0, sys.argv[2]);"
        "from kept import state; from motet._engine.stores.disk import DiskStore;"
        "store = DiskStore(sys.argv[1], read_only=True); store.expect(lambda: state(0));"
        "print(len(store), int(store.get('c00').steps - state(0).steps))"
    )
    command = [sys.executable, "-c", look, str(file), str(Path(__file__).parent)]
    assert subprocess.check_output(command, text=True).split() == ["20", "0"]
    writer.commit()
    assert subprocess.check_output(command, text=True).split() == ["20", "77"]
    writer.close()


def test_a_second_writer_is_refused_in_a_sentence(file):
    writer, second = opened(file), opened(file)
    writer.put("c00", state(1))
    second.database.rows((int,), "PRAGMA busy_timeout = 1")
    with pytest.raises(StateError, match="another process is writing"):
        second.put("c01", state(2))
    writer.close()
    second.close()


@pytest.mark.parametrize("place", [9, 400, -1], ids=["header", "middle", "end"])
def test_a_flipped_bit_costs_one_client_and_is_noted(file, place):
    with closing(sqlite3.connect(file)) as database, database:
        (found,) = database.execute("SELECT state FROM states WHERE slot = 8").fetchone()
        damaged = bytearray(found)
        damaged[place] ^= 16
        database.execute("UPDATE states SET state = ? WHERE slot = 8", (bytes(damaged),))
    store = opened(file)
    stacked = store.rows(CLIENTS[6:9], lambda client: state(55))
    assert (stacked.steps - 2**40).tolist() == [6, 55, 8]
    assert list(store.damaged) == ["c07"]
    assert "checksum" in store.damaged["c07"]
    assert "c07" not in store
    with pytest.raises(KeyError):
        store.get("c07")
    store.put("c07", state(56))  # it starts afresh
    store.commit()
    store.verify()
    assert "c07" in store
    assert len(store) == 20
    store.close()


def test_a_reader_notes_damage_and_changes_nothing(file):
    rewrite(file, "UPDATE states SET state = zeroblob(length(state)) WHERE slot = 8")
    before = file.read_bytes()
    store = opened(file, read_only=True)
    assert "c07" not in store
    assert list(store.damaged) == ["c07"]
    assert len(store) == 20
    store.close()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE clients SET client = x'7858' WHERE client = x'633037'",  # another id
        "DELETE FROM clients WHERE client = x'633037'",
        "UPDATE clients SET version = 7 WHERE client = x'633037'",
        "UPDATE seal SET text = replace(text, '\"clients\": 20', '\"clients\": 19')",
        "UPDATE seal SET text = 'x'",
        "UPDATE clients SET version = 'x' WHERE client = x'633037'",
    ],
)
def test_a_client_cannot_vanish_unnoticed(file, change):
    rewrite(file, change)
    store = opened(file)
    with pytest.raises(WireError, match="is damaged"):
        store.verify()
    store.close()


@pytest.mark.parametrize("columns", [["slot"], ["slot", "checksum"]], ids="+".join)
def test_states_that_changed_hands_are_noticed(file, columns):
    """Neither client may go on with the other's state, not even if its checksum came along."""
    with closing(sqlite3.connect(file)) as database, database:
        query = "SELECT client, slot, checksum FROM clients WHERE client IN (x'633037', x'633038')"
        (a, *of_a), (b, *of_b) = database.execute(query).fetchall()
        for client, (slot, checksum) in ((a, of_b), (b, of_a)):
            database.execute("UPDATE clients SET slot = ? WHERE client = ?", (slot, client))
            if "checksum" in columns:
                database.execute(
                    "UPDATE clients SET checksum = ? WHERE client = ?", (checksum, client)
                )
    store = opened(file)
    assert "c07" not in store
    assert "c08" not in store
    assert list(store.damaged) == ["c07", "c08"]
    store.close()


def test_an_old_state_in_the_place_of_a_new_one_is_noticed(file):
    """Not even if its checksum came along: a restored backup of one client is no state of it."""
    query = "SELECT state, checksum FROM clients JOIN states USING (slot) WHERE slot = 8"
    with closing(sqlite3.connect(file)) as database:
        old, checksum = database.execute(query).fetchone()
    store = opened(file)
    store.put("c07", state(77))
    store.commit()
    store.close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE states SET state = ? WHERE slot = 8", (old,))
        database.execute("UPDATE clients SET checksum = ? WHERE slot = 8", (checksum,))
    store = opened(file)
    store.verify()
    assert "c07" not in store
    assert "checksum" in store.damaged["c07"]
    store.close()


def test_a_run_does_not_begin_with_what_another_one_has_left(tmp_path):
    world, path = ragged(), tmp_path / "states.sqlite"
    settings = {"rounds": 1, "cohort": 0.5, "backend": "serial"}
    method = motet.FedPer(personal=("head",))
    with closing(DiskStore(path)) as store:
        motet.run(method, world.task, world.data, **settings, store=store)
        with pytest.raises(StateError, match="already holds what"):
            motet.run(method, world.task, world.data, **settings, store=store)
    with closing(DiskStore(path)) as store, pytest.raises(StateError, match="already holds what"):
        list(motet.rounds(method, world.task, world.data, **settings, store=store))


def test_of_two_runs_with_one_file_the_later_is_refused(tmp_path):
    world, path = ragged(), tmp_path / "states.sqlite"
    settings = {"rounds": 2, "cohort": 0.5, "backend": "serial"}
    method = motet.FedPer(personal=("head",))
    stores = [DiskStore(path), DiskStore(path)]
    assert [len(store) for store in stores] == [0, 0]  # both have seen that there is no file
    first, second = (
        start(method, world.task, world.data, **settings, store=store) for store in stores
    )
    first.advance()
    stores[0].commit()
    with pytest.raises(StateError, match="another process has written"):
        second.advance()
    first.advance()
    stores[0].commit()
    for store in stores:
        store.close()


def test_a_file_that_is_no_database_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "states.sqlite").write_text("hello " * 1000)
    with pytest.raises(WireError, match=r"states\.sqlite is damaged: file is not a database"):
        list(opened(tmp_path / "states.sqlite"))


def test_a_state_is_a_safetensors_file_that_anybody_can_read(file):
    with closing(sqlite3.connect(file)) as database:
        (found,) = database.execute("SELECT state FROM states WHERE slot = 4").fetchone()
    named = safetensors.torch.load(found)
    assert torch.equal(named["model/head%2Fweight"], state(3).model["head/weight"])
    assert named["steps"] == state(3).steps


def test_a_state_written_by_another_program_is_read_too(file):
    with closing(sqlite3.connect(file)) as database, database:
        (found,) = database.execute("SELECT state FROM states WHERE slot = 4").fetchone()
    store = opened(file)
    other = safetensors.torch.save(safetensors.torch.load(found))  # its own order of tensors
    assert other != found
    read = store._layout().read([other, found], lambda row: None)
    assert (read.steps - 2**40).tolist() == [3, 3]
    store.close()


def test_a_tree_of_another_kind_is_refused(file):
    store = opened(file)
    with pytest.raises(StructureError, match=r"should be torch\.int64 .* torch\.float32"):
        store.put("c00", state(1)._replace(steps=torch.tensor(1.0)))
    with pytest.raises(StructureError, match="complex64, which a store does not keep"):
        DiskStore(file.with_name("other.sqlite")).put("a", {"z": torch.zeros(1).to(torch.cfloat)})
    store.close()


def test_a_model_of_another_shape_cannot_be_read_as_this_one(file):
    store = DiskStore(file)
    store.expect(lambda: state(0)._replace(flags=(torch.zeros(3).bool(), torch.tensor(0).byte())))
    with pytest.raises(WireError, match="flags/0 should be"):
        store.get("c00")
    store.close()


def test_a_client_never_seen_takes_no_room(file):
    store = opened(file)
    before = file.stat().st_size
    assert not any(str(number) in store for number in range(1000))
    store.commit()
    store.close()
    assert file.stat().st_size == before


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_a_run_with_its_states_on_disk_is_the_run_with_them_in_memory(tmp_path, backend):
    world = ragged()
    method = motet.FedPer(personal=("head",))
    settings = {"rounds": 3, "cohort": 0.5, "backend": backend}
    store = DiskStore(tmp_path / "states.sqlite")
    kept = motet.run(method, world.task, world.data, **settings)
    on_disk = motet.run(method, world.task, world.data, **settings, store=store)
    assert list(store) == list(kept.setting.store)
    assert on_disk.evaluate().rows == kept.evaluate().rows
    for client in world.data.clients:
        pairs = zip(
            tree.leaves(kept.clients[client]), tree.leaves(on_disk.clients[client]), strict=True
        )
        assert all(torch.equal(a, b) for a, b in pairs)
    store.close()
