"""What every store does, wherever it keeps the states."""

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from kept import state

from motet._core import tree
from motet._engine.stores.disk import DiskStore
from motet._engine.stores.memory import MemoryStore

IDS = [
    "a",
    "lear/fool",
    "%2F",
    "",
    "Zürich",
    "病院 7",
    "a\0b",
    "\ud800",
    "it's; DROP TABLE clients",
]

EVERYBODY = ["a", "b/c", "d", "e"]


def same(a, b):
    pairs = zip(tree.flatten(a), tree.flatten(b), strict=True)
    return all(x == y and s.dtype == t.dtype and torch.equal(s, t) for (x, s), (y, t) in pairs)


def test_what_is_put_comes_back_whatever_it_is_made_of(store):
    store.put("a", state(7))
    assert same(store.get("a"), state(7))
    assert type(store.get("a")) is type(state(7))
    assert store.get("a").flags[0].tolist() == [True, False]


def test_a_client_never_seen_is_not_there(store):
    assert "a" not in store
    assert len(store) == 0
    assert list(store) == []
    with pytest.raises(KeyError):
        store.get("a")


def test_ids_may_be_any_string_and_are_listed_in_order(store):
    for number, client in enumerate(IDS):
        store.put(client, state(number))
    assert list(store) == sorted(IDS)
    assert len(store) == len(IDS)
    for number, client in enumerate(IDS):
        assert client in store
        assert same(store.get(client), state(number))


def test_rows_are_stacked_in_the_order_asked_for_and_fresh_where_nothing_is_kept(store):
    store.put_rows(["b", "a"], tree.stack([state(2), state(1)]))
    made = Counter()

    def fresh(client):
        made[client] += 1
        return state(9)

    stacked = store.rows(["a", "new", "b"], fresh)
    assert same(stacked, tree.stack([state(1), state(9), state(2)]))
    assert made == {"new": 1}
    assert "new" not in store  # reading keeps nothing
    assert same(store.rows(["x", "y"], fresh), tree.stack([state(9), state(9)]))


def test_what_was_put_cannot_be_changed_through_what_it_was_made_from(store):
    mine, stacked = state(1), tree.stack([state(2), state(3)])
    store.put("a", mine)
    store.put_rows(["b", "c"], stacked)
    mine.model["head/weight"].zero_()
    stacked.model["head/weight"].zero_()
    for client, value in [("a", 1), ("b", 2), ("c", 3)]:
        assert same(store.get(client), state(value))


def test_a_row_taken_out_is_apart_from_the_store(store):
    store.put("a", state(1))
    store.rows(["a"], state).model["head/weight"].zero_()
    assert same(store.get("a"), state(1))


@pytest.mark.parametrize("empty", [{}, (), {"inner": {}}], ids=repr)
def test_a_state_without_tensors_still_says_that_the_client_has_trained(tmp_path, empty):
    for store in (MemoryStore(), DiskStore(tmp_path / "states.sqlite")):
        store.expect(lambda: empty)
        store.put_rows(["a", "b"], empty)
        store.put("c", empty)
        assert list(store) == ["a", "b", "c"]
        assert store.get("a") == empty
        assert store.rows(["a", "new"], lambda client: empty) == empty
        store.close()


def test_threads_may_put_and_get_side_by_side(store):
    def work(number):
        client = str(number % 7)
        store.put_rows([client, f"{client}!"], tree.stack([state(number % 7)] * 2))
        assert same(store.get(client), state(number % 7))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(56)))
    store.commit()
    assert len(store) == 14


def test_nothing_is_damaged_that_was_not_damaged(store):
    store.put("a", state(1))
    assert "a" in store
    assert not store.damaged


class AgainstADictionary(RuleBasedStateMachine):
    """Any sequence of calls leaves a store as it would leave a dictionary."""

    clients = st.sampled_from(EVERYBODY)
    values = st.integers(0, 99)

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model, self.committed = {}, {}
        self.open()

    def open(self):
        self.stores = [MemoryStore(), DiskStore(Path(self.folder.name) / "states.sqlite")]
        for store in self.stores:
            store.expect(lambda: state(0))

    @rule(client=clients, value=values)
    def put(self, client, value):
        self.model[client] = value
        for store in self.stores:
            store.put(client, state(value))

    @rule(clients=st.lists(clients, min_size=1, unique=True), value=values)
    def put_rows(self, clients, value):
        new = {client: value + place for place, client in enumerate(clients)}
        self.model |= new
        for store in self.stores:
            store.put_rows(clients, tree.stack([state(v) for v in new.values()]))

    @rule()
    def commit(self):
        self.committed = dict(self.model)
        for store in self.stores:
            store.commit()

    @rule()
    def crash(self):
        self.stores[1].close()
        self.model = dict(self.committed)
        self.open()
        for client, value in self.committed.items():  # a memory store is filled by a checkpoint
            self.stores[0].put(client, state(value))
        self.stores[1].verify()

    @invariant()
    def agree(self):
        for store in self.stores:
            assert list(store) == sorted(self.model)
            expected = [state(self.model.get(client, 100)) for client in ("a", "b/c", "d", "e")]
            assert same(
                store.rows(["a", "b/c", "d", "e"], lambda _: state(100)), tree.stack(expected)
            )

    def teardown(self):
        self.stores[1].close()
        self.folder.cleanup()


def test_any_sequence_of_calls_leaves_a_store_as_it_leaves_a_dictionary():
    run_state_machine_as_test(
        AgainstADictionary,
        settings=settings(
            max_examples=25,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
