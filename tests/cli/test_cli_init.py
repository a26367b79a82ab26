"""`motet init`: the config that it writes runs as it is."""

import json
import tomllib

import numpy as np
import pytest

from motet.config import load_experiment

SMALL = ("--rounds", 1, "--quiet")


def written_table(path, seed=0, *, rows=60):
    """Write a table with every trouble that a table may have: ids, gaps, dates, text, commas."""
    draw = np.random.default_rng(seed)
    lines = ["id;hospital;age;sex;visit;marker;note;ill"]
    for number in range(rows):
        gap = draw.random() < 0.1
        marker = draw.choice(["?", "<5"]) if gap else f"{draw.random():.2f}".replace(".", ",")
        cells = [1000 + number, draw.choice(["A", "B"]), draw.integers(20, 90)]
        cells += [draw.choice(["f", "m", "M "]), f"2024-0{draw.integers(1, 9)}-11", marker]
        cells += [f"text {number}", "" if number == 3 else draw.choice(["yes", "no"])]
        lines.append(";".join(map(str, cells)))
    path.write_text("\n".join(lines), encoding="cp1252")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_config_for_a_messy_table_runs_as_it_is(motet, tmp_path, seed):
    written_table(tmp_path / "patients.csv", seed)
    table = ("--table", "patients.csv", "--client-column", "hospital", "--target", "ill")
    shown = motet("init", "configs/study.toml", *table)
    assert shown.code == 0, shown.err
    assert "motet compare configs/study.toml" in shown.err
    data = tomllib.loads((tmp_path / "configs/study.toml").read_text())["data"]
    assert data["table"] == "../patients.csv"
    assert data["drop"] == ["id", "note"]
    assert (data["categorical"], data["dates"]) == (["sex"], ["visit"])
    assert data["missing"] == "median"
    assert data["drop_missing_target"] is True
    assert motet("run", "configs/study.toml", *SMALL).code == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--data", "digits"),
        ("--data", "digits", "--partition", "dirichlet", "--clients", 4, "--alpha", 0.3),
        (),
    ],
    ids=["named", "divided", "default"],
)
def test_a_config_for_a_named_data_set_runs_as_it_is(motet, tmp_path, options):
    assert motet("init", *options).code == 0
    assert motet("run", "experiment.toml", *SMALL).code == 0
    if "dirichlet" in options:
        assert load_experiment(tmp_path / "experiment.toml").data.partition.clients == 4


def test_every_key_that_is_commented_out_may_be_used(motet, tmp_path):
    """The comments show defaults, so using all of them changes nothing."""
    written_table(tmp_path / "t.csv")
    table = ("--table", "t.csv", "--client-column", "hospital", "--target", "ill")
    assert motet("init", "a.toml", *table, "--set", "run.rounds=1").code == 0
    lines = (tmp_path / "a.toml").read_text().splitlines()
    opened = [line[1:] if line[:1] == "#" and line[1:2].isalpha() else line for line in lines]
    assert opened != lines
    (tmp_path / "b.toml").write_text("\n".join(opened))
    plain, full = (load_experiment(tmp_path / name) for name in ("a.toml", "b.toml"))
    data = plain.federation()
    assert full.resolved(data).data == plain.resolved(data).data
    assert full.resolved(data).model == plain.resolved(data).model
    assert full.run == plain.run


def test_a_network_without_a_head_of_its_own_gets_a_method_that_suits_it(motet, tmp_path):
    assert motet("init", "--data", "digits", "--set", "model.name=logistic").code == 0
    assert load_experiment(tmp_path / "experiment.toml").method.name == "ditto"


def test_what_is_missing_is_asked_for_with_the_columns(motet, tmp_path):
    written_table(tmp_path / "t.csv")
    failed = motet("init", "--table", "t.csv", "--client-column", "hospital")
    assert failed.code == 2
    assert "--target" in failed.err
    assert "marker" in failed.err
    assert motet("init", "--table", "t.csv", "--target", "ill").code == 2
    assert not (tmp_path / "experiment.toml").exists()


def test_a_file_is_replaced_only_if_asked_to(motet, tmp_path):
    (tmp_path / "experiment.toml").write_text("mine")
    assert motet("init").code == 2
    assert (tmp_path / "experiment.toml").read_text() == "mine"
    said = json.loads(motet("init", "--overwrite", "--json").out)
    assert said["config"] == "experiment.toml"
    assert said["tables"]["data"]["name"] == "digits"
