"""What no `kill -9` shows: the system keeps what a dead process wrote; a power cut does not."""

import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from motet._core.atomic import write_atomically
from motet._runs.checkpoint import disk_store


@contextmanager
def no_file_beyond(limit):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_ends_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with no_file_beyond(1000), pytest.raises(OSError, match="too large"):
        write_atomically(path, b"new" * 1000)
    assert path.read_bytes() == b"old"


def test_a_file_is_on_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    path, steps = tmp_path / "file", []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor):
        steps.append("folder" if os.path.sameopenfile(descriptor, folder) else "file")
        sync(descriptor)

    def replaced(unfinished, target):
        steps.append("replace")
        return replace(unfinished, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        write_atomically(path, b"new")
    finally:
        os.close(folder)
    assert steps == ["file", "replace", "folder"]


def test_a_commit_waits_for_the_disk_and_is_whole(tmp_path):
    store = disk_store(tmp_path)
    try:
        assert store.database.rows((str,), "PRAGMA journal_mode") == [("wal",)]
        assert store.database.rows((int,), "PRAGMA synchronous") == [(2,)]  # FULL
    finally:
        store.close()
