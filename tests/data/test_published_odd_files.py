"""Odd files of published data sets: read rightly, or refused in one sentence."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from motet.data import load
from motet.data._sets import librispeech
from motet.errors import DataError, MotetError

h5py = pytest.importorskip("h5py")
Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")
PAPER = [[0.5] * 784] * 3


def write_leaf(root, name: str, users: dict[str, tuple], copies: int = 1) -> None:
    """Write LEAF's files, with the same names in both folders."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    first = dict([next(iter(data.items()))])
    for split, held in (("train", data), ("test", first)):
        folder = root / name / split
        folder.mkdir(parents=True)
        for copy in range(copies if split == "train" else 1):
            text = json.dumps({"users": list(held), "user_data": held})
            (folder / f"data_{copy}.json").write_text(text, encoding="utf-8")


def test_files_of_one_name_in_train_and_test_are_two_files(root):
    write_leaf(root, "femnist", {"a": (PAPER, [1, 2, 3]), "Ж 漢字 👩‍💻": (PAPER, [4, 5, 6])})
    data = load("femnist", val=0.0)
    assert data.sizes("train") == {"a": 3, "Ж 漢字 👩‍💻": 3}
    assert data.sizes("test")["a"] == 3


@pytest.mark.parametrize(
    ("users", "complaint"),
    [
        ({"a": (PAPER, [1, 2.5, 3])}, 'labels of "a" should be 0 to 61; found 2.5'),
        ({"a": (PAPER, [[1, 2], [3, 4], [5, 6]])}, 'labels of "a" should have 1 numbers'),
        ({"a": ([[200] * 784] * 3, [1, 2, 3])}, r"0 \(ink\) to 1 \(paper\); found 200 to 200"),
        ({"a\0": (PAPER, [1, 2, 3])}, r'a name in Unicode; found "a\\x00"'),
        ({"\ud800": (PAPER, [1, 2, 3])}, "a name in Unicode"),
        ({" ": (PAPER, [1, 2, 3])}, "a name in Unicode"),
        ({"a": ([], [])}, "no client has rows to train on|hold no writer"),
    ],
)
def test_odd_users_of_leaf_are_refused(root, users, complaint):
    write_leaf(root, "femnist", users)
    with pytest.raises(DataError, match=complaint):
        load("femnist")


def test_packed_files_are_read_and_notes_of_macos_are_not(root):
    write_leaf(root, "femnist", {"a": (PAPER, [1, 2, 3])})
    for path in sorted((root / "femnist").rglob("*.json")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7Mac OS X")
    assert load("femnist", val=0.0).sizes("test") == {"a": 3}


def test_a_packed_hdf5_file_is_refused_with_the_command_that_unpacks_it(root):
    (root / "femnist").mkdir(parents=True)
    for split in ("train", "test"):
        (root / "femnist" / f"fed_emnist_{split}.h5.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError, match=r"is packed, .*: gunzip fed_emnist_train\.h5\.gz"):
        load("femnist")


@pytest.mark.parametrize("users", [["a", "b"], None])
def test_a_missing_user_or_key_of_leaf_is_named(root, users):
    write_leaf(root, "femnist", {"a": (PAPER, [1, 2, 3])})
    path = root / "femnist" / "train" / "data_0.json"
    contents = json.loads(path.read_text(encoding="utf-8"))
    changed = {"user_data": contents["user_data"]} | ({"users": users} if users else {})
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(DataError, match="'b' is missing" if users else "'users' is missing"):
        load("femnist")


@pytest.mark.parametrize(("tokens", "kind"), [([1, 2], "int64"), ([[b"a", b"b"]], "ndarray")])
def test_sentences_of_stackoverflow_that_are_no_text_are_refused(root, tokens, kind):
    (root / "stackoverflow").mkdir(parents=True)
    for split in ("train", "test"):
        with h5py.File(root / "stackoverflow" / f"stackoverflow_{split}.h5", "w") as file:
            file.create_dataset("examples/u/tokens", data=tokens)
    with pytest.raises(DataError, match=f'tokens of "u" should be sentences, .*found {kind}'):
        load("stackoverflow")


def test_a_user_in_two_files_is_refused_with_both(root):
    write_leaf(root, "femnist", {"a": (PAPER, [1, 2, 3])}, copies=2)
    with pytest.raises(DataError, match=r'"a" is in .*data_0\.json and again in .*data_1\.json'):
        load("femnist")


@pytest.mark.parametrize("item", [1, None, True, 0.5, {"a": 1}, "text", [["a", 1]]])
def test_sentences_that_are_no_lists_of_words_are_refused(root, item):
    write_leaf(root, "reddit", {"u": ([item, ["a", "b"]], [0, 0])})
    with pytest.raises(DataError, match=r"LEAF's sentences are lists of words, and .* was found"):
        load("reddit")


@pytest.mark.parametrize("place", ["examples", "examples/a", "other"])
def test_an_array_in_the_place_of_a_group_is_refused(root, place):
    for split in ("train", "test"):
        path = root / "stackoverflow" / f"stackoverflow_{split}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file.create_dataset(place, data=[1, 2, 3])
    with pytest.raises(DataError, match="should be an HDF5 file with groups examples/<client>"):
        load("stackoverflow")


def write_landmarks(folder, *, extra: str = "") -> None:
    (folder / "images").mkdir(parents=True)
    names = [f"{author}{number}" for author in "pq" for number in range(3)]
    rows = "".join(f"{name[0]},{name},7\n" for name in names)
    (folder / "mini_gld_train_split.csv").write_text(f"user_id,image_id,class\n{rows}{extra}")
    (folder / "mini_gld_test.csv").write_text("image_id,class\nt,7\n")
    for name in (*names, "t"):
        Image.new("RGB", (9, 7)).save(folder / "images" / f"{name}.jpg")


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (",p0,7\n", "row 8: the column user_id is empty"),
        ("p,p0,\n", "row 8: the column class is empty"),
        ('"p,p0,7\n', "not a table of comma-separated cells"),
        ("p\r\r,p0,7\n", "row 8|not a table"),
        (f"p,{'a' * 200_000},7\n", "not a table of comma-separated cells"),
    ],
)
def test_odd_rows_of_a_table_of_pictures_are_refused(root, extra, complaint):
    write_landmarks(root / "gldv2", extra=extra)
    with pytest.raises(DataError, match=complaint):
        load("gldv2")


