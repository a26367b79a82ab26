"""Model cards: for which site, how good against Local and FedAvg, what a row needs, its use."""

import runpy
import sys
from types import ModuleType

import numpy as np
import onnxruntime
import pytest
import torch
from hospital_world import SITES, federation, finished, raw_rows
from pyarrow import csv, table
from torch import nn

import motet
from motet._export.model_card import card_text
from motet._export.references import QUICK, _test_scores, is_quick, references_of
from motet.errors import RequestError


def section(card, title):
    return card.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Runs of three methods on one split, and the export of a site with its results."""
    folder, data = tmp_path_factory.mktemp("cards"), federation()
    runs = {m.name: finished(m, data) for m in (motet.FedPer(), motet.Local(), motet.FedAvg())}
    others = [runs["local"], runs["fedavg"]]
    exported = motet.export(runs["fedper"], "north", folder / "north", onnx=True, against=others)
    return runs, exported


def test_the_card_says_for_which_site_and_what_it_predicts(world):
    card = world[1].card.read_text()
    first = card.splitlines()[2]
    assert "predicts `outcome`: `ill`, `well`" in first
    assert "made for the site `north` alone" in first
    training = section(card, "How it was trained")
    assert "3 clients trained together without exchanging examples, for 2 rounds" in training
    assert "24 were used for training, 8 for validation and 8 for the test" in training


def test_the_card_compares_with_local_and_fedavg_at_this_site(world):
    runs, exported = world
    results = section(exported.card.read_text(), "Results")
    for name, shown in (("local", "Local (trained on"), ("fedavg", "FedAvg (one model")):
        score = runs[name].evaluate(clients=["north"])["north"]
        (line,) = [line for line in results.splitlines() if shown in line]
        assert f"| {score.value:.4f} |" in line
    assert "With 8 test rows, a small difference may be due to chance. One row is 12.5" in results


@pytest.mark.parametrize(
    ("value", "higher", "words"),
    [(0.9, True, "better than"), (0.1, True, "worse than"), (0.9, False, "worse than")],
)
def test_better_is_told_by_the_direction_of_the_metric(world, value, higher, words):
    about = dict(world[1].about)
    score = {**about["scores"]["test"], "value": value, "higher_is_better": higher}
    about["scores"] = {"test": score}
    about["references"] = [{**r, "value": 0.5} for r in about["references"]]
    said = section(card_text(about, "x", without_graph="no."), "Results")
    assert f"the model is {words} Local and {words} FedAvg" in said


def test_the_card_has_all_metrics_of_the_run(tmp_path):
    data, metrics = federation(), ["accuracy", "auroc", "log_loss", "ece"]
    task = motet.Task(lambda: motet.models.build("mlp", shape=data.shape, classes=2))
    own, *others = (
        motet.run(method, task, data, rounds=1, metrics=metrics)
        for method in (motet.FedPer(), motet.Local(), motet.FedAvg())
    )
    exported = motet.export(own, "north", tmp_path / "north", onnx=False, against=others)
    card = exported.card.read_text()
    results, limits = section(card, "Results"), section(card, "Limits")
    for metric in metrics[1:]:
        shown = [run.evaluate().by(metric)["north"].value for run in (own, *others)]
        (line,) = [t for t in results.splitlines() if t.startswith(f"| {metric} |")]
        assert line.split(" | ")[1:4] == [f"{value:.4f}" for value in shown]
        assert line.endswith("| larger |" if metric == "auroc" else "| smaller |")
    assert "calibration" not in limits
    # Scores of single metrics are not mixed when a run is read from its directory.
    others[0].write_scores(tmp_path / "clients.parquet")
    (read,) = _test_scores(tmp_path / "clients.parquet")
    found = {r.metric: r.value for r in references_of("north", [read])}
    assert found == {m: others[0].evaluate().by(m)["north"].value for m in metrics}


def test_without_references_the_card_says_how_to_get_them(tmp_path):
    exported = motet.export(
        finished(motet.FedRep(), federation()), "south", tmp_path / "s", onnx=False
    )
    assert "export with `--against DIR`" in section(exported.card.read_text(), "Results")


def test_results_of_another_split_are_refused(world, tmp_path):
    other = finished(motet.Local(), federation(rows=30))
    with pytest.raises(RequestError, match="the run of local used another split of the data"):
        motet.export(world[0]["fedper"], "north", tmp_path / "n", onnx=False, against=other)


def test_a_comparison_gives_the_mean_over_its_seeds(world, tmp_path):
    run = world[0]["fedper"]
    compared = motet.compare(
        [motet.FedPer()], run.setting.task, run.setting.federation, rounds=1, seeds=2
    )
    exported = motet.export(run, "south", tmp_path / "s", onnx=False, against=compared)
    local = [row.evaluation["south"].value for row in compared.of("local")]
    assert exported.about["references"][0]["value"] == pytest.approx(np.mean(local))
    assert "mean of 2 seeds" in exported.card.read_text()


def test_the_card_lists_the_columns_with_units_ranges_and_fills(world):
    needs = section(world[1].card.read_text(), "Input and output")
    assert "| `age` | number | `years` | 20 to 90 in training | becomes 55 |" in needs
    assert "| `chol` | number | `mg/dl` | 100 to 400 in training | becomes 240, and is" in needs
    assert "| `sex` | category |  | `f`, `m` | counts as none of them |" in needs
    assert "`1`, `2`, `4`; all others count as one" in needs
    assert "| `visit` | date |  | YYYY-MM-DD; used: age, day of year |" in needs
    assert "pixels" not in needs


def test_the_card_names_limits_and_an_unknown_licence(world):
    card = world[1].card.read_text()
    assert "tested on 8 examples of `north`" in section(card, "Limits")
    assert "does not know the licence of the data" in section(card, "Licence")


def test_a_method_that_remembers_examples_says_so(world, tmp_path):
    exported = motet.export(
        finished(motet.KNNPer(), federation()), "north", tmp_path / "k", onnx=False
    )
    inside = section(exported.card.read_text(), "What is inside")
    assert "representations of training examples with their labels" in inside
    assert "no training examples" in section(world[1].card.read_text(), "What is inside")


def run_snippets(card, folder, **names):
    """Run the Python blocks of a card, one after another, in the folder of the card."""
    for block in card.split("```python\n")[1:]:
        snippet = folder / "snippet.py"
        snippet.write_text(block.partition("```")[0], encoding="utf-8")
        names |= runpy.run_path(str(snippet), init_globals=names)
    return names


def test_every_snippet_on_the_card_of_a_table_runs(world, monkeypatch):
    _, exported = world
    monkeypatch.chdir(exported.card.parent)
    csv.write_csv(table(raw_rows(3, "card")), "rows.csv")
    predictor = motet.load_predictor("north")
    x = predictor.schema.encode(raw_rows(3, "card")).x
    network = motet.models.build("mlp", shape=x.shape[1:], classes=2, hidden=[6])
    names = run_snippets(exported.card.read_text(), exported.card.parent, x=x, network=network)
    assert names["predictor"].predict_rows("rows.csv").remarks is not None
    expected = predictor.predict(x).numpy()
    np.testing.assert_allclose(
        network(torch.from_numpy(x)).softmax(-1).detach(), expected, rtol=1e-4
    )
    session = onnxruntime.InferenceSession("north.raw.onnx")
    assert [i.name for i in session.get_inputs()] == ["numbers", "categories"]
    assert names["answer"].shape == (1, 2)


class Own(nn.Module):
    def __init__(self, shape, classes, width=3):
        super().__init__()
        self.body = nn.Linear(shape[0], width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x).relu())


def test_the_snippet_for_a_network_of_ones_own_runs(tmp_path, monkeypatch):
    data = federation()
    task = motet.Task(lambda: Own(data.shape, data.classes, width=4))
    run = motet.run(motet.FedPer(), task, data, rounds=1)
    model = {"name": "own_networks:Own", "loss": "cross_entropy", "width": 4}
    exported = motet.export(run, "north", tmp_path / "north", onnx=False, model=model)
    module = ModuleType("own_networks")
    module.Own = Own
    monkeypatch.setitem(sys.modules, "own_networks", module)
    monkeypatch.chdir(tmp_path)
    csv.write_csv(table(raw_rows(3, "card")), "rows.csv")
    network = Own(data.shape, data.classes, width=4)
    names = run_snippets(exported.card.read_text(), tmp_path, network=network)
    x = data.examples("north", "test").x
    torch.testing.assert_close(names["predictor"].predict(x), run.predict("north", x))


def test_a_reference_network_is_recognized_unless_it_was_changed(tmp_path):
    data = federation()
    run = finished(motet.FedPer(), data)
    exported = motet.export(run, "north", tmp_path / "n", onnx=False)
    assert exported.about["model"] == {"name": "mlp", "loss": "cross_entropy", "hidden": [6]}

    def changed():
        network = motet.models.build("mlp", shape=data.shape, classes=2, hidden=[6])
        network.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 2))
        return network

    run = motet.run(motet.Local(), motet.Task(changed), data, rounds=0)
    assert motet.export(run, "north", tmp_path / "c", onnx=False).about["model"] is None


def test_the_page_of_all_models_lists_every_site(world, tmp_path):
    runs, _ = world
    others = [runs["local"], runs["fedavg"]]
    written = motet.export_all(runs["fedper"], tmp_path, onnx=False, against=others)
    assert list(written) == sorted(SITES)
    page = (tmp_path / "README.md").read_text()
    for site in SITES:
        score = runs["fedper"].evaluate(clients=[site])[site]
        (line,) = [line for line in page.splitlines() if f"`{site}`" in line]
        assert f"| {score.value:.4f} |" in line
        assert len(line.split("|")) == 8
    assert sorted(p.name for p in tmp_path.glob("*.md"))[0] == "README.md"


def test_references_are_trained_unasked_only_if_that_is_quick(world, tmp_path):
    run, rounds = world[0]["fedper"], tmp_path / "rounds.jsonl"
    rounds.write_text('{"gradients": 100}\n')
    assert is_quick(run, rounds)
    rounds.write_text(f'{{"gradients": {QUICK}}}\n')
    assert not is_quick(run, rounds)
