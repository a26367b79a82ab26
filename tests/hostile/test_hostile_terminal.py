"""Whatever names and cells hold, nothing in it can steer, hide in or forge lines on a terminal."""

import contextlib
import io
import json
import re
import tempfile
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from rich.console import Console

from motet._cli.drawing import drawn
from motet._cli.main import call
from motet._cli.standings import Standings
from motet._core.visible_text import visible, visible_json

OURS = re.compile(r"\x1b\[(0|1|31|33)m")  # the colours of "error:" and "warning:"
STEERING = (
    "\x1b[2J", "\x1b[8m", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1bc",
    "\x9b2J", "\x9d0;t\x9c",
    "\r", "\x08\x08", "\x00", "\x7f", "\x0b", "\x0c", "\x85", "\u2028", "\u2029",
    "\u202e", "\u2066", "\u2069", "\u200f", "\u061c", "\u200b", "\u200d", "\u2060", "\ufeff",
    "\u00ad", "\u034f", "\u115f", "\u3164", "\ufe0f", "\U000e0041", "\U000e0100", "\udcff",
)  # fmt: skip
FORGED = "forged: all is well"
NAMES = st.lists(
    st.one_of(st.sampled_from(STEERING), st.text(st.characters(), max_size=3)), max_size=4
).map("".join)
HOSTILE = st.builds(lambda text, bad: f"a{text}{bad}z\n{FORGED}", NAMES, st.sampled_from(STEERING))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(*arguments, stream=Terminal):
    """Call `motet`; return what it wrote to both streams."""
    out, err = stream(), stream()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call([str(argument) for argument in arguments])
    assert "unexpected" not in err.getvalue(), err.getvalue()
    return code, out.getvalue(), err.getvalue()


def assert_harmless(*texts):
    for text in texts:
        shown = OURS.sub("", text)
        hidden = {c for c in shown if is_hidden(c)} - {"\n"}
        assert not hidden, ascii(shown)
        assert not any(line.startswith(FORGED) for line in shown.splitlines()), ascii(shown)


def is_hidden(character):
    """What Unicode calls control, format, surrogate, line or paragraph end, or draws as nothing."""
    return (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        or character in "\u034f\u115f\u1160\u3164\uffa0\ufe0f\U000e0100"
    )


@given(st.text(st.characters()))
def test_what_is_spelled_out_has_nothing_hidden_and_json_keeps_its_value(text):
    assert_harmless(visible(text), visible_json(json.dumps(text, ensure_ascii=False)))
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as parent:
        yield Path(parent)


def written(folder, name, columns):
    """Write a table; what cannot be a file's name or a table is left out."""
    safe = name.replace("/", "").replace("\x00", "")[:60]
    path = folder / f"{safe}.parquet"
    plain = {clean(key): [clean(cell) for cell in cells] for key, cells in columns.items()}
    try:
        parquet.write_table(pa.table(plain), path)
    except (OSError, UnicodeEncodeError):  # too long for a name
        path = folder / "t.parquet"
        parquet.write_table(pa.table(plain), path)
    return path


def clean(cell):
    """Arrow's text is UTF-8."""
    return cell.encode("utf-8", "replace").decode() if isinstance(cell, str) else cell


@settings(max_examples=30)
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, st.booleans())
def test_names_of_clients_columns_files_and_labels_are_shown_as_they_are(
    folder, client, column, file, label, as_json
):
    columns = {
        "site": [client, "b"] * 10,
        column: list(range(20)),
        "sick": [label, label, "no", "no"] * 5,
    }
    path = written(folder, file, columns)
    options = ["--json"] if as_json else []
    asked = ["data", "--table", path, "--client-column", "site", "--target", "sick", *options]
    code, out, err = said(*asked)
    assert code == 0, err
    assert_harmless(out, err)
    if as_json:
        assert " ".join(clean(client).split()) in json.loads(out)["sizes"]


@settings(max_examples=30)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_errors_show_what_they_quote(folder, column, cell, file):
    text = {"site": ["a", "b"] * 3, column: [cell] * 6, "sick": [0, 1] * 3}
    path = written(folder, file, text)
    table = ["data", "--table", path, "--client-column", "site"]
    for arguments in (
        [*table, "--target", "sick"],  # a column of text
        [*table, "--target", column],
        [*table, "--target", f"no {column}"],
        ["data", file],
        ["run", "--method", file],
        ["run", "--set", file],
        ["resume", folder / file.replace("\x00", "")],
        ["report", folder / file.replace("\x00", "")],
        [file],
    ):
        code, out, err = said(*arguments)
        assert code in (0, 1, 2)
        assert_harmless(out, err)
        # What was repaired on the way is told in lines of its own.
        assert sum("warning:" not in line for line in err.splitlines()) <= 1


@given(st.binary(max_size=60), st.sampled_from(STEERING[:-1]))
def test_a_table_that_cannot_be_read_is_quoted_harmlessly(folder, junk, bad):
    path = folder / "broken.csv"
    path.write_bytes(b"a,b,c\n1,2\n" + bad.encode() + junk + b"\n1,2,3,4\n")
    asked = ("--client-column", "a", "--target", "b")
    code, out, err = said("data", "--table", path, *asked)
    assert code == 2
    assert_harmless(out, err)


def test_a_run_and_a_comparison_of_hostile_names_show_them_harmlessly(folder, monkeypatch):
    monkeypatch.chdir(folder)
    client, column = "a\x1b[2J\u202e\nforged: all is well", "age\x9b2J"
    columns = {"site": [client, "b"] * 12, column: list(range(24)), "sick": [0, 0, 1, 1] * 6}
    path = written(folder, "t\x1b[8m\u200b", columns)
    table = ["--table", path, "--client-column", "site", "--target", "sick", "--model", "logistic"]
    label = json.dumps("mine\u001b[2J\u202e\nforged: all is well")
    entry = f'compare.methods={{ {label} = {{ name = "fedper" }} }}'
    for number, command in enumerate(
        (
            ["run", "--method", "fedper", *table],
            ["run", "--method", "fedper", "--lr", "1e30", *table],
            ["compare", "--seeds", "1", "--methods", "local", *table],
            ["compare", "--set", entry, *table],
        )
    ):
        for options in ([], ["--json"]):
            out = folder / f"out{number}{len(options)}\x1b[2J"
            asked = [*command, "--rounds", "1", "--out", out, *options]
            assert_harmless(*said(*asked, stream=io.StringIO)[1:])


def test_the_live_table_shows_labels_harmlessly():
    screen = Console(file=io.StringIO(), width=70, height=20)
    standings = Standings([("a\x1b[2J\u202eb\nforged: all is well", 0)], 3)
    screen.print(drawn(standings, screen, told=""))
    assert_harmless(screen.file.getvalue())
