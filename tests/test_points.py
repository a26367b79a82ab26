"""Each method is scored where its authors report it, and every table says where that is."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import small_comparisons

import motet
from motet._compare.compare import compare
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.config import plan_from_dict
from motet._core.points import IN_SHORT, MEANING, POINTS, explained, named
from motet._runs.recorded_run import begin
from motet.config import experiment_from_dict
from motet.errors import RequestError
from motet.methods._catalog import method_class, method_names
from motet.report._directories import read_all
from motet.testing._worlds import ragged

METHODS = Path(__file__).parents[1] / "docs" / "methods"
# What each paper and its code score: docs/methods says why.
ON_ARRIVAL = {"fedala", "pfedhn"}


def expected(method):
    return "after_broadcast" if method in ON_ARRIVAL else "after_adapt"


@pytest.fixture(scope="module")
def world():
    return small_comparisons.world()


@pytest.fixture(scope="module")
def comparison(world):
    return compare([motet.FedALA(epochs=2, mixed=("0",))], *world, rounds=3, cohort=0.5, seeds=1)


@pytest.mark.parametrize("name", method_names())
def test_every_method_says_what_its_authors_report(name):
    assert method_class(name).reported == expected(name)
    page = (METHODS / f"{name.removeprefix('heur-').replace('-', '_')}.md").read_text()
    assert f"**Scored** `{expected(name)}`" in page


def test_without_a_point_clients_are_scored_and_served_as_reported():
    world = ragged()
    run = motet.run(motet.FedALA(), world.task, world.data, rounds=2, backend="serial")
    assert run.evaluate().point == "after_broadcast"
    assert run.evaluate() == run.evaluate(point="after_broadcast")
    assert run.evaluate() != run.evaluate(point="after_adapt")
    x = world.data.examples("many", "test").x
    assert run.predict("many", x).equal(run.predict("many", x, "after_broadcast"))


def test_a_comparison_scores_each_method_as_its_authors_report_it(world, comparison):
    assert comparison.points == {
        "local": "after_adapt",
        "fedavg": "after_adapt",
        "fedavg-ft": "after_adapt",
        "fedala": "after_broadcast",
    }
    (row,) = comparison.of("fedala")
    alone = motet.run(motet.FedALA(epochs=2, mixed=("0",)), *world, rounds=3, cohort=0.5)
    assert row.evaluation.rows == alone.evaluate(point="after_broadcast").rows
    assert row.curve[-1].mean == alone.evaluate("val", "after_broadcast").mean


def test_the_point_of_a_comparison_can_be_chosen_for_all(world):
    same = compare([motet.FedALA(mixed=("0",))], *world, rounds=1, point="after_adapt", seeds=1)
    assert set(same.points.values()) == {"after_adapt"}
    with pytest.raises(RequestError, match='unknown point "after"'):
        compare([motet.FedALA(mixed=("0",))], *world, rounds=1, point="after", seeds=1)


def test_a_search_and_validation_choose_by_the_point_that_is_reported(world):
    found = compare(
        [motet.FedALA(mixed=("0",))], *world, rounds=3, choose="validation", tune=2, seeds=1
    )
    (row,) = found.of("fedala")
    best = max(row.curve, key=lambda look: look.mean)
    assert row.evaluation.round == best.round
    assert row.evaluation.point == "after_broadcast"


def test_tables_verdicts_and_pages_say_in_plain_words_where_methods_were_scored(comparison):
    table = " ".join(comparison.table().split())
    html = " ".join(comparison._repr_html_().replace("&#x27;", "'").split())
    for text in (table, html):
        assert f"Scored {MEANING['after_broadcast']} (after_broadcast): fedala." in text
        assert f"Scored {MEANING['after_adapt']} (after_adapt): all others." in text
    assert "each method as its authors report it" in comparison.verdict().sentences[0]
    assert max(map(len, comparison.table().splitlines())) <= 80


def test_json_has_the_point_of_each_method_and_of_each_run(comparison):
    written = json.loads(json.dumps(comparison.to_dict()))
    assert written["point"] is None  # they differ
    assert {m["label"]: m["point"] for m in written["methods"]} == comparison.points
    assert {r["label"]: r["evaluation"]["point"] for r in written["runs"]} == comparison.points


def test_files_and_the_page_of_a_comparison_have_the_points(world, comparison, tmp_path):
    with ComparisonDirectory.create(tmp_path / "c", {"compare": {}}, world[1]) as directory:
        directory.conclude(comparison)
    rows = pq.read_table(tmp_path / "c" / "clients.parquet").to_pylist()
    assert {row["label"]: row["point"] for row in rows} == comparison.points
    page = (tmp_path / "c" / "report.html").read_text()
    assert "before local training" in page


CONFIG = {
    "run": {"rounds": 1, "backend": "serial"},
    "data": {"name": "digits", "partition": {"name": "iid", "clients": 3}},
    "method": {"name": "fedala"},
}


def test_a_run_is_scored_as_reported_and_its_config_says_so(tmp_path):
    session = begin(experiment_from_dict(CONFIG), tmp_path / "run")
    with session.directory:
        looks = [step.validation.point for step in session.rounds()]
        final = session.conclude()
    assert [*looks, *(one.point for one in final)] == ["after_broadcast"] * 2
    assert session.experiment.run.points == ("after_broadcast",)
    (page,) = read_all([tmp_path / "run"])
    assert page.points == {"fedala": "after_broadcast"}


def test_points_of_a_run_can_be_chosen_and_the_first_is_that_of_validation(tmp_path):
    chosen = ("after_local", "after_adapt")
    tables = CONFIG | {"run": CONFIG["run"] | {"points": list(chosen)}}
    session = begin(experiment_from_dict(tables), tmp_path / "run")
    with session.directory:
        looks = [step.validation.point for step in session.rounds()]
        final = session.conclude()
    assert looks == ["after_local"]
    assert tuple(one.point for one in final) == chosen
    (page,) = read_all([tmp_path / "run"])
    assert page.points == {"fedala": "after_local"}


def test_a_config_chooses_the_point_of_a_comparison():
    plan = plan_from_dict({"compare": {"methods": ["fedala"], "point": "after_adapt"}})
    assert plan.point == "after_adapt"
    assert plan_from_dict(plan.to_dict()).point == "after_adapt"
    assert plan_from_dict({"compare": {"methods": ["fedala"]}}).point is None
    with pytest.raises(RequestError, match=r"compare\.point expects"):
        plan_from_dict({"compare": {"point": "after"}})


@pytest.mark.parametrize("point", POINTS)
def test_one_point_for_all_is_explained_once(point):
    everybody = {"fedavg": point, "fedper": point}
    assert named(everybody) == IN_SHORT[point]
    assert explained(everybody) == f"Scored {MEANING[point]} ({point})."
