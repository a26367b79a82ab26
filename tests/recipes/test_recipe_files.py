"""The recipes that come with Motet, and the results that are kept of them."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet._recipes.availability import why_unavailable
from motet._recipes.recipe import merged, recipe_from_text
from motet._recipes.records import read_results
from motet._recipes.shelf import find_recipe, recipe_names
from motet.data import names
from motet.errors import RequestError

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "benchmarks" / "reproductions").glob("*.jsonl"))
EVERYTHING = dict.fromkeys(names(), True)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_can_be_run_or_says_in_a_sentence_why_not(name):
    recipe = find_recipe(name)
    reason = why_unavailable(recipe, EVERYTHING)
    assert reason == recipe.unavailable
    assert recipe.scales if reason is None else reason.endswith(".")


@pytest.mark.parametrize("name", recipe_names())
def test_published_numbers_are_shares_and_data_have_names(name):
    recipe = find_recipe(name)
    assert all(0 <= (cell.published or 0) <= 1 for cell in recipe.cells)
    assert set(recipe.about.data) <= set(names())
    assert 0 < recipe.rule.margin < 0.1


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_were_run_with_the_recipe_of_this_tree(path):
    stored = read_results(path)
    recipe = find_recipe(stored.recipe)
    assert stored.hash == recipe.hash(stored.scale)
    wanted = {(t, s) for t in recipe.trained(stored.scale) for s in recipe.seeds(stored.scale)}
    assert stored.runs  # the page says of the others that they were not run
    assert set(stored.runs) <= wanted


def test_the_page_says_what_the_kept_results_say():
    script = runpy.run_path(str(ROOT / "scripts" / "reproductions_page.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), (
        "write the page again: python scripts/reproductions_page.py"
    )


def test_the_hash_changes_with_settings_seeds_cells_and_rule_and_not_with_words():
    recipe = find_recipe("flamby-heart")
    usual = recipe.hash("hour")
    scale = recipe.scales["hour"]
    cell = replace(recipe.cells[0], published=0.7)
    changed = [
        replace(recipe, settings=merged(recipe.settings, {"run": {"rounds": 16}})),
        replace(recipe, rule=replace(recipe.rule, margin=0.03)),
        replace(recipe, cells=(cell, *recipe.cells[1:])),
        replace(recipe, scales={"hour": replace(scale, seeds=49)}),
        replace(recipe, changes={"hour": {"training": {"local": {"method": {"epochs": 9}}}}}),
    ]
    assert all(other.hash("hour") != usual for other in changed)
    assert len({other.hash("hour") for other in changed}) == len(changed)
    words = replace(recipe.about, title="another", learned="much")
    assert replace(recipe, about=words).hash("hour") == usual


LEAVES = st.integers() | st.text(max_size=3)
TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda below: st.dictionaries(st.sampled_from("abc"), LEAVES | below, max_size=3),
    max_leaves=8,
)


@given(TABLES, TABLES)
def test_the_upper_layer_counts_and_nothing_else_is_lost(below, above):
    found = merged(below, above)
    assert merged(found, above) == found
    assert merged({}, above) == above
    assert set(found) == {*below, *above}
    assert all(found[key] == below[key] for key in below if key not in above)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("training = 'a'", "training = 'b'"), 'of training "b"'),
        (("reference = 'x'", "reference = 'z'"), 'the reference of "y" is "z"'),
        (("margin", "margn"), 'no key "margn"'),
        (("[rule]", "rows = 1\n[rule]"), 'no key "rows"'),
        (("title", "titel"), "titel"),
        (('title = "t"', ""), 'the recipe "wrong" needs title; write it at its top'),
        (("margin = 0.01", "margin = -1"), r"rule\.margin must be 0 or more; got -1"),
        (("margin = 0.01", "margin = nan"), r"rule\.margin expects a number; got nan"),
        (("[rule]", "[rule]\nconfidence = 95"), "must be between 0 and 1, such as 0.95; got 95"),
        (("[rule]", "[rule]\npublished_runs = 0"), "must be 1 or more; got 0"),
        (('cost = "1 s"', 'cost = "1 s"\nseeds = 0'), "one seed or more"),
        (
            ('cost = "1 s"', 'cost = "1 s"\ntraining.b.run.rounds = 2'),
            'the scale "hour" has training "b", which the recipe does not have',
        ),
        (("[rule]", "[rule"), "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_place_of_the_mistake(change, message):
    text = """\
title = "t"
paper = "p"
table = "t"
source = "s"
data = []
[rule]
margin = 0.01
[trainings.a.method]
name = "fedavg"
[[cells]]
name = "x"
training = 'a'
[[cells]]
name = "y"
training = 'a'
reference = 'x'
[scales.hour]
cost = "1 s"
"""
    assert recipe_from_text("fine", text).cells[1].reference == "x"
    with pytest.raises(RequestError, match=message):
        recipe_from_text("wrong", text.replace(*change, 1))


def test_a_recipe_without_a_scale_says_how_to_write_one():
    guide = (ROOT / "docs" / "guides" / "reproduce.md").read_text(encoding="utf-8")
    text = guide.split("```toml\n")[1].split("[scales.full]")[0]
    with pytest.raises(RequestError, match=r"has no scale; write one: \[scales\.hour\]"):
        recipe_from_text("my-table", text).scale("hour")


def test_the_example_of_the_guide_is_a_recipe_that_can_be_run():
    guide = (ROOT / "docs" / "guides" / "reproduce.md").read_text(encoding="utf-8")
    text = guide.split("```toml\n")[1].split("```")[0]
    recipe = recipe_from_text("my-table", text)
    assert why_unavailable(recipe, EVERYTHING) is None
    assert recipe.tables("fedavg", "hour")["method"]["epochs"] == 1
    assert recipe.tables("fedavg", "hour")["run"] == {"rounds": 5}
    assert recipe.tables("fedavg", "full")["method"]["epochs"] == 2
