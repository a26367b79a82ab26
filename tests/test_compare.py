"""Comparisons: the same conditions for all, the references always there, all numbers together."""

import json
import tomllib
from dataclasses import replace
from math import nan

import numpy as np
import pytest
import small_comparisons

import motet
from motet._compare.budget import Budget
from motet._compare.compare import compare
from motet._compare.comparison import Comparison
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.config import plan_from_dict
from motet._compare.tuning import Search
from motet._engine.backends.plan.probing import Trial
from motet._engine.evaluation import Evaluation, Score
from motet._engine.federation import Run
from motet._engine.observers import Watcher
from motet._engine.records import json_text
from motet._engine.results import Cost, Row
from motet._verdict.text_tables import aligned
from motet.config import write_tables
from motet.data import from_arrays
from motet.errors import DataError, RequestError, SelectorError, StateError
from motet.optim import Sgd


@pytest.fixture(scope="module")
def world():
    """Four clients of unequal size with two classes of points, and a linear network."""
    return small_comparisons.world()


@pytest.fixture(scope="module")
def comparison(world):
    return compare([motet.FedPer(epochs=2)], *world, rounds=2, cohort=0.5, seeds=2)


def test_missing_references_are_added_and_said_to_be(comparison):
    assert comparison.labels == ("local", "fedavg", "fedavg-ft", "fedper")
    assert comparison.added == ("local", "fedavg", "fedavg-ft")
    assert "Added for reference: local, fedavg, fedavg-ft." in comparison.table()


def test_references_that_were_asked_for_stay_as_they_are(world):
    local = motet.Local(epochs=3)
    spec = ComparisonSpec.of([local, motet.FedPer(batch_size=None)], *world, rounds=0, seeds=1)
    assert spec.added == ("fedavg", "fedavg-ft")
    assert spec.entries["local"] is local


def test_added_references_train_as_the_first_method_does(world):
    first = motet.FedPer(optimizer=Sgd(lr=0.7), steps=4, batch_size=None, adapt_epochs=2)
    spec = ComparisonSpec.of([first, motet.FedPer(epochs=9)], *world, rounds=0, seeds=1)
    shared = {"optimizer": Sgd(lr=0.7), "steps": 4, "batch_size": None, "adapt_epochs": 2}
    assert spec.entries["local"] == motet.Local(**shared)
    assert spec.entries["fedavg-ft"] == motet.FedAvgFT(**shared)


def test_every_row_is_the_run_that_motet_run_makes(comparison, world):
    for row in comparison.of("fedper"):
        alone = motet.run(
            motet.FedPer(epochs=2), *world, rounds=2, cohort=0.5, seed=row.seed
        ).evaluate(split="test")
        assert row.evaluation == alone


def test_all_methods_see_the_same_cohorts_and_start_from_the_same_weights(world):
    spec = ComparisonSpec.of(
        [motet.FedPer(head_init="common")], *world, rounds=2, cohort=0.5, seeds=1
    )
    cohorts, starts = set(), []
    for label in spec.entries:
        run = spec.start(label, 0)
        starts.append(run.setting.initial)
        cohorts.add(tuple(run.advance().cohort for _ in range(2)))
    assert len(cohorts) == 1
    assert all((starts[0][k] == other[k]).all() for other in starts for k in other)


def test_costs_count_every_round(comparison, world):
    row = comparison.of("fedavg")[0]
    model = 4 * (3 * 4 + 4 + 4 * 2 + 2)
    assert row.cost.bytes_up == row.cost.bytes_down == 2 * 2 * model
    assert row.cost.private_bytes == 0
    assert comparison.of("fedper")[0].cost.private_bytes == 4 * (4 * 2 + 2)
    assert comparison.of("local")[0].cost.bytes_up == 0
    assert row.cost.gradients == comparison.of("local")[0].cost.gradients


