"""Each site's model at each site that agreed to it: a matrix of scores, and nothing is trained."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from message_mutations import copied, mutated
from staging import Array, Message, Stage

from motet import Ditto, FedAvg, FedPer, KNNPer
from motet._compare.cross_sites import cross_sites
from motet.errors import CapabilityError
from motet.testing._comparing import require_same

LENDING = ("few", "many", "one")
LENT = {"query.lend", "query.judge"}


def trained(method, folder, agreed=None, **more):
    """A finished experiment whose sites have agreed to a comparison."""
    stage = Stage.set(method, folder, rounds=2, **more)
    everybody = stage.world.data.clients
    for site in everybody if agreed is None else agreed:
        stage.grid.nodes[site] = {**stage.grid.nodes[site], "cross-site": True}
    return stage, stage.play()


def matrix(stage):
    found = json.loads((stage.folder / "out" / "cross_site.json").read_text())
    values = np.array(found["values"], dtype=float)  # null becomes NaN
    return found["sites"], {
        (owner, site): values[row, column]
        for row, owner in enumerate(found["sites"])
        for column, site in enumerate(found["sites"])
    }


def states(stage):
    return {path: path.read_bytes() for path in stage.folder.rglob("*.safetensors")}


@pytest.mark.parametrize("method", [FedAvg(), Ditto(), FedPer()], ids=lambda m: m.name)
def test_the_matrix_is_that_of_one_process_and_changes_nothing(method, tmp_path):
    stage, served = trained(method, tmp_path)
    kept = states(stage)
    again = stage.play(cross_site=True)
    assert (again.rounds_done, states(stage)) == (2, kept)
    require_same(served.server, again.server, "the server's state")
    expected = cross_sites(stage.oracle()).data
    _, found = matrix(stage)
    for row, owner in enumerate(expected["names"]):
        for column, site in enumerate(expected["names"]):
            value = expected["frames"][0]["values"][row][column]
            assert found[owner, site] == pytest.approx(value, abs=1e-5), (owner, site)


def test_a_site_that_did_not_agree_sends_no_model_and_receives_none(tmp_path):
    sent = []

    def note(who, reply):
        if reply.metadata.message_type in LENT:
            sent.append((who, len(reply.content["arrays"]), "value" in reply.content["header"]))
        return [reply]

    stage, _ = trained(FedPer(), tmp_path, agreed=LENDING, fault=note)
    stage.play(cross_site=True)
    assert {who for who, arrays, value in sent if arrays or value} <= set(LENDING)
    sites, found = matrix(stage)
    for owner in sites:
        for site in sites:
            if not {owner, site} <= set(LENDING):
                assert np.isnan(found[owner, site]), (owner, site)
    assert not np.isnan(found["few", "many"])


def test_a_site_that_keeps_its_scores_lends_its_model_and_scores_none(tmp_path):
    stage, _ = trained(FedPer(), tmp_path)
    stage.grid.nodes["few"] = {**stage.grid.nodes["few"], "share-scores": False}
    stage.play(cross_site=True)
    sites, found = matrix(stage)
    assert all(np.isnan(found[owner, "few"]) for owner in sites)
    assert not np.isnan(found["few", "many"])


def spoilt(reply):
    kind, content = reply.metadata.message_type, reply.content
    if kind == "query.lend":
        name = sorted(content["arrays"])[0]
        content["arrays"][name] = Array(np.full_like(content["arrays"][name].numpy(), np.nan))
    if kind == "query.judge":
        content["header"]["value"] = 7.0
    return [reply]


def test_a_site_that_sends_nonsense_loses_its_own_row_and_column(tmp_path, caplog):
    caplog.set_level(logging.INFO, "motet")

    def fault(who, reply):
        return spoilt(reply) if who == "few" else [reply]

    stage, _ = trained(FedPer(), tmp_path, fault=fault)
    stage.play(cross_site=True)
    sites, found = matrix(stage)
    assert all(np.isnan(found["few", site]) and np.isnan(found[site, "few"]) for site in sites)
    assert not np.isnan(found["many", "one"])
    assert "few lent no model: " in caplog.text
    assert "model of few: accuracy not available at home" in caplog.text


def test_a_predictor_that_may_hold_examples_never_leaves(tmp_path):
    stage, _ = trained(KNNPer(), tmp_path)
    with pytest.raises(CapabilityError, match="may contain examples of its site"):
        stage.play(cross_site=True)


def test_no_mutated_request_makes_a_model_leave_a_site_that_did_not_agree(tmp_path):
    requests = {}
    stage, _ = trained(FedPer(), tmp_path)
    app = stage.grid.app

    def noting(message, context):
        if context.node_config["client"] == "few" and message.metadata.message_type in LENT:
            requests.setdefault(message.metadata.message_type, (message, context))
        return app(message, context)

    stage.grid.app = noting
    stage.play(cross_site=True)
    assert requests.keys() == LENT
    rng, before = np.random.default_rng(4), states(stage)
    for kind, (message, context) in requests.items():
        context.node_config = {**context.node_config, "cross-site": False}
        for number in range(100):
            content, told = (
                mutated(message.content, rng) if number else (copied(message.content), "")
            )
            request = Message(content, 2**40, kind)
            request.metadata.__dict__["_message_id"] = f"{kind}-{number}"
            reply = app(request, context).content
            assert not reply["arrays"], told
            assert {"refused", "declined"} & reply["header"].keys(), told
    assert states(stage) == before
