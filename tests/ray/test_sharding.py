"""Rounds are agreed on by all shards, whoever dies when: in one process, without Ray."""

from __future__ import annotations

import pytest
import torch
from diverging import one_diverges
from rehearsed import ROUNDS, finished, require_same_runs, sharded

from motet import Ditto, FedAvg, FedFomo, FedPer
from motet._engine.backends.ray_store import ATTEMPTS
from motet._engine.backends.ray_worker import STATE, Mark
from motet._engine.faults import Faults
from motet._runs.checkpoint import Checkpoint
from motet.errors import StateError
from motet.method import PerClient
from motet.methods import _catalog as catalog
from motet.testing._comparing import require_close, require_same

METHODS = (
    "fedavg", "fedper", "fedrep", "ditto", "fedalt", "fedfomo", "knn-per", "flow", "apfl", "ifca",
    "scaffold",
)  # fmt: skip


def rounds_of(run, rounds=ROUNDS):
    for _ in range(rounds):
        run.advance()
    return run


def home(run, client):
    (shard,) = run.setting.store.shards.of([client])
    return shard


def test_clients_are_dealt_out_evenly_whatever_order_they_come_in(tmp_path):
    run, _ = sharded(FedAvg(), tmp_path, size=3)
    clients = run.setting.federation.clients
    groups = run.setting.store.shards.of(clients)
    assert groups == run.setting.store.shards.of(reversed(clients))
    assert [len(group) for group in groups.values()] == [2, 2, 2]
    assert all(home(run, client) == shard for shard, cs in groups.items() for client in cs)


@pytest.mark.parametrize(
    ("name", "size"), [("fedper", 1), ("fedper", 3), *((name, 2) for name in METHODS)]
)
def test_any_number_of_shards_agrees_with_one_process(name, size, tmp_path):
    method = catalog.method_class(name)()
    run = rounds_of(sharded(method, tmp_path, size=size, backend="serial")[0])
    oracle = finished(method, backend="serial")
    require_close(oracle.server, run.server, "the server", 1e-6)
    for client in oracle.clients:
        require_close(oracle.clients[client], run.clients[client], client, 1e-6)


def test_faults_hit_the_same_clients_as_in_one_process(tmp_path):
    faults = Faults(lost=0.3, slow=0.3, corrupt=0.2)
    run, _ = sharded(FedAvg(), tmp_path, backend="serial", faults=faults)
    oracle = finished(FedAvg(), backend="serial", faults=faults, rounds=0)
    for _ in range(ROUNDS):
        here, there = run.advance(), oracle.advance()
        assert (here.lost, here.rejected) == (there.lost, there.rejected)
    require_close(oracle.server, run.server, "the server", 1e-6)


@pytest.mark.parametrize("call", ["train", "commit", "read", "predict"])
@pytest.mark.parametrize("method", [Ditto(), FedFomo()], ids=lambda m: m.name)
def test_a_process_that_dies_before_any_call_changes_nothing(method, call, tmp_path):
    calm = rounds_of(sharded(method, tmp_path / "calm")[0])
    run, crew = sharded(method, tmp_path / "dying", deaths=[(call, 0), (call, 1)])
    rounds_of(run)
    require_same_runs(calm, run)
    assert calm.evaluate() == run.evaluate()
    assert not crew.deaths


def test_a_shard_that_dies_between_work_and_commit_works_again(tmp_path):
    run, crew = sharded(Ditto(), tmp_path, deaths=[("commit", 1)])
    run.advance()
    assert [name for name in crew.calls if name in ("train", "commit")] == [
        "train", "commit", "train", "commit",
    ]  # fmt: skip


def test_a_shard_that_always_dies_before_its_commit_ends_the_run_with_a_sentence(tmp_path):
    run, _ = sharded(Ditto(), tmp_path, deaths=[("commit", 1)] * ATTEMPTS)
    with pytest.raises(StateError, match=r"shards \[1\] lost their process 5 times"):
        run.advance()


def test_work_that_is_repeated_starts_from_the_committed_state(tmp_path):
    run, crew = sharded(FedPer(), tmp_path)  # its uploads depend on what clients keep
    run.advance()
    info = run.setting.info(1, ("many",))
    down = run.setting.method.broadcast(run.server, info)
    shard = crew.shards[home(run, "many")]
    mark = shard._found()
    first, again = (shard.train(mark, down, 1, ["many"]) for _ in range(2))
    require_same(first.partial.value, again.partial.value, "the upload")
    assert shard.commit(mark)
    assert shard.commit(mark)  # a commit that is asked for twice is one commit
    assert shard._found().commits == mark.commits + 1