def made(values, baseline, harmed_by):
    """A comparison with given values per client."""

    def row(label, method, numbers, seed=0):
        rows = tuple(Score(f"c{i}", 10, v, 0.0) for i, v in enumerate(numbers))
        evaluation = Evaluation(method, "accuracy", "test", "after_adapt", 5, rows)
        cost = Cost(bytes_up=1, bytes_down=2, gradients=3.0, seconds=4.0, private_bytes=5.0)
        return Row(label=label, seed=seed, evaluation=evaluation, cost=cost)

    rows = (
        row("local", "local", baseline),
        row("fedavg-ft", "fedavg-ft", harmed_by),
        row("mine", "fedper", values),
    )
    return Comparison(rows=rows, data="toy", split="0" * 64, rounds=5, cohort=1.0)


def test_harm_is_the_share_of_clients_that_do_worse_than_the_reference():
    found = made([0.5, 0.9, 0.7, 0.7], [0.6, 0.8, 0.7, 0.8], [0.4, 0.4, 0.4, 0.9]).summary("mine")
    assert found["harmed_vs_local"] == 0.5
    assert found["harmed_vs_fedavg_ft"] == 0.25
    assert found["mean"] == pytest.approx(0.7)
    assert found["worst"] == 0.5


def test_numbers_are_averaged_over_seeds(comparison):
    means = [row.evaluation.mean for row in comparison.of("fedper")]
    summary = comparison.summary("fedper")
    assert comparison.seeds == (0, 1)
    assert summary["mean"] == pytest.approx(np.mean(means))
    assert summary["seed_std"] == pytest.approx(np.std(means))


def test_the_table_fits_and_says_what_its_numbers_are(comparison):
    text = comparison.table()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("Accuracy", "test", "after_adapt", "round 2", "4 clients", "seeds 0, 1", "fedper"):
        assert word in text


def test_the_table_fits_with_long_labels_large_values_and_many_seeds():
    rows = tuple(made([1234.5] * 4, [99.99] * 4, [1e-9] * 4).rows[which] for which in (0, 1, 2))
    many = [
        replace(row, seed=seed, label=f"{row.label}-with-a-long-name")
        for row in rows
        for seed in range(20)
    ]
    text = Comparison(rows=tuple(many), data="toy", split="", rounds=5, cohort=0.5).table()
    assert max(len(line) for line in text.splitlines()) <= 80


def test_everything_is_in_the_dictionary_down_to_the_client(comparison):
    written = json.loads(json.dumps(comparison.to_dict()))
    assert len(written["runs"]) == 8
    assert len(written["runs"][0]["scores"]) == 4
    assert {m["label"] for m in written["methods"]} == set(comparison.labels)


def test_a_row_comes_back_equal_from_json(comparison):
    for row in comparison.rows:
        assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_a_second_method_of_the_same_name_gets_a_number(world):
    spec = ComparisonSpec.of([motet.FedPer(), motet.FedPer(epochs=2)], *world, rounds=0, seeds=1)
    assert list(spec.entries)[-2:] == ["fedper", "fedper (2)"]


@pytest.mark.parametrize(
    ("methods", "settings", "error", "sentence"),
    [
        ([], {}, RequestError, "at least one method"),
        ([motet.Local()], {"seeds": 0}, RequestError, "at least one seed"),
        ([motet.Local()], {"seeds": [1, 1]}, RequestError, "no duplicates"),
        ([motet.FedPer(personal=("x",))], {}, SelectorError, 'module called "x"'),
        ([motet.Local()], {"cohrt": 1}, RequestError, 'did you mean "cohort"'),
    ],
)
def test_a_wrong_comparison_is_refused_before_anything_runs(
    world, methods, settings, error, sentence
):
    with pytest.raises(error) as refused:
        compare(methods, *world, rounds=10**9, **settings)
    assert sentence in str(refused.value)


