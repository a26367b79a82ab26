"""`motet methods` and `motet data`."""

import json

import numpy as np
import pytest

from motet._cli.pictures import bars, distribution, fitted
from motet.data import dataset, names
from motet.methods._catalog import method_names


def width(text):
    return max(len(line) for line in text.splitlines())


def test_methods_lists_every_method_within_80_columns(motet):
    shown = motet("methods")
    assert shown.code == 0
    assert width(shown.out) <= 80
    for name in method_names():
        assert any(line.startswith(f"{name} ") for line in shown.out.splitlines())


def test_a_card_shows_every_hyperparameter_with_its_default(motet):
    shown = motet("methods", "fedper")
    assert width(shown.out) <= 80
    for text in ("personal", "[head]", "head_init", "independent", "sgd(lr=0.1)", "1912.00818"):
        assert text in shown.out


def test_methods_as_json_is_one_document(motet):
    every = json.loads(motet("methods", "--json").out)
    assert [each["name"] for each in every] == list(method_names())
    one = json.loads(motet("methods", "fedper", "--json", "--seed", "3").out)
    assert one["defaults"]["personal"] == ["head"]
    assert motet("methods", "--quiet").out.split() == list(method_names())


def test_an_unknown_method_gets_the_nearest_name(motet):
    failed = motet("methods", "fedperr")
    assert (failed.code, failed.out) == (2, "")
    assert 'did you mean "fedper"' in failed.err


def test_data_lists_what_was_found_without_reading_it(motet, monkeypatch, tmp_path):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    table, _, places = motet("data").out.partition("\n\n")
    assert width(table) <= 80
    assert str(tmp_path / "nowhere") in places
    found = {each["name"]: each["found"] for each in json.loads(motet("data", "--json").out)}
    assert found["digits"] is True
    with_files = {name for name, is_here in found.items() if not is_here}
    assert with_files == {name for name in names() if dataset(name).package is None} - {"digits"}
    (tmp_path / "nowhere" / "heart-disease").mkdir(parents=True)
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        (tmp_path / "nowhere" / "heart-disease" / f"processed.{hospital}.data").write_text("")
    again = {each["name"]: each["found"] for each in json.loads(motet("data", "--json").out)}
    assert again == found | {"heart-disease": True}


@pytest.mark.parametrize(
    "options", [("--partition", "dirichlet", "--clients", 10, "--alpha", 0.3), ("--clients", 100)]
)
def test_a_federation_is_drawn_within_80_columns(motet, options):
    shown = motet("data", "digits", *options)
    assert shown.code == 0
    assert width(shown.out) <= 80
    for word in ("EMD", "JS", "classes per client", "Gini", "█"):
        assert word in shown.out


def test_the_drawing_is_the_histogram(motet):
    written = json.loads(motet("data", "digits", "--clients", 5, "--seed", 3, "--json").out)
    assert written["manifest"]["seed"] == 3
    assert len(written["labels"]) == 5
    drawn = motet("data", "digits", "--clients", 5, "--seed", 3).out
    for client, counts in written["labels"].items():
        line = next(line for line in drawn.splitlines() if line.startswith(f"{client} "))
        assert line.split()[-1] == bars(counts)
        assert int(line.split()[1]) == written["sizes"][client]["train"] == sum(counts)


def test_a_regression_is_drawn_by_sizes(motet, tmp_path):
    lines = ["site,x,y", *(f"{'ab'[i % 3 == 0]},{i}.5,{i}.25" for i in range(30))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    shown = motet("data", "--table", "t.csv", "--client-column", "site", "--target", "y")
    assert shown.code == 0
    assert "regression" in shown.out
    assert "Gini" in shown.out


def test_missing_files_say_where_to_get_them(motet, monkeypatch, tmp_path):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    failed = motet("data", "cifar10")
    assert failed.code == 2
    assert "cs.toronto.edu" in failed.err


def test_a_count_of_zero_has_no_bar_and_a_small_one_has():
    assert bars([0, 1, 1000]) == "·▁█"
    assert bars([0, 0]) == "··"
    assert len(fitted(range(100), 40)) <= 40
    assert sum(fitted(range(100), 40)) == sum(range(100))


def test_a_distribution_counts_both_ends():
    assert distribution([0.0, 1.0, 1.0], low=0.0, high=1.0, bins=2) == "▄█"
    assert len(distribution(np.ones(3).tolist(), low=1.0, high=1.0)) == 20


def test_bars_are_ascii_where_nothing_else_can_be_shown(monkeypatch):
    monkeypatch.setattr("motet._cli.pictures.can_draw", lambda _: False)
    assert bars([0, 1, 8]).isascii()
