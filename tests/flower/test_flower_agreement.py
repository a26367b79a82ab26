"""Over Flower's messages every method ends where it ends in one process."""

from __future__ import annotations

import json

import pytest
from diverging import one_diverges
from staging import Stage
from torch import nn

from motet import Task
from motet._core import tree
from motet._engine.records import read_scores
from motet.errors import CapabilityError
from motet.method import PerClient
from motet.methods import _catalog as catalog
from motet.optim import Adam
from motet.testing import World, batch_norm, ragged
from motet.testing._comparing import require_close
from motet.testing._worlds import CLASSES, FEATURES, ragged_data

TELLING = {  # different downloads, state of every kind, single uploads, peeking, extra arrays
    "fedavg", "fedper", "fedrep", "ditto", "fedalt", "fedfomo", "knn-per", "flow", "apfl", "ifca",
    "scaffold", "cfl",
}  # fmt: skip
METHODS = [
    pytest.param(name, marks=() if name in TELLING else pytest.mark.slow)
    for name in catalog.method_names()
    if name != "fedavg-shared"
]


def world_for(name: str) -> World:
    if name == "mocha":  # its solver is for one linear layer
        return World("linear", Task(lambda: nn.Linear(FEATURES, CLASSES)), ragged_data())
    return batch_norm() if name == "fedbn" else ragged()


def require_agreement(stage: Stage) -> None:
    served, oracle = stage.play(), stage.oracle()
    require_close(oracle.server, served.server, "the server's state", 1e-5)
    for client in stage.world.data.clients:
        require_close(oracle.clients[client], stage.kept(client), f"what {client} keeps", 1e-5)
    expected = {row.client: row for row in oracle.evaluate("test").rows}
    came = {
        s.client: s for s in read_scores(stage.folder / "out/clients.parquet") if s.split == "test"
    }
    assert came.keys() == expected.keys()
    for client, row in expected.items():
        assert (came[client].value, came[client].loss) == pytest.approx(
            (row.value, row.loss), abs=1e-5
        )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_over_messages_equals_the_same_method_in_one_process(name, tmp_path):
    require_agreement(Stage.set(catalog.method_class(name)(), tmp_path, world_for(name)))


@pytest.mark.parametrize("name", ["fedper", "fedfomo", "scaffold"])
def test_the_cohort_is_the_simulation_s_when_everybody_is_there(name, tmp_path):
    stage = Stage.set(catalog.method_class(name)(), tmp_path, cohort=2)
    served, oracle = stage.play(), stage.oracle()
    require_close(oracle.server, served.server, "the server's state", 1e-5)
    trained = {c for c in stage.world.data.clients if stage.kept(c) is not None}
    assert trained == set(oracle.setting.store)


def test_different_clients_are_sent_different_things(tmp_path):
    stage = Stage.set(catalog.method_class("fedamp")(), tmp_path)
    run = stage.play()
    info = run.setting.info(run.rounds_done, run.setting.federation.clients)
    down = run.setting.method.broadcast(run.server, info)
    assert isinstance(down, PerClient)
    sent = [b"".join(leaf.numpy().tobytes() for leaf in tree.leaves(down[c])) for c in down]
    assert len(set(sent)) == len(sent)


def test_a_method_that_moves_examples_is_refused_before_the_run(tmp_path):
    with pytest.raises(CapabilityError, match="never leave their sites"):
        Stage.set(catalog.method_class("fedavg-shared")(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ditto", "fedper"])
def test_a_client_that_diverges_keeps_the_same_state_over_messages(name, tmp_path):
    method = catalog.method_class(name)(batch_size=4)
    stage = Stage.set(method, tmp_path, one_diverges())
    served, oracle = stage.play(), stage.oracle()
    require_close(oracle.server, served.server, "the server's state", 1e-5)
    for client in stage.world.data.clients:
        require_close(oracle.clients[client], stage.kept(client), f"what {client} keeps", 1e-5)
    assert set(served.divergence.clients) == {"c2"}
    assert {c: (d.first, d.rounds) for c, d in served.divergence.clients.items()} == {
        c: (d.first, d.rounds) for c, d in oracle.divergence.clients.items()
    }


def test_a_server_state_that_would_not_be_finite_is_not_adopted_and_the_log_says_so(
    tmp_path, caplog
):
    method = catalog.method_class("fedadam")(server_optimizer=Adam(lr=1e39, betas=(0.0, 0.0)))
    stage = Stage.set(method, tmp_path)
    served = stage.play()
    assert tree.is_finite(served.server)
    assert set(served.divergence.failed) == {1, 2, 3}
    assert "round 1: the server keeps its old state: the new server state" in caplog.text
    assert "Try a smaller learning rate" in caplog.text
    lines = [json.loads(x) for x in (tmp_path / "out/rounds.jsonl").read_text().splitlines()]
    assert all("holds a NaN or an infinity" in line["failed"] for line in lines)