def test_data_without_test_examples_are_refused_before_anything_runs(world):
    task, _ = world
    data = from_arrays({"a": (np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1]))})
    with pytest.raises(DataError, match="has test data"):
        compare([motet.Local()], task, data, rounds=10**9, seeds=1)


def test_a_directory_keeps_what_has_finished(tmp_path):
    plan = plan_from_dict({"run": {"rounds": 1}, "data": {"partition": {"clients": 4}}})
    federation = plan.federation()
    spec, path = plan.spec(federation), tmp_path / "comparison"
    tables = plan.resolved(federation).to_dict()
    with ComparisonDirectory.create(path, tables, federation) as directory:
        directory.record(*spec.run(["fedavg"], 0, Watcher()))
        with (path / "results.jsonl").open("a") as file:
            file.write('{"label": "loc')  # a crash
    with ComparisonDirectory.open(path) as directory:
        assert list(directory.finished()) == [("fedavg", 0)]
        again = plan_from_dict(directory.tables())
    assert again.entries == plan.entries
    assert tomllib.loads((path / "config.toml").read_text())["compare"]["seeds"] == [0, 1, 2]


def test_columns_are_aligned_first_left_others_right():
    assert aligned(["a", "bb"], [["ccc", "d"]]).splitlines() == ["a    bb", "───────", "ccc   d"]


# -- what is kept -------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(world):
    """A comparison with everything in it."""
    methods = [motet.FedPer(), motet.CFL(warmup=0), motet.KNNPer()]
    budget = Budget(gradients=500)
    settings = {"choose": "validation", "tune": 2, "budget": budget}
    return compare(methods, *world, rounds=3, cohort=0.5, seeds=2, **settings)


def test_a_comparison_comes_back_exactly_from_what_it_wrote(whole, tmp_path):
    (tmp_path / "comparison.json").write_text(json_text(whole.to_dict()))
    again = Comparison.read(tmp_path)
    assert again == whole
    # Verdicts on single clients need the predictions in examples.parquet, which is not here.
    assert {**again.to_dict(), "verdict": None} == {**whole.to_dict(), "verdict": None}
    assert again.tried
    assert again.budget == {"gradients": 500}
    assert again.rows[0].curve


def test_numbers_that_json_does_not_have_come_back_as_nan(comparison):
    row = comparison.rows[0]
    lost = replace(row.evaluation, rows=tuple(s._replace(loss=nan) for s in row.evaluation.rows))
    diverged = replace(row, evaluation=lost)
    assert Row.from_dict(json.loads(json_text(diverged.to_dict()))) == diverged


