"""MLflow runs, read back by MLflow's own client from a database on disk."""

import math
import sys
import time

import pytest
from watched import a_look, a_round, a_row, world

import motet
from motet.errors import CapabilityError, RequestError
from motet.tracking import MLflowSink, sinks

pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")
# MLflow's own: it loads with an option that its database library will drop.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"


def runs_of(uri, experiment):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return client, {(run.data.tags["label"], int(run.data.tags["seed"])): run for run in found}


def curve(client, run, name):
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]


def test_a_comparison_is_kept_run_by_run(uri):
    task, data = world()
    methods = [motet.FedAvgFT(), motet.FedAvg(), motet.Local()]
    sink = MLflowSink(uri, "compared")
    table = motet.compare(methods, task, data, rounds=3, seeds=[0, 7], watcher=sink)
    client, runs = runs_of(uri, "compared")
    assert set(runs) == {(row.label, row.seed) for row in table.rows}
    for row in table.rows:
        run = runs[row.label, row.seed]
        assert run.info.status == "FINISHED"
        assert run.data.tags["method"] == row.label
        assert run.data.tags["split_hash"] == table.split
        assert run.data.params["method.optimizer.lr"] == "0.1"
        assert run.data.params["run.rounds"] == "3"
        for name in ("mean", "decile", "worst", "loss"):
            expected = [(look.round, getattr(look, name)) for look in row.curve]
            assert curve(client, run, f"val/{name}") == expected
            assert run.data.metrics[f"test/{name}"] == getattr(row.evaluation, name)
        assert sum(value for _, value in curve(client, run, "round/bytes_up")) == row.cost.bytes_up
    harmed = {
        label: runs[label, 7].data.metrics.get("test/harmed_vs_local") for label in table.labels
    }
    assert harmed["local"] is None  # the others were known only after their own end
    assert harmed["fedavg"] == table.of("fedavg")[1].evaluation.harmed(
        table.of("local")[1].evaluation
    )


def test_a_run_that_was_interrupted_or_failed_says_so(uri):
    sink = MLflowSink(uri, "broken")
    for seed in (0, 1):
        sink.began("fedavg", seed, 9)
        sink.round_done("fedavg", seed, a_round(1), a_look(1, math.nan))
    sink.failed("fedavg", 0, "training diverged")
    sink.close()
    client, runs = runs_of(uri, "broken")
    assert runs["fedavg", 0].info.status == "FAILED"
    assert runs["fedavg", 0].data.tags["reason"] == "training diverged"
    assert runs["fedavg", 1].info.status == "KILLED"
    (point,) = curve(client, runs["fedavg", 1], "val/mean")  # nothing told is lost
    assert math.isnan(point[1])


def test_shares_are_known_for_references_that_had_finished_before(uri):
    sink = MLflowSink(uri, "resumed", before=[a_row("local", 0, (0.9, 0.5), method="local")])
    sink.began("fedavg", 0, 2)
    sink.finished("fedavg", 0, a_row("fedavg", 0, (0.5, 0.75)))
    _, runs = runs_of(uri, "resumed")
    assert runs["fedavg", 0].data.metrics["test/harmed_vs_local"] == 0.5


def test_a_server_that_is_away_is_one_warning_and_costs_seconds():
    said = []
    (sink,) = sinks(mlflow="http://127.0.0.1:9", warn=said.append)
    started = time.monotonic()
    sink.began("fedavg", 0, 2)
    sink.round_done("fedavg", 0, a_round(1), None)
    sink.finished("fedavg", 0, a_row("fedavg", 0))
    sink.close()
    assert time.monotonic() - started < 20
    assert len(said) == 1
    assert said[0].startswith("MLflow could not be written and is disabled: ")


def test_what_is_no_uri_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(RequestError, match=r"expects a URI such as sqlite:///mlflow.db"):
        sinks(mlflow=str(tmp_path))


def test_without_the_package_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(CapabilityError, match=r"pip install \"motet\[tracking\]\""):
        sinks(mlflow="sqlite:///runs.db")