def test_a_round_that_fails_in_one_shard_leaves_no_trace_in_the_others(tmp_path, monkeypatch):
    calm = rounds_of(sharded(Ditto(), tmp_path / "calm")[0])
    run, crew = sharded(Ditto(), tmp_path / "failing")
    run.advance()
    before = dict(run.clients)
    with monkeypatch.context() as patched:
        patched.setattr(crew.shards[1], "train", lambda *_: {}["a mistake"])
        with pytest.raises(KeyError, match="a mistake"):
            run.advance()
    require_same(before, dict(run.clients), "what clients keep")
    rounds_of(run, 2)
    require_same_runs(calm, run)


def test_a_shard_without_its_files_refuses_to_go_on(tmp_path):
    run, crew = sharded(Ditto(), tmp_path)
    run.advance()
    crew.shards[0].store.close()
    for path in (tmp_path / "shard-0").glob(f"{STATE}*"):
        path.unlink()
    with pytest.raises(
        StateError, match="holds nothing of any run: the process was restarted on a"
    ):
        run.advance()


def test_a_folder_that_another_run_has_taken_over_is_refused(tmp_path):
    first, _ = sharded(Ditto(), tmp_path, run="first run")
    first.advance()
    second, crew = sharded(Ditto(), tmp_path, run="second run")
    rounds_of(second, 1)
    with pytest.raises(StateError, match="should hold commit 2 of run first ru"):
        crew.shards[0].read(Mark("first run", 2), ["many"])


def test_a_damaged_state_is_refused_and_not_begun_afresh(tmp_path):
    run, crew = sharded(Ditto(), tmp_path)
    run.advance()
    shard = crew.shards[home(run, "many")]
    shard.store.database.write("UPDATE clients SET checksum = checksum + 1")
    shard.store.database.commit()
    with pytest.raises(StateError, match=r"cannot be read: .* Resume from the last checkpoint"):
        run.advance()


def test_values_for_single_clients_reach_their_shards(tmp_path):
    settings = {"init_clients": {"few": {"head.bias": [1.0, 2.0, 3.0]}}}
    run, _ = sharded(FedPer(), tmp_path, **settings)
    assert run.clients["few"]["head.bias"].tolist() == [1.0, 2.0, 3.0]
    assert list(run.setting.store) == ["few"]
    rounds_of(run)
    require_close(finished(FedPer(), **settings).server, run.server, "the server", 1e-6)


def test_a_checkpoint_of_the_driver_puts_everything_back_into_new_shards(tmp_path):
    calm = rounds_of(sharded(FedFomo(), tmp_path / "calm")[0])
    run, _ = sharded(FedFomo(), tmp_path / "old")
    run.advance()
    saving = Checkpoint(run, tmp_path / "saved")
    saving.save()
    assert not run.setting.store.changed
    saving.close()
    run.advance()  # and is lost
    again, _ = sharded(FedFomo(), tmp_path / "old", run="another run")
    reading = Checkpoint(again, tmp_path / "saved")
    reading.restore()
    reading.close()
    assert again.rounds_done == 1
    rounds_of(again, 2)
    require_same_runs(calm, again)


def test_what_goes_down_is_shared_once_or_once_per_shard(tmp_path):
    run, crew = sharded(FedAvg(), tmp_path)
    shared = []
    crew.share = lambda value: shared.append(value) or value
    run.advance()
    assert len(shared) == 1
    wide = torch.arange(20.0).reshape(2, 10)
    banks = run.backend._downs(
        PerClient({"many": wide[0], "few": wide[1]}), {0: ["many"], 1: ["few"]}
    )
    assert len(shared) == 3
    assert banks[0].keys() == {"many"}
    assert banks[0]["many"].untyped_storage().nbytes() == 40  # a row travels without its stack


@pytest.mark.parametrize("method", [Ditto, FedPer])
def test_a_client_that_diverges_keeps_the_same_state_as_in_one_process(method, tmp_path):
    settings = {"world": one_diverges(), "backend": "serial"}
    run, _ = sharded(method(batch_size=4), tmp_path, **settings)
    oracle = finished(method(batch_size=4), rounds=0, **settings)
    for _ in range(ROUNDS):
        here, there = run.advance(), oracle.advance()
        assert here.diverged == there.diverged
        assert (set(here.diverged), here.rejected) == ({"c2"}, there.rejected)
    require_close(oracle.server, run.server, "the server", 1e-6)
    for client in oracle.clients:
        require_close(oracle.clients[client], run.clients[client], client, 1e-6)
