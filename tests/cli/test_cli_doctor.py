"""`motet doctor` and shell completion."""

import json
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from motet import models
from motet._cli.completion import DATA_SETS, MODELS, PARTITIONS
from motet._cli.installation import FOR_DEVELOPERS, required
from motet.data import names
from motet.data._partition import PARTITIONS as KNOWN_PARTITIONS


@pytest.fixture
def requirements(monkeypatch):
    """Let the package say that it requires something."""

    def state(*lines):
        monkeypatch.setattr(metadata, "requires", lambda _: list(lines))

    return state


def test_a_sound_installation_exits_0_and_names_versions_extras_threads_and_data(motet):
    shown = motet("doctor")
    assert shown.code == 0
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    for text in ("python", metadata.version("torch"), "motet[onnx]", "threads", "digits"):
        assert text in shown.out
    assert not any(f"motet[{extra}]" in shown.out for extra in FOR_DEVELOPERS)


def test_the_json_document_has_a_finding_for_every_requirement(motet):
    written = json.loads(motet("doctor", "--json").out)
    assert written["ok"] is True
    found = {each["what"]: each["state"] for each in written["findings"]}
    assert {r.name for r in required() if r.marker is None} <= found.keys()
    assert set(found.values()) <= {"ok", "absent"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("no-such-package>=1", "no-such-package is missing. Run: pip install"),
        ("numpy>=99", "but >=99 is needed"),
        ("onnx>=99; extra == 'onnx'", "pip install 'motet[onnx]'"),
    ],
)
def test_a_package_that_is_missing_or_too_old_is_trouble(motet, requirements, line, sentence):
    requirements("numpy>=1", line)
    failed = motet("doctor", "--quiet")
    assert failed.code == 1
    assert sentence in failed.err
    assert json.loads(motet("doctor", "--json").out)["ok"] is False


def test_an_extra_that_is_not_installed_is_no_trouble(motet, requirements):
    requirements("no-such-package>=1; extra == 'onnx'")
    shown = motet("doctor")
    assert shown.code == 0
    assert "not installed; pip install 'motet[onnx]'" in shown.out


def test_a_data_folder_that_does_not_exist_is_trouble(motet, monkeypatch, tmp_path):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "nowhere"))
    failed = motet("doctor")
    assert failed.code == 1
    assert "not a folder" in failed.err


def test_requirements_are_read_from_the_package():
    assert Requirement("torch>=2.6") in required()


def test_the_names_that_a_shell_completes_are_those_that_exist():
    assert names() == DATA_SETS
    assert models.names() == MODELS
    assert tuple(KNOWN_PARTITIONS) == PARTITIONS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("motet do", ["doctor"]),
        ("motet run --method fedpe", ["fedper"]),
        ("motet compare --methods local,fedpe", ["local,fedper"]),
        ("motet data heart", ["heart-disease"]),
        ("motet methods knn", ["knn-per"]),
        ("motet init --missing cl", ["client-median", "client-mean"]),
    ],
)
def test_a_shell_completes_commands_and_values(motet, monkeypatch, words, expected):
    monkeypatch.setenv("_MOTET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    shown = motet()
    assert shown.code == 0
    assert shown.out.split() == expected


def test_help_is_grouped_by_what_people_do(motet):
    shown = motet("--help").out
    places = [shown.index(group) for group in ("Before you start", "Run and comp", "Results and")]
    assert places == sorted(places)
    assert places[0] < shown.index("doctor ") < places[1] < shown.index("compare ") < places[2]