def test_pictures_with_other_endings_and_columns_in_capitals_are_found(root):
    write_landmarks(root / "gldv2")
    for number, path in enumerate(sorted((root / "gldv2" / "images").iterdir())):
        path.rename(path.with_suffix((".JPG", ".jpeg", ".png", ".jpg")[number % 4]))
    table = root / "gldv2" / "mini_gld_train_split.csv"
    table.write_text(table.read_text().replace("user_id,image_id,class", "User_ID,Image_ID,Class"))
    assert sum(load("gldv2", val=0.0).sizes("train").values()) == 6


def test_a_picture_is_read_rightly_or_refused_however_it_is_damaged(root):
    write_landmarks(root / "gldv2")
    path = root / "gldv2" / "images" / "t.jpg"
    written, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(20):
        spoiled = bytearray(written)
        spoiled[int(random.integers(len(written)))] = int(random.integers(256))
        path.write_bytes(spoiled[: int(random.integers(1, len(written)))])
        try:
            load("gldv2")
        except MotetError as refusal:
            assert len(str(refusal).splitlines()) == 1  # noqa: PT017


def write_wave(folder, subtype: str = "PCM_16"):
    folder.mkdir(parents=True)
    wave = 0.5 * np.sin(2 * np.pi * 600 * np.arange(8000) / 16_000)
    soundfile.write(folder / "19-198-0000.wav", wave, 16_000, subtype=subtype)
    (folder / "19-198.trans.txt").write_text("\n19-198-0000 A TEST\n\n")
    return folder / "19-198-0000.wav"


def test_every_part_of_librispeech_that_is_there_is_read_in_capitals(root):
    for part, speaker in (("dev-clean", "19"), ("test-other", "26")):
        path = write_wave(root / "LibriSpeech" / part / speaker / "198")
        path.rename(path.with_name(f"{speaker}-198-0000.wav"))
        path.with_name("19-198.trans.txt").write_text(f"{speaker}-198-0000 a test\n")
    raw = librispeech.load()
    assert raw.clients.tolist() == ["speaker-19", "speaker-26"]
    assert "".join(librispeech.ALPHABET[k] for k in raw.y[0] if k >= 0) == "A TEST"


@pytest.mark.parametrize("size", [0, 10, 30, 43, 44, 200])
def test_a_truncated_wave_is_refused(root, size):
    path = write_wave(root / "librispeech" / "train-clean-100" / "19" / "198")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match="cannot be read as audio"):
        librispeech.load()


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "FLOAT"])
def test_waves_of_other_widths_sound_alike(tmp_path, subtype):
    usual = librispeech.read_audio(write_wave(tmp_path / "a"), "")
    other = librispeech.read_audio(write_wave(tmp_path / "b", subtype), "")
    assert np.abs(usual - other).max() < 0.01
