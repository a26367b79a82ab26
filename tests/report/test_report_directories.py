"""Pages of directories: comparisons, runs, and what is neither."""

from __future__ import annotations

import json

import pytest

from motet._cli.main import call
from motet._engine.records import read_scores
from motet._verdict.results import Results
from motet.errors import StateError
from motet.report import read_all


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs on one split: a method with two seeds, and another method."""
    place = tmp_path_factory.mktemp("runs")
    for name, flags in {
        "first": "--method fedper",
        "again": "--method fedper --seed 1 --set data.seed=0",
        "other": "--method local",
        "wider": "--method fedper --set method.head_epochs=1",
    }.items():
        asked = f"run {flags} --data digits --clients 4 --rounds 2 --quiet"
        assert call([*asked.split(), "--out", str(place / name)]) == 0
    return place


@pytest.fixture
def motet(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capfd.readouterr()
        code = call([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run


def test_a_run_alone_shows_its_curve_and_its_clients(runs):
    (found,) = read_all([runs / "first"])
    (row,) = found.rows
    scores = {
        s.client: s for s in read_scores(runs / "first" / "clients.parquet") if s.split == "test"
    }
    assert {s.client: s.value for s in row.evaluation.rows} == {
        c: s.value for c, s in scores.items()
    }
    lines = [
        json.loads(line) for line in (runs / "first" / "rounds.jsonl").read_text().splitlines()
    ]
    assert [look.round for look in row.curve] == [1, 2]
    assert [look.mean for look in row.curve] == [line["validation"]["mean"] for line in lines]
    assert row.curve[-1].bytes_up == sum(line["bytes_up"] for line in lines)
    manifest = json.loads((runs / "first" / "data.json").read_text())
    sizes = found.federation.sizes
    assert sum(sizes[client]["train"] for client in sizes) == manifest["samples"]["train"]


def test_runs_on_the_same_split_are_put_side_by_side(runs):
    (found,) = read_all([runs / name for name in ("first", "again", "other", "wider")])
    assert found.labels == ("fedper", "local", "fedper (2)")
    assert [row.seed for row in found.of("fedper")] == [0, 1]


def test_runs_under_other_conditions_have_parts_of_their_own(runs, tmp_path):
    asked = "run --method fedper --data digits --clients 4 --rounds 1 --quiet"
    assert call([*asked.split(), "--out", str(tmp_path / "short")]) == 0
    assert [part.rounds for part in read_all([runs / "first", tmp_path / "short"])] == [2, 1]


def test_the_same_run_twice_is_refused(runs):
    with pytest.raises(StateError, match="two of the runs are fedper with seed 0"):
        read_all([runs / "first", runs / "first"])


def test_a_run_at_work_shows_its_last_look_at_validation_data(runs, tmp_path):
    from motet._engine.records import write_scores

    half = tmp_path / "half"
    half.mkdir()
    for name in ("config.toml", "data.json", "rounds.jsonl"):
        (half / name).write_bytes((runs / "first" / name).read_bytes())
    scores = read_scores(runs / "first" / "clients.parquet")
    write_scores(half / "clients.parquet", [row for row in scores if row.split == "val"])
    (found,) = read_all([half])
    assert found.rows[0].evaluation.split == "val"
    assert found.rows[0].cost.seconds == 0  # timings are not there


def test_a_comparison_is_read_as_it_was_written(tmp_path):
    asked = "compare --methods fedper --data digits --clients 4 --rounds 1 --quiet"
    assert call([*asked.split(), "--out", str(tmp_path / "compared")]) == 0
    (found,) = read_all([tmp_path / "compared"])
    assert found == Results.read(tmp_path / "compared")
    assert (tmp_path / "compared" / "report.html").exists()


# -- the command --------------------------------------------------------------


def test_the_command_writes_a_page_beside_the_run(motet, runs):
    code, out, err = motet("report", runs / "first")
    assert code == 0
    assert not out
    assert "needs no network" in err
    assert (runs / "first" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_several_directories_make_one_page_here(motet, runs, tmp_path):
    code, out, _ = motet("report", runs / "first", runs / "other", "--json")
    assert code == 0
    assert json.loads(out)["parts"] == 1
    assert (tmp_path / "report.html").stat().st_size == json.loads(out)["bytes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere holds neither a run nor a comparison"),
        ([], "Missing argument 'DIR...'"),
        (["{runs}/first", "-o", "no/such/page.html"], "cannot be written: no such file"),
        (["{runs}/first", "-o", "{runs}"], "is a directory"),
        (["{runs}/first", "-o", "notes.html"], "is not a Motet report"),
    ],
)
def test_a_wrong_request_is_one_sentence(motet, runs, tmp_path, arguments, sentence):
    (tmp_path / "notes.html").write_text("mine")
    code, out, err = motet("report", *(argument.format(runs=runs) for argument in arguments))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert (tmp_path / "notes.html").read_text() == "mine"


@pytest.mark.parametrize("name", ["clients.parquet", "data.json", "rounds.jsonl"])
def test_a_damaged_directory_is_one_sentence(motet, runs, tmp_path, name):
    copy = tmp_path / "copy"
    copy.mkdir()
    for kept in ("config.toml", "data.json", "rounds.jsonl", "clients.parquet"):
        (copy / kept).write_bytes((runs / "first" / kept).read_bytes())
    (copy / name).write_text('{"round": 1}\n' if name == "rounds.jsonl" else "no such thing")
    code, _, err = motet("report", copy)
    assert code == 2
    assert err.count("\n") == 1
