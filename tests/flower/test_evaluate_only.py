"""A run that only evaluates asks for scores, and changes nothing."""

from __future__ import annotations

import pytest
from staging import Stage

from motet import Ditto, FedAvg, FedFomo
from motet._engine.records import read_scores
from motet.testing._comparing import require_close, require_same


def losses(stage):
    rows = read_scores(stage.folder / "out" / "clients.parquet")
    return {row.client: row.loss for row in rows if row.split == "test"}


def states(stage):
    return {path: path.read_bytes() for path in stage.folder.rglob("*.safetensors")}


@pytest.mark.parametrize("method", [FedAvg(), Ditto(), FedFomo()], ids=lambda m: m.name)
def test_scores_can_be_asked_for_before_and_after_training_and_change_nothing(method, tmp_path):
    stage = Stage.set(method, tmp_path, rounds=2)
    first = stage.play(evaluate_only=True)
    assert first.rounds_done == 0
    assert not states(stage)
    expected = {row.client: row.loss for row in stage.oracle(0).evaluate("test").rows}
    assert losses(stage) == pytest.approx(expected, abs=1e-6)
    served = stage.play()
    oracle = stage.oracle()
    require_close(oracle.server, served.server, "the server after an evaluation", 1e-6)
    after, kept = losses(stage), states(stage)
    assert after == pytest.approx(
        {r.client: r.loss for r in oracle.evaluate("test").rows}, abs=1e-6
    )
    again = stage.play(evaluate_only=True)
    require_same(served.server, again.server, "the server's state")
    assert states(stage) == kept
    assert losses(stage) == after


def test_a_run_that_only_evaluates_sends_no_upload(tmp_path):
    kinds = []

    def note(_, reply):
        kinds.append(reply.metadata.message_type)
        assert not reply.content["arrays"], "scores are a header"
        return [reply]

    Stage.set(FedAvg(), tmp_path, fault=note, rounds=2).play(evaluate_only=True)
    assert set(kinds) == {"query.score"}
