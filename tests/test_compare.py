"""Comparisons: the same conditions for all, the references always there, all numbers together."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import motet
from motet.comparison import Comparison, Cost, Row
from motet.config.comparing import plan_from_dict
from motet.contest import Contest, compare
from motet.contestdir import ContestDirectory
from motet.data import Split, from_arrays
from motet.errors import DataError, RequestError, SelectorError
from motet.evaluate import Evaluation, Score
from motet.optim import Sgd
from motet.tables import aligned


@pytest.fixture(scope="module")
def world():
    """Four clients of unequal size with two classes of points, and a linear network."""
    from torch import nn

    rng = np.random.default_rng(0)
    clients = {}
    for number, size in enumerate((12, 20, 30, 44)):
        y = np.arange(size) % 2
        x = rng.normal(size=(size, 3)) + 2 * y[:, None] * rng.normal(size=3)
        clients[f"c{number}"] = (x.astype(np.float32), y)
    data = from_arrays(clients, split=Split(0.2, 0.3))
    return motet.Task(build=lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))), data


@pytest.fixture(scope="module")
def comparison(world):
    return compare([motet.FedPer(epochs=2)], *world, rounds=2, cohort=0.5, seeds=2)


def test_missing_references_are_added_and_said_to_be(comparison):
    assert comparison.labels == ("local", "fedavg", "fedavg-ft", "fedper")
    assert comparison.added == ("local", "fedavg", "fedavg-ft")
    assert "Added for reference: local, fedavg, fedavg-ft." in comparison.table()


def test_references_that_were_asked_for_stay_as_they_are(world):
    local = motet.Local(epochs=3)
    contest = Contest.of([local, motet.FedPer(batch_size=None)], *world, rounds=0)
    assert contest.added == ("fedavg", "fedavg-ft")
    assert contest.entries["local"] is local


def test_added_references_train_as_the_first_method_does(world):
    first = motet.FedPer(optimizer=Sgd(lr=0.7), steps=4, batch_size=None, adapt_epochs=2)
    contest = Contest.of([first, motet.FedPer(epochs=9)], *world, rounds=0)
    shared = {"optimizer": Sgd(lr=0.7), "steps": 4, "batch_size": None, "adapt_epochs": 2}
    assert contest.entries["local"] == motet.Local(**shared)
    assert contest.entries["fedavg-ft"] == motet.FedAvgFT(**shared)


def test_every_row_is_the_run_that_motet_run_makes(comparison, world):
    for row in comparison.of("fedper"):
        alone = motet.run(
            motet.FedPer(epochs=2), *world, rounds=2, cohort=0.5, seed=row.seed
        ).evaluate(split="test")
        assert row.evaluation == alone


def test_all_methods_see_the_same_cohorts_and_start_from_the_same_weights(world):
    contest = Contest.of([motet.FedPer(head_init="common")], *world, rounds=2, cohort=0.5)
    cohorts, starts = set(), []
    for label in contest.entries:
        run = contest.start(label, 0)
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
    contest = Contest.of([motet.FedPer(), motet.FedPer(epochs=2)], *world, rounds=0)
    assert list(contest.entries)[-2:] == ["fedper", "fedper (2)"]


@pytest.mark.parametrize(
    ("methods", "settings", "error", "sentence"),
    [
        ([], {}, RequestError, "at least one method"),
        ([motet.Local()], {"seeds": 0}, RequestError, "at least one seed"),
        ([motet.Local()], {"seeds": [1, 1]}, RequestError, "each only once"),
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
        compare([motet.Local()], task, data, rounds=10**9)


def test_a_directory_keeps_what_has_finished(tmp_path):
    plan = plan_from_dict({"run": {"rounds": 1}, "data": {"partition": {"clients": 4}}})
    federation = plan.federation()
    contest, path = plan.contest(federation), tmp_path / "comparison"
    tables = plan.resolved(federation).to_dict()
    with ContestDirectory.create(path, tables, federation) as directory:
        directory.record(contest.row("fedavg", 0))
        with (path / "results.jsonl").open("a") as file:
            file.write('{"label": "loc')  # a crash
    with ContestDirectory.open(path) as directory:
        assert list(directory.finished()) == [("fedavg", 0)]
        again = plan_from_dict(directory.tables())
    assert again.entries == plan.entries
    assert tomllib.loads((path / "config.toml").read_text())["compare"]["seeds"] == [0]


def test_columns_are_aligned_first_left_others_right():
    assert aligned(["a", "bb"], [["ccc", "d"]]).splitlines() == ["a    bb", "───────", "ccc   d"]
