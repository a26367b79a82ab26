"""Sites score themselves by every metric; only the scores leave them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from staging import LoopbackGrid, Stage, client_app

from motet._engine.federation import start
from motet._engine.records import read_scores
from motet.methods import FedAvg


def test_sites_send_the_scores_of_every_metric_and_say_where_one_is_undefined(tmp_path):
    stage = Stage.set(FedAvg(), tmp_path, rounds=1)
    names = ("auroc", "log_loss", "recall_0")
    stage.run = replace(stage.run, metrics=names, weigh="examples")
    nodes = {c: {"client": c, "state-dir": str(tmp_path / c)} for c in stage.world.data.clients}
    stage.grid = LoopbackGrid(client_app(agreement=stage.agreement), nodes)
    stage.play()
    world = stage.world
    alone = start(FedAvg(), world.task, world.data, rounds=1, seed=5, metrics=names)
    alone.advance()
    expected = {
        (table.metric, score.client): (score.value, score.undefined)
        for table in alone.evaluate("test").metrics
        for score in (*table.rows, *table.undefined)
    }
    rows = [row for row in read_scores(tmp_path / "out/clients.parquet") if row.split == "test"]
    found = {(row.metric, row.client): (row.value, row.undefined) for row in rows}
    assert found.keys() == expected.keys()
    for pair, (value, undefined) in expected.items():
        assert found[pair][1] == undefined
        assert found[pair][0] == pytest.approx(value, abs=1e-5, nan_ok=True)
    assert {row.metric: row.higher_is_better for row in rows} == {
        "auroc": True,
        "log_loss": False,
        "recall_0": True,
    }
