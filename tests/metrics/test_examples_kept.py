"""Predictions of single examples: what is kept, what a file gives back, and resamples of a site."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import motet
from motet import FedAvg, Task
from motet._cli.main import app
from motet._engine import examples as kept
from motet._engine.examples import SiteExamples, least_cut, read_examples, sampler, write_examples
from motet.data import Split, from_arrays
from motet.errors import StateError

RNG = np.random.default_rng(3)


def clients(sizes, targets):
    return {
        name: (RNG.normal(size=(size, 4)).astype(np.float32), targets(size))
        for name, size in sizes.items()
    }


@pytest.fixture(scope="module")
def compared():
    data = from_arrays(
        clients({"a": 30, "b": 12}, lambda n: RNG.integers(0, 3, n)), split=Split(0.2, 0.4)
    )
    task = Task(lambda: nn.Linear(4, 3))
    return data, motet.compare([FedAvg()], task, data, rounds=1, seeds=2, metrics=["log_loss"])


def test_every_run_keeps_its_test_examples_and_scores_follow_from_them(compared):
    data, found = compared
    for row in found.rows:
        table = row.evaluation.examples
        assert table.complete
        for score in row.evaluation.rows:
            site = table.sites[score.client]
            assert site.targets.tolist() == data.examples(score.client, "test").y.tolist()
            assert site.loss.mean() == pytest.approx(score.value)
            metric = table.metric("log_loss")
            assert metric.score(site.targets, site.predictions) == pytest.approx(score.value)
            right = site.predictions.argmax(1) == site.targets
            assert site.correct.tolist() == right.tolist()


def test_a_file_gives_back_what_was_written(compared, tmp_path):
    _, found = compared
    runs = [kept.RunExamples(r.label, r.seed, r.evaluation.examples) for r in found.rows]
    write_examples(tmp_path / "examples.parquet", runs)
    back = read_examples(tmp_path / "examples.parquet")
    assert set(back) == {(run.label, run.seed) for run in runs}
    for run in runs:
        read = back[run.label, run.seed]
        assert (read.about, read.complete) == (run.table.about, True)
        for client, site in run.table.sites.items():
            for name in ("example", "targets", "predictions", "loss", "correct"):
                np.testing.assert_array_equal(
                    getattr(read.sites[client], name), getattr(site, name)
                )


def test_a_file_that_is_not_a_table_of_examples_is_refused(tmp_path):
    path = tmp_path / "examples.parquet"
    assert read_examples(path) == {}
    path.write_bytes(b"PAR1 and then nothing")
    assert not kept.has_examples(path)
    with pytest.raises(StateError, match="not a table of examples"):
        read_examples(path)


@pytest.mark.parametrize(
    ("targets", "build", "loss"),
    [
        (lambda n: RNG.normal(size=n).astype(np.float32), lambda: nn.Linear(4, 1), "mse"),
        (lambda n: RNG.normal(size=(n, 2)).astype(np.float32), lambda: nn.Linear(4, 2), "mse"),
        (lambda n: RNG.integers(0, 2, (n, 2)), lambda: nn.Linear(4, 2), "multi_label"),
        (
            lambda n: np.stack([RNG.random(n) + 0.1, RNG.integers(0, 2, n)], 1).astype(np.float32),
            lambda: nn.Linear(4, 2),
            motet.task.DiscreteHazard((0.5, 1.0)),
        ),
    ],
)
def test_targets_of_every_form_come_back(targets, build, loss, tmp_path):
    data = from_arrays(clients({"a": 20, "b": 9}, targets), split=Split(0.2, 0.4))
    table = motet.run(FedAvg(), Task(build, loss), data, rounds=0).evaluate(examples=True).examples
    write_examples(tmp_path / "e.parquet", [kept.RunExamples("m", 0, table)])
    read = read_examples(tmp_path / "e.parquet")["m", 0]
    assert read.about == table.about
    for client, site in table.sites.items():
        assert read.sites[client].targets.shape == site.targets.shape
        assert read.sites[client].predictions.shape == site.predictions.shape
        np.testing.assert_array_equal(read.sites[client].predictions, site.predictions)


def test_whole_sequences_are_drawn():
    site = SiteExamples(
        "a",
        np.array([0, 0, 2]),
        np.array([1, 0, 1]),
        np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]),
        np.zeros(3),
        np.ones(3),
    )
    assert site.examples == 2
    counts = np.array([[1, 1], [2, 0], [0, 2]])
    assert site.spread(counts).tolist() == [[1, 1, 1], [2, 2, 0], [0, 0, 2]]
    accuracy = motet.metrics.get("accuracy")
    assert site.resampled(accuracy, counts).tolist() == pytest.approx([2 / 3, 0.5, 1.0])


def test_large_data_are_cut_to_the_limit_alike_for_every_method(monkeypatch):
    monkeypatch.setattr(kept, "CELLS", 700)
    sizes = {"a": 10, "b": 500, "c": 300}
    choose = sampler(sizes, columns=3, positions=1, runs=1)
    chosen = {client: choose(client, size) for client, size in sizes.items()}
    assert sum(map(len, chosen.values())) * 7 <= 700
    assert len(chosen["a"]) == 10
    assert len(chosen["b"]) == len(chosen["c"]) == 45
    again = sampler(sizes, columns=3, positions=1, runs=1)
    assert again("b", 500).tolist() == chosen["b"].tolist()
    assert sorted(set(chosen["b"].tolist())) == chosen["b"].tolist()
    assert least_cut([], 5) == 0


def test_wide_predictions_leave_only_loss_and_correctness():
    p = np.full((4, 100), 0.01)
    site = SiteExamples("a", np.arange(4), np.arange(4), p, np.ones(4), np.zeros(4))
    kept_site = site.only(np.array([1, 3]))
    assert kept_site.predictions is None
    assert kept_site.example.tolist() == [1, 3]
    with pytest.raises(StateError, match="too wide"):
        kept_site.resampled(motet.metrics.get("accuracy"), np.ones((1, 2)))


def test_the_command_line_keeps_metrics_and_examples_in_its_directory(tmp_path):
    from typer.testing import CliRunner

    out = tmp_path / "out"
    asked = [
        "compare",
        "--methods",
        "fedavg",
        "--data",
        "digits",
        "--rounds",
        "1",
        "--clients",
        "3",
    ]
    asked += ["--metric", "auroc", "--metric", "log_loss", "--weigh", "examples", "--quiet"]
    done = CliRunner().invoke(app, [*asked, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "AUROC on each client's own test data" in done.output
    assert "log_loss" in done.output
    assert "clients count by their examples" in (out / "report.html").read_text()
    assert 'metrics = [\n    "auroc",\n    "log_loss",\n]' in (out / "config.toml").read_text()
    read = motet.Comparison.read(out)
    assert [t.metric for t in read.rows[0].evaluation.metrics] == ["auroc", "log_loss"]
    assert read.rows[0].evaluation.weigh == "examples"
    assert set(read_examples(out / "examples.parquet")) == {(r.label, r.seed) for r in read.rows}
    import pyarrow.parquet as pq

    rows = pq.read_table(out / "clients.parquet").to_pylist()
    assert {(row["metric"], row["higher_is_better"]) for row in rows} == {
        ("auroc", True),
        ("log_loss", False),
    }
