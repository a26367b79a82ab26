"""Finding the files of a data set, checking them, and caching their decoded form."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from motet.data import load
from motet.data._registry import dataset, names
from motet.data._sets.cache import cached
from motet.data._sets.files import Source, locate, open_arrays
from motet.errors import DataError

CONTENTS = b"one two three " * 100
SUM = hashlib.sha256(CONTENTS).hexdigest()
WHERE = "it is at https://example.org/toy."


@pytest.fixture(autouse=True)
def empty_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def put(path: Path, contents: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return path


def toy(sum_: str | None = SUM, decode=None) -> Source:
    def read(held):
        return {"x": np.frombuffer(held.read("toy.bin"), np.uint8)}

    return Source(("toy", "toy/raw"), {"toy.bin": sum_}, decode or read)


def test_the_error_for_a_missing_file_says_where_it_belongs_and_where_to_get_it(tmp_path):
    with pytest.raises(DataError) as refusal:
        open_arrays("toy", [toy()], WHERE)
    sentence = str(refusal.value)
    assert "toy.bin" in sentence
    assert str(tmp_path / "data" / "toy") in sentence
    assert str(tmp_path / "home" / ".cache" / "motet" / "toy") in sentence
    assert WHERE in sentence
    assert "MOTET_DATA" in sentence


def test_the_error_for_an_incomplete_folder_names_the_missing_files(tmp_path):
    put(tmp_path / "data/toy/a", b"")
    with pytest.raises(DataError, match="data/toy lacks b, c"):
        locate("toy", [Source(("toy",), dict.fromkeys("abc"), dict)], WHERE)


WITHOUT_FILES = {"digits", "medpar", "rand-hie"}  # they come with a package


@pytest.mark.parametrize("name", sorted({*names()} - WITHOUT_FILES))
def test_every_data_set_says_what_to_do_when_its_files_are_missing(name):
    with pytest.raises(DataError) as refusal:
        load(name)
    assert "https://" in str(refusal.value) or "http://" in str(refusal.value)
    assert "MOTET_DATA" in str(refusal.value)


@pytest.mark.parametrize("name", names())
def test_every_data_set_is_registered_under_its_own_name(name):
    entry = dataset(name)
    assert entry.name == name
    assert (entry.default_partition is None) == entry.natural


def test_motet_data_takes_precedence_over_the_home_folder(tmp_path):
    put(tmp_path / "home/.cache/motet/toy/toy.bin", CONTENTS)
    at_home = locate("toy", [toy()], WHERE).paths["toy.bin"]
    named = put(tmp_path / "data/toy/raw/toy.bin", CONTENTS)
    assert at_home == tmp_path / "home/.cache/motet/toy/toy.bin"
    assert locate("toy", [toy()], WHERE).paths["toy.bin"] == named


def test_a_file_with_another_checksum_is_refused_by_name(tmp_path):
    path = put(tmp_path / "data/toy/toy.bin", CONTENTS[:-1] + b"!")
    with pytest.raises(DataError) as refusal:
        open_arrays("toy", [toy()], WHERE)
    assert str(path) in str(refusal.value)
    assert SUM[:12] in str(refusal.value)
    assert "Get it again" in str(refusal.value)


@pytest.mark.parametrize("level", [1, 9])
def test_the_checksum_of_a_gzipped_file_is_that_of_its_contents(tmp_path, level):
    put(tmp_path / "data/toy/toy.bin.gz", gzip.compress(CONTENTS, level))
    assert open_arrays("toy", [toy()], WHERE)["x"].tobytes() == CONTENTS


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path):
    path = put(tmp_path / "data/toy/toy.bin.gz", gzip.compress(CONTENTS)[:-12])
    with pytest.raises(DataError, match="cannot be unpacked") as refusal:
        open_arrays("toy", [toy()], WHERE)
    assert str(path) in str(refusal.value)


def test_a_file_is_decoded_once_until_it_changes(tmp_path):
    decoded = []

    def decode(held):
        decoded.append(held.read("toy.bin"))
        return {"x": np.frombuffer(decoded[-1], np.uint8)}

    for contents in (b"first", b"first", b"second", b"first"):
        put(tmp_path / "data/toy/toy.bin", contents)
        arrays = open_arrays("toy", [toy(sum_=None, decode=decode)], WHERE)
        assert arrays["x"].tobytes() == contents
    assert decoded == [b"first", b"second"]


def test_kept_arrays_are_read_only_memory_maps(tmp_path):
    arrays = cached("entry", lambda: {"x": np.arange(6).reshape(2, 3), "who": np.array(["a", "b"])})
    assert isinstance(arrays["x"], np.memmap)
    assert not arrays["x"].flags.writeable
    assert arrays["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["who"].tolist() == ["a", "b"]


def test_an_entry_that_could_not_be_written_completely_is_not_kept(tmp_path, monkeypatch):
    def save_then_fill_the_disk(path, array, **_):
        Path(path).write_bytes(b"half a fi")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", save_then_fill_the_disk)
    arrays = cached("entry", lambda: {"x": np.arange(3)})
    assert arrays["x"].tolist() == [0, 1, 2]
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_entry_whose_decoder_failed_is_not_kept(tmp_path):
    def refuse():
        raise DataError("damaged")

    with pytest.raises(DataError):
        cached("entry", refuse)
    assert cached("entry", lambda: {"x": np.arange(3)})["x"].tolist() == [0, 1, 2]


def test_without_a_writable_cache_the_arrays_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_CACHE", str(put(tmp_path / "a_file", b"")))
    arrays = cached("entry", lambda: {"x": np.arange(3)})
    assert not isinstance(arrays["x"], np.memmap)
    assert arrays["x"].tolist() == [0, 1, 2]


def test_when_another_process_is_faster_its_entry_is_used(tmp_path):
    def build_while_another_does():
        cached("entry", lambda: {"x": np.arange(3)})
        return {"x": np.arange(3)}

    assert isinstance(cached("entry", build_while_another_does)["x"], np.memmap)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("remains", [b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_a_damaged_entry_is_built_again(tmp_path, remains):
    cached("entry", lambda: {"x": np.arange(3)})
    [path] = (tmp_path / "cache").glob("*/x.npy")
    path.write_bytes(remains)
    arrays = cached("entry", lambda: {"x": np.arange(4)})
    assert arrays["x"].tolist() == [0, 1, 2, 3]
    assert isinstance(arrays["x"], np.memmap)
