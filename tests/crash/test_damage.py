"""Damaged files and a full disk: a run goes on to the right numbers, or says what is wrong."""

import os
import resource
import shutil

import pytest
from saved import assert_same_run
from worlds import world

from motet._core.keys import Key
from motet._runs.recorded_run import begin, resume
from motet.errors import MotetError

EXPERIMENT = world("fedper", "disk", rounds=3)
FILES = (
    "config.toml",
    "data.json",
    "rounds.jsonl",
    "timings.jsonl",
    "clients.parquet",
    "checkpoint/state.sqlite",
    "checkpoint/state.sqlite-wal",
)
FLIPS = 40


def finish(session):
    with session.directory:
        for _ in session.rounds():
            pass
        session.conclude()
    return session.run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    finish(begin(EXPERIMENT, path))
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A directory as a process leaves it that is killed after two of three rounds."""
    root = tmp_path_factory.mktemp("runs")
    session = begin(EXPERIMENT, root / "open")
    with session.directory:
        for _, _ in zip(range(2), session.rounds(), strict=False):
            pass
        return shutil.copytree(root / "open", root / "killed")


def outcome(path, whole):
    """Go on with a damaged run; say how that ended, unless it ended with wrong numbers."""
    try:
        run = finish(resume(path))
    except MotetError:  # anything else would be a traceback
        return "refused"
    if run.warnings:
        assert all("starts afresh" in warning for warning in run.warnings)
        return "told"
    assert_same_run(whole, path)
    return "same"


@pytest.mark.parametrize("file", FILES)
def test_a_file_cut_short_anywhere_gives_the_right_numbers_or_a_sentence(
    tmp_path, whole, killed, file
):
    outcomes = set()
    size = (killed / file).stat().st_size
    for length in sorted({0, 1, size // 3, size * 9 // 10, size - 2}):
        path = shutil.copytree(killed, tmp_path / str(length))
        os.truncate(path / file, length)
        outcomes.add(outcome(path, whole))
    if file in ("rounds.jsonl", "timings.jsonl", "clients.parquet"):
        assert outcomes == {"same"}  # they are made again from the checkpoint


@pytest.mark.parametrize("file", FILES[2:])
def test_a_lost_record_is_made_again_and_a_lost_checkpoint_begins_again(
    tmp_path, whole, killed, file
):
    path = shutil.copytree(killed, tmp_path / "lost")
    (path / file).unlink()
    assert outcome(path, whole) in ("same", "refused")


def flip(file, rng):
    contents = bytearray(file.read_bytes())
    contents[rng.integers(len(contents))] ^= 1 << rng.integers(8)
    file.write_bytes(contents)


def test_a_bit_flipped_anywhere_gives_the_right_numbers_or_is_told(tmp_path, whole):
    rng, outcomes = Key(0).fold("flips").numpy(), set()
    for number in range(FLIPS):
        path = shutil.copytree(whole, tmp_path / str(number))
        flip(path / "checkpoint" / "state.sqlite", rng)
        outcomes.add(outcome(path, whole))
    assert outcomes == {"refused", "told", "same"}  # "same": what nobody reads any more


def test_a_bit_flipped_in_the_log_goes_back_to_an_earlier_save(tmp_path, whole, killed):
    rng = Key(1).fold("flips").numpy()
    for number in range(FLIPS // 2):
        path = shutil.copytree(killed, tmp_path / str(number))
        flip(path / "checkpoint" / "state.sqlite-wal", rng)
        assert outcome(path, whole) == "same"


@pytest.mark.parametrize("limit", [100, 1_000, 5_000, 20_000, 60_000])
def test_a_disk_that_is_full_is_a_sentence_and_the_run_goes_on_when_there_is_room(
    tmp_path, whole, limit
):
    """No file may grow beyond the limit, which is how a quota shows itself."""
    path = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(MotetError, match="cannot be"):
            finish(begin(EXPERIMENT, path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    again = resume(path) if (path / "config.toml").exists() else begin(EXPERIMENT, path)
    finish(again)
    assert_same_run(whole, path)