def test_reading_what_is_no_comparison_says_what_to_do(tmp_path):
    with pytest.raises(StateError, match="finish one with `motet resume"):
        Comparison.read(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(StateError, match="is no comparison that this version can read"):
        Comparison.read(tmp_path)


def test_what_methods_remember_and_want_shown_is_kept(whole):
    (first, _) = whole.of("cfl")
    assert [note["round"] for note in first.notes] == list(range(1, first.rounds + 1))
    assert first.studies
    alone = motet.run(
        motet.CFL(warmup=0, **tuned(first)), *small_comparisons.world(), **conditions(first)
    )
    assert [study.to_dict() for study in first.studies] == [
        study.to_dict() for study in alone.setting.method.studies(alone)
    ]


def tuned(row):
    """Turn what a search chose into arguments."""
    return {"optimizer": Sgd(lr=row.tuned["optimizer.lr"])}


def conditions(row):
    return {"rounds": row.rounds, "cohort": 0.5, "seed": row.seed}


def test_the_summary_of_the_federation_counts_what_every_client_has(whole, world):
    _, data = world
    summary = whole.federation
    for client in data.clients:
        sizes = {split: data.size(client, split) for split in ("train", "val", "test")}
        assert summary.sizes[client] == sizes
        labels = data.examples(client, "train").y
        assert summary.histograms[client] == tuple(np.bincount(labels, minlength=2))
    assert list(summary.emd.values()) == pytest.approx(list(data.heterogeneity().emd))


def test_lost_replies_and_refused_uploads_are_counted(world, monkeypatch):
    advance = Run.advance

    def lossy(self):
        return replace(advance(self), lost=("c0", "c1"), rejected={"c2": "not a number"})

    monkeypatch.setattr(Run, "advance", lossy)
    (row,) = compare([motet.FedPer()], *world, rounds=3, seeds=1).of("fedper")
    refusals = {"refused_uploads": 3, "refusals": {"c2": "not a number"}}
    assert row.faults == {"lost_replies": 6, **refusals}


def test_a_comparison_has_no_store_of_its_own(world):
    with pytest.raises(RequestError, match="every run needs its own store"):
        compare([motet.FedPer()], *world, rounds=1, store=object(), seeds=1)


# -- as a config --------------------------------------------------------------

TABLES = {
    "compare": {
        "methods": ["fedprox", "mine"],
        "seeds": [4],
        "choose": "validation",
        "budget": {"bytes": 10_000_000},
        "tune": {"trials": 2, "kind": "grid", "rounds": 1, "space": {"mine": {"mu": [0.5]}}},
    },
    "methods": {"mine": {"name": "fedprox", "mu": 0.2}},
    "run": {"rounds": 2, "evaluate_every": 1},
    "data": {"partition": {"clients": 4}},
}


def test_a_config_says_everything_that_python_can_say():
    plan = plan_from_dict(TABLES)
    spec = plan.spec(plan.federation())
    assert spec.rules.choose == "validation"
    assert spec.rules.budget == Budget(bytes=10_000_000)
    assert spec.search == Search(space={"mine.mu": [0.5]}, kind="grid", trials=2, rounds=1)
    assert [t.tuned for t in spec.trials["mine"]] == [{"mu": 0.2}, {"mu": 0.5}]


def test_a_complete_config_gives_the_same_comparison_again():
    plan = plan_from_dict(TABLES)
    federation = plan.federation()
    written = tomllib.loads(write_tables(plan.resolved(federation).to_dict()))
    assert written["run"]["evaluate_every"] == 1
    spec, again = plan.spec(federation), plan_from_dict(written).spec(federation)
    assert (again.entries, again.rules, again.seeds) == (
        spec.entries,
        spec.rules,
        spec.seeds,
    )
    assert again.search == spec.search


@pytest.mark.parametrize(
    ("compared", "sentence"),
    [
        ({"chose": "last"}, 'did you mean "choose"'),
        ({"choose": "best"}, 'compare.choose expects "last" or "validation"; got "best"'),
        ({"budget": {"gradient": 1}}, 'did you mean "gradients"'),
        ({"budget": {"bytes": "many"}}, "compare.budget.bytes expects"),
        ({"tune": 6}, "[compare.tune] expects a table"),
        ({"tune": {"trails": 6}}, 'did you mean "trials"'),
        ({"tune": {"space": [0.1]}}, "[compare.tune.space] expects lists of values by name"),
    ],
)
def test_a_wrong_key_of_a_comparison_is_said_with_its_place(compared, sentence):
    with pytest.raises(RequestError) as refused:
        plan_from_dict({"compare": compared})
    assert sentence in str(refused.value)


def test_a_method_is_tried_out_once_whatever_the_number_of_seeds(monkeypatch):
    tried, check_work = [], Trial.check_work

    def noted(trial):
        tried.append(trial.setting.method.name)
        check_work(trial)

    monkeypatch.setattr(Trial, "check_work", noted)
    spec = ComparisonSpec.of([motet.FedPer()], *small_comparisons.world(), rounds=1, seeds=3)
    plans = [spec.start("fedper", seed).backend.plan for seed in spec.seeds]
    assert sorted(tried) == ["fedavg", "fedavg-ft", "fedper", "local"]
    assert plans[0] is plans[1] is plans[2] is not None
