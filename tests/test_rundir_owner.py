"""A run directory has one owner and one history, whatever is left in it or happens to it."""

import fcntl
import shutil
from contextlib import closing
from dataclasses import replace
from itertools import combinations

import pytest
from saved import assert_same_run

import motet
from motet._compare.comparison_dir import ComparisonDirectory
from motet._core import directory_lock
from motet._core.directory_lock import DirectoryLock
from motet._export.saved import saved_run
from motet._runs import leftovers
from motet._runs.recorded_run import begin, resume
from motet._runs.run_dir import RunDirectory
from motet.config import Experiment, ModelChoice, NamedData, RunChoice
from motet.data import Pathological
from motet.errors import StateError

STORES = ("memory", "disk")
DATA = NamedData(partition=Pathological(clients=4, classes=2))


def experiment(store="memory", seed=0, **run):
    settings = {"rounds": 2, "cohort": 0.5, "checkpoint_every": 1, "backend": "serial", **run}
    return Experiment(
        method=motet.FedPer(),
        data=DATA,
        model=ModelChoice(name="logistic"),
        run=RunChoice(seed=seed, store=store, **settings),
    )


def finish(session):
    with session.directory:
        list(session.rounds())
        session.conclude()


def names(path):
    return sorted(str(below.relative_to(path)) for below in path.rglob("*"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Clean runs, by store and seed."""
    root = tmp_path_factory.mktemp("clean")
    made = {}
    for store in STORES:
        for seed in (0, 7):
            made[store, seed] = root / f"{store}-{seed}"
            finish(begin(experiment(store, seed), made[store, seed]))
    return made


# --- what is left ----------------------------------------------------------------------------

REMOVABLE = ("config.toml", "data.json", "rounds.jsonl", "clients.parquet", "timings.jsonl")


@pytest.mark.parametrize("store", STORES)
def test_what_is_left_of_a_run_without_its_config_is_never_used(tmp_path, runs, store):
    """Whichever other files were deleted by hand."""
    others = [c for n in range(len(REMOVABLE)) for c in combinations(REMOVABLE[1:], n)]
    for number, gone in enumerate(others[:: 3 if store == "disk" else 8]):
        path = shutil.copytree(runs[store, 7], tmp_path / str(number))
        for name in ("config.toml", *gone):
            (path / name).unlink()
        with pytest.raises(StateError, match="holds no run"):
            resume(path)
        finish(begin(experiment(store), path))
        assert_same_run(runs[store, 0], path)
        assert names(path) == names(runs[store, 0])


def test_a_log_that_a_crash_left_beside_the_checkpoint_goes_too(tmp_path, runs):
    path = tmp_path / "run"
    session = begin(experiment("disk", seed=7), path)
    with session.directory:
        next(session.rounds())
        copy = shutil.copytree(path, tmp_path / "copy")
    assert (copy / "checkpoint" / "state.sqlite-wal").exists()
    (copy / "config.toml").unlink()
    (copy / ".rounds.jsonl.unfinished").write_text("half of it")
    finish(begin(experiment("disk"), copy))
    assert_same_run(runs["disk", 0], copy)
    assert names(copy) == names(runs["disk", 0])


def test_overwriting_begins_a_new_record_of_times(tmp_path, runs):
    path = shutil.copytree(runs["memory", 7], tmp_path / "run")
    session = begin(experiment(rounds=1), path, overwrite=True)
    assert names(path) == ["config.toml", "data.json"]
    finish(session)
    assert (path / "timings.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("name", [*leftovers.SIGNS, "checkpoint/state.sqlite"])
@pytest.mark.parametrize("contents", ["mine", '{"mine": 1}\n', "<html></html>"])
def test_a_file_of_somebody_else_is_never_touched(tmp_path, name, contents):
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text(contents)
    for overwrite in (False, True):
        with pytest.raises(StateError, match=rf"{name} was not written by Motet.*--out"):
            begin(experiment(), tmp_path / "run", overwrite=overwrite)
    assert [p for p in (tmp_path / "run").rglob("*") if p.is_file()] == [file]
    assert file.read_text() == contents


def test_a_directory_with_other_files_is_fine(tmp_path, runs):
    (tmp_path / "notes.txt").write_text("mine")
    finish(begin(experiment(), tmp_path))
    assert_same_run(runs["memory", 0], tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_request_that_fails_leaves_the_run_that_it_would_have_replaced(tmp_path, runs):
    path = shutil.copytree(runs["disk", 0], tmp_path / "run")
    wrong = replace(experiment(), method=motet.FedPer(personal=("haed",)))
    with pytest.raises(motet.errors.SelectorError):
        begin(wrong, path, overwrite=True)
    assert_same_run(runs["disk", 0], path)
    RunDirectory.open(path).close()  # and lets go of it


@pytest.mark.parametrize("store", STORES)
def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path, runs, store):
    """Of the same method on the same data, so that only its history tells it apart."""
    path = shutil.copytree(runs[store, 0], tmp_path / "run")
    shutil.rmtree(path / "checkpoint")
    shutil.copytree(runs[store, 7] / "checkpoint", path / "checkpoint")
    ids = [RunDirectory(runs[store, seed]).history for seed in (7, 0)]
    assert ids[0] != ids[1]
    with pytest.raises(
        StateError, match=f"belongs to run {ids[0]}; the directory holds run {ids[1]}"
    ):
        resume(path)
    with pytest.raises(StateError, match="belongs to run"), saved_run(path):
        pass


# --- what happens to it ----------------------------------------------------------------------


def removed(path, name):
    target = path / name if name else path
    shutil.rmtree(target) if target.is_dir() else target.unlink()


def moved(path, name):
    target = path / name if name else path
    target.rename(target.with_name("elsewhere"))


def replaced(path, name):
    target = path / name if name else path
    copy = target.with_name("copy")
    (shutil.copytree if target.is_dir() else shutil.copy)(target, copy)
    removed(path, name)
    copy.rename(target)


PARTS = ("", "checkpoint", "checkpoint/state.sqlite", "checkpoint/state.sqlite-wal", *REMOVABLE[:3])


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("accident", [removed, moved, replaced], ids=lambda f: f.__name__)
def test_a_part_that_vanishes_while_a_run_works_is_made_again_or_said(
    tmp_path, runs, store, part, accident
):
    path = tmp_path / "run"
    session = begin(experiment(store), path)
    with session.directory:
        rounds = session.rounds()
        next(rounds)
        accident(path, part)
        if part in REMOVABLE:
            list(rounds)
            session.conclude()
        else:
            with pytest.raises(StateError, match="was removed, moved or replaced while"):
                list(rounds)
    if part in REMOVABLE:
        assert_same_run(runs[store, 0], path)


def test_a_run_never_writes_into_the_directory_that_took_the_place_of_its_own(tmp_path, runs):
    path = tmp_path / "run"
    session = begin(experiment("disk", seed=7), path)
    with session.directory:
        rounds = session.rounds()
        next(rounds)
        path.rename(tmp_path / "elsewhere")
        finish(begin(experiment("disk"), path))
        with pytest.raises(StateError, match="was removed, moved or replaced"):
            list(rounds)
    assert_same_run(runs["disk", 0], path)


@pytest.mark.parametrize("kind", [RunDirectory, ComparisonDirectory])
@pytest.mark.parametrize("accident", [removed, moved, replaced], ids=lambda f: f.__name__)
def test_no_file_is_written_where_another_directory_is_now(tmp_path, runs, kind, accident):
    path = shutil.copytree(runs["memory", 0], tmp_path / "run")
    with kind.open(path) as directory:
        accident(path, "")
        before = names(tmp_path)
        for write in (
            lambda: directory.append("rounds.jsonl", {}),
            lambda: directory.replace("tuned.toml", b""),
        ):
            with pytest.raises(StateError, match="was removed, moved or replaced"):
                write()
    assert names(tmp_path) == before


# --- who holds it ----------------------------------------------------------------------------


def test_a_directory_that_was_made_for_nothing_is_removed(tmp_path):
    with pytest.raises(motet.errors.SelectorError):
        begin(replace(experiment(), method=motet.FedPer(personal=("haed",))), tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_hold_on_a_directory_that_was_removed_is_no_hold_on_its_successor(tmp_path):
    path = tmp_path / "held"
    with closing(DirectoryLock.take(path, make=True)) as first:
        path.rmdir()
        with closing(DirectoryLock.take(path, make=True)) as second:
            assert second.is_current
            assert not first.is_current
        assert not path.exists()
    with pytest.raises(FileNotFoundError):
        DirectoryLock.take(path)


def test_a_directory_that_is_replaced_before_it_is_locked_is_opened_again(tmp_path, monkeypatch):
    path, flock = tmp_path / "held", fcntl.flock
    path.mkdir()

    def late(descriptor, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.rmdir()
        path.mkdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with closing(DirectoryLock.take(path)) as hold:
        assert hold.is_current
        with pytest.raises(StateError, match="another process is at work"):
            DirectoryLock.take(path)


def test_who_finds_a_new_directory_taken_does_not_remove_it(tmp_path, monkeypatch):
    path, lock = tmp_path / "run", directory_lock._locked
    faster = []

    def locked(folder):  # another process saw no directory, either, and is the first to lock it
        faster.append(DirectoryLock(folder, lock(folder), [folder]))
        return lock(folder)

    monkeypatch.setattr(directory_lock, "_locked", locked)
    with pytest.raises(StateError, match="another process is at work"):
        DirectoryLock.take(path, make=True)
    assert faster[0].is_current
    faster[0].close()
    assert not path.exists()


def test_a_claim_is_known_to_others_before_any_work_is_done(tmp_path):
    path = tmp_path / "run"
    with RunDirectory.claim(path):
        for other in (lambda: begin(experiment(), path), lambda: RunDirectory.claim(path)):
            with pytest.raises(StateError, match="another process is at work"):
                other()
    assert not path.exists()


def test_runs_without_a_name_get_a_directory_each(tmp_path):
    with (
        RunDirectory.claim_next(tmp_path, "fedper") as first,
        RunDirectory.claim_next(tmp_path, "fedper") as second,
    ):
        assert [first.path.name, second.path.name] == ["fedper-1", "fedper-2"]


def test_a_run_can_be_opened_where_nothing_may_be_written(tmp_path, runs):
    path = shutil.copytree(runs["memory", 0], tmp_path / "run")
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    path.chmod(0o555)
    try:
        with RunDirectory.open(path) as directory:
            assert directory.tables()["run"]["rounds"] == 2
    finally:
        path.chmod(0o755)
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
