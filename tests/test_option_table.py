"""One table for flags, config keys and their help."""

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from motet._cli.main import app
from motet._cli.request import requested
from motet._compare.budget import Budget
from motet._compare.config import CompareChoice
from motet._compare.tuning import Search
from motet._core.option_table import ROWS, SECTIONS, OneOrMore, Row, Toml, help_of, rows_of
from motet._engine.faults import Faults
from motet.config import FolderData, ModelChoice, NamedData, RunChoice, TableData
from motet.config._hyperparameters import attribute_docs
from motet.config._overrides import TAGS
from motet.config._values import default_of
from motet.data._partition import PARTITIONS
from motet.methods._fedavg import FedAvg

CLASSES = {
    "data": (NamedData, TableData, FolderData),
    "data.partition": tuple(PARTITIONS.values()),
    "model": (ModelChoice,),
    "run": (RunChoice,),
    "run.faults": (Faults,),
    "compare": (CompareChoice,),
    "compare.budget": (Budget,),
    "compare.tune": (Search,),
    "method": (FedAvg,),
}
ALSO = {"method.name", "method.lr", "data.partition.name"}  # read by hand, so no class has them
KEYED = [row for row in ROWS if row.key is not None]
WITH_FLAG = [row for row in ROWS if row.flag is not None]
COMMANDS = ("run", "compare", "data", "resume")


def fields_of(section):
    return {field.name: field for kind in CLASSES[section] for field in fields(kind)}


def options_of(command):
    found = typer.main.get_command(app).commands[command]
    return {parameter.name: parameter for parameter in found.params}


@pytest.mark.parametrize("row", KEYED, ids=lambda row: row.key)
def test_the_key_of_a_row_is_a_key_of_a_config(row):
    section, _, name = row.key.rpartition(".")
    assert row.key.split(".")[0] in SECTIONS
    assert row.key in ALSO or name in fields_of(section)


@pytest.mark.parametrize("section", ["data", "model", "run", "compare"])
def test_every_key_of_a_section_has_one_row(section):
    keys = [row.key for row in KEYED]
    # [compare.tune] is read apart from its section.
    assert {f"{section}.{name}" for name in fields_of(section)} <= set(keys)
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("kind", [k for s in ("data", "model", "run") for k in CLASSES[s]])
def test_the_docstring_of_a_section_holds_the_help_of_its_keys(kind):
    section = re.search(r"`\[(\w+)\]`", kind.__doc__)[1]
    expected = {field.name: help_of(f"{section}.{field.name}") for field in fields(kind)}
    assert attribute_docs(kind.__doc__) == expected


@pytest.mark.parametrize("section", ["run.faults", "compare.budget", "compare.tune"])
def test_every_key_of_a_nested_table_is_documented(section):
    for kind in CLASSES[section]:
        assert attribute_docs(kind.__doc__).keys() == {field.name for field in fields(kind)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_flags_of_its_rows_with_their_help(command):
    options = options_of(command)
    for row in rows_of(command):
        option = options[row.name]
        assert "/".join([*option.opts, *option.secondary_opts]) == row.flag
        assert option.help == row.help


@pytest.mark.parametrize("command", ["run", "compare", "data"])
def test_a_command_has_no_option_beside_its_rows(command):
    own = {"config", "name", "help"}
    assert options_of(command).keys() - own == {row.name for row in rows_of(command)}


def example(row: Row):
    known = {str: "text", int: 3, float: 0.5, bool: True, Toml: "4", list[str]: ["a", "b"]}
    known[OneOrMore] = ["a", "b"]
    return known[row.type]


@pytest.mark.parametrize("row", [row for row in WITH_FLAG if row.key], ids=lambda row: row.flag)
def test_a_flag_sets_its_key(row):
    found = requested(None, {row.name: example(row)}, [])
    for step in row.key.split("."):
        found = found[step]
    assert found == (4 if row.type is Toml else example(row))


def test_a_row_that_names_a_table_comes_before_the_rows_of_its_keys():
    order = [row.key for row in ROWS]
    for tag in TAGS:
        below = [key for key in order if key and key.startswith(f"{tag.rpartition('.')[0]}.")]
        others = [key for key in below if key not in TAGS and help_of(key)]
        with_flag = [row.key for row in WITH_FLAG if row.key in others]
        assert all(order.index(tag) < order.index(key) for key in with_flag), tag


@pytest.mark.parametrize("row", KEYED, ids=lambda row: row.key)
def test_a_default_in_the_help_is_the_default_of_the_field(row):
    said = re.search(r"default: (\w+)\.$", row.help)
    section, _, name = row.key.rpartition(".")
    field = fields_of(section).get(name)
    default = None if field is None else default_of(field)
    if said and isinstance(default, str | int) and not isinstance(default, bool):
        assert said[1] == str(default)
    elif isinstance(default, str):
        assert f"default: {default}" in row.help


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key or row.flag)
def test_help_is_a_sentence(row):
    assert row.help.endswith(".")
    assert row.flag is None or len(row.help) <= 100


def test_the_reference_page_is_what_its_script_writes():
    script = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "config_reference.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), (
        "write the page again: python scripts/config_reference.py"
    )
