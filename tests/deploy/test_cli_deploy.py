"""`motet deploy` on the command line: its output and its errors."""

from __future__ import annotations

import json

import pytest

from motet._cli.main import call
from motet.config import write_tables


@pytest.fixture
def motet(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        capfd.readouterr()
        code = call([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "experiment.toml"
    tables = {
        "run": {"rounds": 1},
        "method": {"name": "fedper"},
        "data": {"name": "digits", "partition": {"name": "iid", "clients": 2}},
    }
    path.write_text(write_tables(tables))
    return path


def test_without_a_command_there_is_an_overview(motet):
    code, out, err = motet("deploy")
    assert code == 0
    assert "trial" in out
    assert err == ""


def test_without_flower_there_is_a_sentence(motet, monkeypatch):
    monkeypatch.setattr("motet._cli.deploy.find_spec", lambda _: None)
    code, _, err = motet("deploy", "status", "net")
    assert code == 2
    assert "pip install 'motet[flower]'" in err


def test_init_says_what_each_site_sends_and_what_comes_next(motet, config):
    code, out, _ = motet("deploy", "init", "net", "--from", config)
    assert code == 0
    assert "2 sites; each sends 52.0 kB and receives 52.0 kB per round" in out
    assert "motet deploy trial net" in out


def test_init_says_when_a_federation_shares_nothing(motet, config):
    config.write_text(config.read_text() + '\n[model]\nname = "logistic"\n')
    code, out, _ = motet("deploy", "init", "net", "--from", config)
    assert code == 0
    assert "each sends 0 B" in out
    assert "no site learns from another" in out


def test_init_as_json(motet, config):
    code, out, _ = motet("deploy", "init", "net", "--from", config, "--json")
    assert code == 0
    assert json.loads(out)["sites"] == ["0", "1"]


def test_a_site_is_checked_with_one_sentence(motet, config):
    motet("deploy", "init", "net", "--from", config)
    code, out, _ = motet("deploy", "check", "net/sites/1")
    assert code == 0
    assert out.startswith("The data fit the experiment: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("init", "net", "--from", "nowhere"), "no run directory or config file at nowhere"),
        (("init", "net", "--from", "."), "has no config.toml"),
        (("trial", "nowhere"), "is not a deployment"),
        (("status", "nowhere"), "is not a deployment"),
        (("check", "."), "is not the folder of a site"),
        (("init", "net"), "Missing option '--from'"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_code_2(motet, words, sentence):
    code, out, err = motet("deploy", *words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""


def test_a_method_that_needs_other_sites_examples_is_refused_before_anything_is_written(
    motet, config, tmp_path
):
    config.write_text(config.read_text().replace("fedper", "fedavg-shared"))
    code, _, err = motet("deploy", "init", "net", "--from", config)
    assert code == 2
    assert "never leave their sites" in err
    assert not (tmp_path / "net").exists()


def test_more_sites_than_there_are_is_refused(motet, config):
    motet("deploy", "init", "net", "--from", config)
    code, _, err = motet("deploy", "trial", "net", "--sites", 3)
    assert code == 2
    assert "from 1 to 2" in err


def test_a_trial_with_data_that_do_not_fit_is_refused_before_anything_starts(
    motet, config, tmp_path
):
    motet("deploy", "init", "net", "--from", config)
    (tmp_path / "net" / "sites" / "1" / "data" / "train.npz").unlink()
    code, _, err = motet("deploy", "trial", "net")
    assert code == 2
    assert "At site 1" in err
    assert not (tmp_path / "net" / "trial").exists()


def test_an_earlier_trial_is_not_replaced_unasked(motet, config, tmp_path):
    motet("deploy", "init", "net", "--from", config)
    (tmp_path / "net" / "trial").mkdir()
    code, _, err = motet("deploy", "trial", "net")
    assert code == 2
    assert "replace it with --overwrite" in err


def test_status_without_a_server_says_so(motet, config):
    motet("deploy", "init", "net", "--from", config)
    code, out, _ = motet("deploy", "status", "net", "--json")
    status = json.loads(out)
    assert code == 1
    assert "the SuperLink does not answer" in status["troubles"][0]
    assert (status["reachable"], status["round"], status["run"]) == (False, 0, None)
