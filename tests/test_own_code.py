"""Networks and metrics of the user's own, named as module:function."""

import sys

import pytest

from motet._core.own_code import check_not_hidden, import_named, own_modules
from motet.config import load_experiment
from motet.errors import RequestError

NETWORK = """
from torch import nn
from {name}_parts import width

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1], width), nn.Linear(width, classes))
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Leave the search path and the loaded modules as they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "own_here.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert import_named("own_here:answer") == 42
    assert sys.path == before


def test_a_config_finds_the_network_beside_it_from_anywhere(tmp_path, monkeypatch):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "own_net.py").write_text(NETWORK.format(name="own_net"))
    (folder / "own_net_parts.py").write_text("width = 3\n")
    (folder / "c.toml").write_text('[method]\nname = "fedavg"\n[model]\nname = "own_net:build"\n')
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment("study/c.toml")
    assert experiment.run.modules == str(folder)
    task = experiment.model.__class__(name="own_net:build", loss="cross_entropy").task_for((4,), 2)
    assert "Linear(in_features=4, out_features=3" in str(task.build())


def test_the_folder_is_written_down_only_where_own_code_is_named(tmp_path):
    (tmp_path / "c.toml").write_text('[method]\nname = "fedavg"\n[data]\ntable = "a:b"\ntarget="y"')
    assert load_experiment(tmp_path / "c.toml").run.modules is None


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"model": {"name": "nets.small:build"}}, {"nets"}),
        ({"run": {"metrics": ["auroc", "scores:cost=lower"]}}, {"scores"}),
        ({"methods": {"mine": {"name": "mine:Method"}}}, {"mine"}),
        ({"run": {"address": "ray:head"}, "model": {"name": "mlp"}}, set()),
    ],
)
def test_names_of_own_modules_are_found_anywhere_in_a_config(tables, expected):
    assert own_modules(tables) == expected


def test_a_module_that_an_installed_one_hides_is_refused(tmp_path):
    (tmp_path / "json.py").write_text("")
    with pytest.raises(RequestError, match=r"another one of that name.*Rename json\.py"):
        check_not_hidden({"json"}, tmp_path)
