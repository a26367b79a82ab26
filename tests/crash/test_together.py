"""Commands started together on one directory: one works, the others are refused, nothing is mixed.

`MOTET_RACES=50` tries every combination so often.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from saved import assert_same_run
from together import MAKERS

HERE = Path(__file__).parent
REFUSED = re.compile(
    r"error: (another process is at work in|\S+ (already holds a run|holds no run)).*\n\Z"
)


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    root = tmp_path_factory.mktemp("together")
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, HERE / "together.py", root, "0", os.environ.get("MOTET_RACES", "1")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return json.loads((root / "races.json").read_text())


def test_whoever_does_not_work_is_refused_in_a_sentence(races):
    for race in races:
        for end in (*race["ends"], *race.get("again", ())):
            if end["code"] != 0 and not (race["killed"] and end["code"] == -9):
                assert end["code"] == 2, race
                assert REFUSED.search(end["said"]), race


def test_somebody_works_whenever_there_is_something_to_do(races):
    for race in races:
        could = race["before"] == "run" or {end["command"] for end in race["ends"]} != {"resume"}
        codes = [end["code"] for end in race["ends"]]
        if could and -9 not in codes and not only_refused(race):
            assert 0 in codes, race


def only_refused(race):
    """A run is there, and nobody may replace it or asks to go on with it."""
    asked = {end["command"] for end in race["ends"]}
    return race["before"] == "run" and asked <= {"run", "compare"}


def test_some_of_them_meet(races):
    said = " ".join(end["said"] for race in races for end in race["ends"])
    assert said.count("another process is at work") >= 5


def test_what_is_left_is_the_clean_result_of_one_of_them(races):
    for race in races:
        path, root = Path(race["path"]), Path(race["path"]).parent
        if not (path / "config.toml").exists():
            assert race["ends"][0]["code"] in (-9, 2), race
            continue
        ends = [*race["ends"], *race.get("again", ())]
        if unfinished(race):
            continue
        made = {c: root / f"clean-{c}" for c in MAKERS}
        text = (path / "config.toml").read_text()
        (clean,) = (c for c in made.values() if (c / "config.toml").read_text() == text)
        assert_clean(clean, path, ends)


def unfinished(race):
    """The last to work was killed, and the command given again may not touch what it left."""
    return race["killed"] and race["again"][0]["code"] != 0


def assert_clean(clean, path, ends):
    names = [sorted(str(p.relative_to(at)) for p in at.rglob("*")) for at in (clean, path)]
    assert names[0] == names[1], ends
    if (clean / "rounds.jsonl").exists():
        assert_same_run(clean, path)
        timings = [(at / "timings.jsonl").read_text().count("\n") for at in (clean, path)]
        assert timings[0] == timings[1]
    else:
        for name in ("data.json", "comparison.json", "results.jsonl"):
            assert without_times(clean / name) == without_times(path / name), ends


def without_times(path):
    return re.sub(r'"seconds": [0-9.e-]+', "", path.read_text())
