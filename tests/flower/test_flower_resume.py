"""A server that dies goes on where it was, and a client that dies keeps what it had."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
from staging import LoopbackGrid, Stage, client_app, server_app

from motet import Ditto, FedAvg, FedFomo, Scaffold
from motet._engine.records import read_scores
from motet.deploy._runtime.directory import read_server
from motet.deploy._runtime.private import Kept, PrivateFile
from motet.errors import RequestError, StateError
from motet.testing._comparing import require_same


class PowerCutError(Exception):
    """Ends a server at once."""


def dying(number, after):
    """A server that dies in a round (from 1), once it has had `after` replies to it."""
    seen = []

    def fault(who, reply):
        if reply.metadata.group_id == str(number - 1) and reply.metadata.message_type == "train":
            seen.append(who)
            if len(seen) == after + 1:
                raise PowerCutError
        return [reply]

    return fault


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("method", [Ditto(), FedFomo(), Scaffold()], ids=lambda m: m.name)
def test_a_server_that_died_goes_on_and_ends_as_if_nothing_had_happened(method, after, tmp_path):
    stage = Stage.set(method, tmp_path, fault=dying(2, after))
    with pytest.raises(PowerCutError):
        stage.play()
    served, oracle = stage.play(), stage.oracle()
    require_same(oracle.server, served.server, "the server")
    for client in oracle.clients:
        require_same(oracle.clients[client], stage.kept(client), f"what {client} keeps")
    rounds = [json.loads(line) for line in (tmp_path / "out/rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in rounds] == [1, 2, 3]
    assert all(line["replied"] == sorted(stage.world.data.clients) for line in rounds)


def test_a_finished_run_that_is_started_again_only_scores_again(tmp_path):
    stage = Stage.set(FedAvg(), tmp_path)
    first = stage.play()
    scores = read_scores(tmp_path / "out/clients.parquet")
    second = stage.play()
    require_same(first.server, second.server, "the server")
    assert read_scores(tmp_path / "out/clients.parquet") == scores


def test_the_directory_of_another_experiment_is_refused(tmp_path):
    Stage.set(FedAvg(), tmp_path).play()
    with pytest.raises(StateError, match="holds another experiment"):
        Stage.set(Ditto(), tmp_path).play()


def test_a_site_that_is_ahead_of_the_server_says_so(tmp_path, caplog):
    stage = Stage.set(Ditto(), tmp_path, deadline_s=0.5, attempts=1)
    stage.play()
    shutil.rmtree(tmp_path / "out")
    with (
        caplog.at_level(logging.WARNING, "motet.deploy._runtime"),
        pytest.raises(Exception, match="tried"),
    ):
        stage.play()
    assert "round 3 is done here, and round 1 was asked for" in caplog.text


def test_a_private_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    stage = Stage.set(Ditto(), tmp_path)
    setting = stage.agreement.setting_at("few", None)
    fresh = setting.fresh_client("few")
    file = PrivateFile.of(tmp_path, "stage", "few", "agreed")
    file.write(Kept(0, fresh, fresh))

    def cut(*_):
        raise PowerCutError

    monkeypatch.setattr("os.fsync", cut)
    with pytest.raises(PowerCutError):
        file.write(Kept(1, fresh, fresh))
    found = file.read(fresh)
    assert found is not None
    assert found.number == 0


def test_a_damaged_private_file_is_refused_with_a_sentence(tmp_path):
    file = PrivateFile.of(tmp_path, "stage", "few", "agreed")
    file.path.parent.mkdir()
    file.path.write_bytes(b"not a file of ours")
    with pytest.raises(StateError, match=r"few.safetensors is damaged .* delete it to start over"):
        file.read({})


def test_clients_with_awkward_names_have_files_of_their_own(tmp_path):
    names = ["../out", "a/b", "a%2Fb", ".", "St. Mary", "Zürich"]
    paths = [PrivateFile.of(tmp_path, "stage", name, "agreed").path for name in names]
    assert {path.parent for path in paths} == {tmp_path / "stage"}
    assert len(set(paths)) == len(names)


def test_the_server_s_state_can_be_read_from_its_directory(tmp_path):
    stage = Stage.set(FedAvg(), tmp_path)
    run = stage.play()
    require_same(run.server, read_server(tmp_path / "out", stage.agreement), "the server")


def test_a_failure_ends_with_a_line_that_says_it(tmp_path, caplog):
    run_config = {
        "experiment": "trial",
        "config": "[method]\nname = 'fedpre'",
        "out": str(tmp_path),
    }
    grid = LoopbackGrid(client_app(), {}, run_config)
    with caplog.at_level(logging.ERROR, "motet.deploy._runtime"), pytest.raises(RequestError):
        grid.drive(server_app())
    assert 'experiment trial: failed: method.name: no method is called "fedpre"' in caplog.text
