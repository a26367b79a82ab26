"""Clients come and go while a run is under way."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from staging import Given, Stage

from motet import FedAvg, FedFomo, FedPer
from motet._engine.records import read_scores
from motet.deploy._runtime.sitedata import Everywhere
from motet.errors import CohortError
from motet.testing._comparing import require_close


class Unlisted(Everywhere):
    """Sites that nobody has named beforehand."""

    def clients(self):
        return ()


class OpenStage(Stage):
    """Whoever comes may take part."""

    @property
    def agreement(self):
        return replace(super().agreement, sites=Unlisted(Given(self.world.data)))


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, "motet.deploy._runtime")
    return caplog


def replied(stage):
    lines = (stage.folder / "out/rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["replied"] for line in lines]


def coming_and_going(stage, offline_by_round):
    """Set who is offline in which round (from 1), when the last client of a round has replied."""

    def fault(who, reply):
        following = int(reply.metadata.group_id) + 2
        if who == max(stage.world.data.clients) and following in offline_by_round:
            stage.grid.offline = set(offline_by_round[following])
        return [reply]

    stage.grid.offline = set(offline_by_round[1])
    stage.grid.fault = fault


def test_a_client_that_is_away_is_left_out_and_comes_back(tmp_path):
    stage = Stage.set(FedPer(), tmp_path)
    coming_and_going(stage, {1: ["few"], 2: [], 3: ["many", "one"]})
    stage.play()
    everybody = sorted(stage.world.data.clients)
    assert replied(stage)[0] == [c for c in everybody if c != "few"]
    assert replied(stage)[1] == everybody
    assert replied(stage)[2] == [c for c in everybody if c not in ("many", "one")]


def test_a_newcomer_joins_an_open_experiment(tmp_path, heard):
    stage = OpenStage.set(FedAvg(), tmp_path)
    coming_and_going(stage, {1: ["few", "one"], 2: ["one"], 3: []})
    stage.play()
    assert "few joined" in heard.text
    assert "one joined" in heard.text
    assert [len(names) for names in replied(stage)] == [4, 5, 6]


def test_a_newcomer_is_named_where_the_server_keeps_a_row_per_client(tmp_path, heard):
    stage = OpenStage.set(FedFomo(), tmp_path)
    coming_and_going(stage, {1: ["few"], 2: []})
    stage.play()
    assert heard.text.count("few is not among the clients of this experiment") == 1
    assert all("few" not in names for names in replied(stage))


def test_a_stranger_does_not_join_an_experiment_with_a_list(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, clients=("few", "many", "one"))
    stage.play()
    assert "single is not among the clients of this experiment" in heard.text
    assert replied(stage) == [["few", "many", "one"]] * 3


def test_a_client_that_is_put_on_the_list_joins_when_the_run_goes_on(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, clients=("few", "many"), min_clients=2)
    stage.grid.fault = lambda who, reply: [reply] if reply.metadata.group_id == "0" else []
    with pytest.raises(CohortError):
        stage.play(deadline_s=0.2, attempts=1)
    stage.grid.fault = lambda _, reply: [reply]
    stage.play(clients=("few", "many", "one"))
    assert "one joined" in heard.text
    assert replied(stage) == [["few", "many"], ["few", "many", "one"], ["few", "many", "one"]]


def test_those_who_joined_are_still_there_after_a_restart(tmp_path):
    stage = OpenStage.set(FedAvg(), tmp_path)
    coming_and_going(stage, {1: ["few"], 2: []})
    first = stage.play()
    again = stage.play()
    assert again.setting.federation.clients == first.setting.federation.clients
    require_close(first.server, again.server, "the server", 0.0)


def test_a_run_waits_for_enough_clients_and_no_longer_than_the_deadline(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, min_clients=2, deadline_s=0.1)
    stage.grid.offline = set(stage.world.data.clients) - {"few"}
    with pytest.raises(
        CohortError, match=r"2 clients are needed, and 1 connected within 0.1 s: few\."
    ):
        stage.play()
    assert "waiting for clients: 1 of 2 online" in heard.text


def test_a_site_that_keeps_its_scores_sends_none(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path)
    stage.grid.nodes["few"] = {**stage.grid.nodes["few"], "share-scores": False}
    stage.play()
    assert "few keeps its scores to itself" in heard.text
    assert "few" not in {row.client for row in read_scores(tmp_path / "out/clients.parquet")}


def test_a_message_for_another_client_is_refused(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path)
    stage.grid.nodes["few"] = {**stage.grid.nodes["few"], "client": "many"}
    stage.play()
    assert 'few rejected: "many" got a message for "few".' in heard.text
