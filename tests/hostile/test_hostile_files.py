"""Files of ours that somebody has changed: they are read, or a sentence says what is wrong."""

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import spoilt_bytes, spoilt_tree
from victims import CONFIG, TABLE, assert_civil, motet, quietly

from motet.data import Pathological, load, rebuild
from motet.errors import MotetError

MANIFEST = load("digits", Pathological(clients=4, classes=2)).manifest()
DEEP = "[" * 100_000


def output_of(command, extra=""):
    """Run a command once, and return the files it leaves."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("c.toml").write_text(CONFIG + extra)
        Path("t.csv").write_text(TABLE)
        assert quietly(command, "c.toml", "--out", "out", "--quiet") == 0
        return {str(p): p.read_bytes() for p in Path("out").rglob("*") if p.is_file()} | {
            "t.csv": TABLE.encode()
        }


@pytest.fixture(scope="module")
def compared():
    return output_of("compare", '\n[compare]\nmethods = ["local", "fedper"]\n')


@pytest.fixture(scope="module")
def trained():
    return output_of("run")


def report(files):
    return motet(files, "report", "out", "-o", "page.html", "--quiet")


def test_the_files_that_are_spoilt_are_good_ones(compared, trained):
    assert report(compared).code == 0
    assert report(trained).code == 0


@settings(max_examples=40)
@given(st.data())
def test_a_page_of_a_changed_comparison_is_drawn_or_refused(compared, data):
    found = data.draw(spoilt_tree(json.loads(compared["out/comparison.json"])))
    assert_civil(report(compared | {"out/comparison.json": json.dumps(found)}))


@settings(max_examples=25)
@given(st.data())
def test_a_page_of_a_run_with_changed_records_is_drawn_or_refused(trained, data):
    name = data.draw(st.sampled_from(("data.json", "rounds.jsonl", "timings.jsonl")))
    found = data.draw(spoilt_tree(json.loads(trained[f"out/{name}"])))
    assert_civil(report(trained | {f"out/{name}": json.dumps(found)}))


@settings(max_examples=25)
@given(st.data())
def test_spoilt_bytes_of_any_file_are_a_page_or_a_sentence(compared, data):
    name = data.draw(st.sampled_from(("comparison.json", "config.toml", "data.json")))
    spoilt = data.draw(spoilt_bytes(compared[f"out/{name}"]))
    assert_civil(report(compared | {f"out/{name}": spoilt}))


@settings(max_examples=12)
@given(st.data())
def test_a_comparison_is_resumed_with_changed_results_or_refused(compared, data):
    first, *_ = compared["out/results.jsonl"].splitlines()
    found = json.dumps(data.draw(spoilt_tree(json.loads(first))))
    files = compared | {"out/results.jsonl": found + "\n"}
    assert_civil(motet(files, "resume", "out", "--quiet"))


@settings(max_examples=10)
@given(st.data())
def test_a_run_is_resumed_with_a_changed_manifest_or_refused(trained, data):
    found = data.draw(spoilt_tree(json.loads(trained["out/data.json"])))
    files = trained | {"out/data.json": json.dumps(found)}
    assert_civil(motet(files, "resume", "out", "--quiet"))


@pytest.mark.parametrize("name", ["comparison.json", "data.json", "results.jsonl"])
@pytest.mark.parametrize(
    "contents", [DEEP, "[]", "null", "9" * 10_000, "\ud800".encode("utf-8", "surrogatepass")]
)
def test_json_of_another_kind_is_a_sentence(compared, name, contents):
    assert_civil(report(compared | {f"out/{name}": contents}))
    assert_civil(motet(compared | {f"out/{name}": contents}, "resume", "out", "--quiet"))


@settings(max_examples=60)
@given(
    st.one_of(spoilt_tree(MANIFEST).map(json.dumps), spoilt_bytes(json.dumps(MANIFEST).encode()))
)
def test_a_changed_manifest_is_rebuilt_to_the_row_or_refused(tmp_path_factory, changed):
    path = tmp_path_factory.getbasetemp() / "manifest.json"
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with contextlib.suppress(MotetError):  # anything else would be a traceback
        assert rebuild(path).hash == MANIFEST["hash"]


def test_a_run_never_follows_a_link_out_of_its_directory(tmp_path):
    """Files are replaced, not written through."""
    outside = tmp_path / "precious"
    outside.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "data.json").symlink_to(outside)
    (tmp_path / "c.toml").write_text(CONFIG)
    (tmp_path / "t.csv").write_text(TABLE)
    with contextlib.chdir(tmp_path):
        # A link in the place of a file of ours is another's, so the directory is refused.
        assert quietly("run", "c.toml", "--out", "out", "--quiet") == 2
    assert outside.read_text() == "precious"
    assert (out / "data.json").is_symlink()
