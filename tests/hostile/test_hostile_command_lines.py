"""Any value for any option of any command: it works, or a sentence says why not.

`MOTET_COMMAND_LINES=20` tries that many values of every option; the default is a few per command.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil

import pytest
import typer
from command_lines import COMMANDS, FIFO, FILES, LOOP, PARSER, WORKS, Case, cases
from victims import Outcome, called, quietly, snapshot

import motet._cli.deploy_output
import motet._serving.process
import motet.deploy._control
import motet.deploy._path_filter
import motet.deploy._start
from motet._core.option_table import ROWS
from motet._core.visible_text import visible
from motet.errors import StateError

PER_OPTION = int(os.environ.get("MOTET_COMMAND_LINES", "0"))
FEW = 3  # per command, if no number is given
ENDS = ("-shm", "-wal")  # of SQLite, which makes them when a file is read


def chosen(command):
    """Draw some cases of a command, the same in every run."""
    draw = random.Random(f"command line {command}")
    tried = [case for case in cases() if case.command == command]
    if not PER_OPTION:
        return draw.sample(tried, FEW)
    by_option = {}
    for case in tried:
        by_option.setdefault((case.parameter.name, case.arguments[1]), []).append(case)
    return [c for some in by_option.values() for c in draw.sample(some, min(PER_OPTION, len(some)))]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A run, its models and a deployment, beside files of many kinds."""
    pytest.importorskip("flwr")
    folder = tmp_path_factory.mktemp("command_lines") / "pristine"
    folder.mkdir()
    for name, contents in FILES.items():
        (folder / name).write_bytes(contents)
    (folder / LOOP).symlink_to(LOOP)
    with contextlib.chdir(folder):
        assert quietly("run", "c.toml", "--out", "done") == 0
        plain = ("--no-onnx", "--no-references")
        assert quietly("export", "done", "--all", "-o", "models", *plain) == 0
        assert quietly("deploy", "init", "net", "--from", "done") == 0
    return folder


@pytest.fixture
def world(pristine, tmp_path):
    """Make a fresh copy of the place; nothing that is started outlives a call."""

    def fresh():
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        shutil.copytree(pristine, tmp_path / "work", symlinks=True)
        os.mkfifo(tmp_path / "work" / FIFO)
        return tmp_path / "work"

    return fresh


def nobody_answers(*_):
    raise StateError("nothing answers where the SuperLink should be. Start the server (server.sh).")


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch, tmp_path):
    """Parse with one parser, and let commands stop short of starting a server."""
    monkeypatch.setattr(typer.main, "get_command", lambda _: PARSER)
    monkeypatch.setattr(
        motet._serving.process, "run", lambda app, listening, **_: listening.close()
    )
    monkeypatch.setattr(motet._cli.deploy_output, "run_trial", lambda *_, **__: None)
    monkeypatch.setattr(motet.deploy._start, "run_program", lambda *_: 0)
    monkeypatch.setattr(motet.deploy._path_filter.PathFilter, "serve", lambda *_: None)
    monkeypatch.setattr(motet.deploy._control.Control, "_call", nobody_answers)
    monkeypatch.delenv("MOTET_TRACEBACK", raising=False)
    monkeypatch.setenv("MOTET_DATA", str(tmp_path))  # empty: `reproduce` would run for an hour


def test_every_command_has_a_command_line_that_works():
    assert COMMANDS.keys() == WORKS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_any_value_of_any_option_works_or_gets_a_sentence(command, world):
    usual = {called(world(), *line)[1] for line in WORKS[command]}  # data may be missing here
    place = world()
    before = kept(place)
    for case in chosen(command):
        code, err = called(place, *case.arguments)
        after = kept(place)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        if code == 0 or err not in usual:
            assert_answered(case, Outcome(code, err, frozenset(changed)))
        if changed:
            before = kept(world())


@pytest.mark.parametrize("value", ["a\0b", "\udcff"])
@pytest.mark.parametrize("written", ["{flag}={value}", "{flag} {value}", "-- {value}"])
def test_text_that_no_file_can_hold_is_refused_at_the_door(tmp_path, value, written):
    arguments = written.format(flag="--page", value=value).split(" ")
    code, err = called(tmp_path, "data", *arguments)
    assert code == 2
    assert visible(value) in err
    assert ("--page" in err) == ("--page" in written.format(flag="--page", value=value))


def kept(place):
    return {path: seen for path, seen in snapshot(place).items() if not path.endswith(ENDS)}


def assert_answered(case: Case, outcome: Outcome) -> None:
    """It worked, or one sentence names the option or its value; nothing was written then."""
    told = f"{case.arguments}: {outcome.code} {outcome.err}"
    assert outcome.code in (0, 1, 2), told
    assert not re.search(r"unexpected \w*(Error|Exception)|Traceback", outcome.err), told
    sentences = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(sentences) <= 1, told
    if outcome.code == 0 or not sentences:  # `status` and `doctor` list troubles on stdout
        return
    named = (*names(case.parameter), *quotes(case.value), " --", "`--")  # or a flag that is missing
    assert any(name in outcome.err for name in named), told
    assert not outcome.written, f"{told} wrote {sorted(outcome.written)}"


def names(parameter) -> set[str]:
    keys = [row.key.split(".")[1:] for row in ROWS if row.key and row.name == parameter.name]
    return {*parameter.opts, *parameter.secondary_opts, *(part for key in keys for part in key)}


def quotes(value: str | None) -> set[str]:
    return set() if value is None else {value[:20], visible(value)[:20], repr(value)[1:20]}
