"""Data sets with natural clients, read from small files in the published formats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from motet.data._sets import har, heart_disease, shakespeare
from motet.data._sets.files import Held, Source
from motet.data._sets.shakespeare import ALPHABET, Role
from motet.errors import DataError


@pytest.fixture(autouse=True)
def folder(root):
    return root


# Heart disease -----------------------------------------------------------------------------------

AS_UCI_WRITES_IT = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0"
PATIENT = list(AS_UCI_WRITES_IT.split(","))


def features(row: list[str]) -> dict[str, float]:
    arrays = heart_disease.assemble([["va", *row]])
    return dict(zip(heart_disease.FEATURES, arrays["x"][0].tolist(), strict=True))


def with_value(column: str, value: str) -> list[str]:
    place = heart_disease.COLUMNS.index(column)
    return [*PATIENT[:place], value, *PATIENT[place + 1 :]]


def test_a_patient_is_written_in_fixed_units():
    found = features(PATIENT)
    assert found["age"] == pytest.approx((63 - 50) / 10)
    assert found["chol"] == pytest.approx((233 - 240) / 50)
    assert [found[f"cp={code}"] for code in (1, 2, 3, 4)] == [1, 0, 0, 0]
    assert [found[f"thal={code}"] for code in (3, 6, 7)] == [0, 1, 0]
    assert not any(value for name, value in found.items() if name.endswith("_missing"))


@pytest.mark.parametrize("column", ["trestbps", "chol", "fbs", "thalach", "exang", "oldpeak", "ca"])
def test_a_missing_number_becomes_the_reference_and_raises_its_flag(column):
    found = features(with_value(column, "?"))
    assert found[column] == 0
    flags = [name for name, value in found.items() if name.endswith("_missing") and value]
    assert flags == [f"{column}_missing"]


@pytest.mark.parametrize("column", ["restecg", "slope", "thal"])
def test_a_missing_code_leaves_all_its_columns_zero(column):
    found = features(with_value(column, "?"))
    assert not any(value for name, value in found.items() if name.startswith(f"{column}="))


@pytest.mark.parametrize("column", ["chol", "trestbps"])
def test_a_measurement_of_zero_that_no_living_patient_has_counts_as_missing(column):
    assert features(with_value(column, "0")) == features(with_value(column, "?"))


def test_no_patient_depends_on_another():
    rows = [["va", *PATIENT], ["va", *with_value("chol", "?")], ["va", *with_value("age", "77")]]
    together = heart_disease.assemble(rows)["x"]
    alone = [heart_disease.assemble([row])["x"][0] for row in rows]
    assert np.array_equal(together, alone)


def test_any_grade_of_disease_is_one_class():
    rows = [["va", *with_value("num", grade)] for grade in "01234"]
    assert heart_disease.assemble(rows)["y"].tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (with_value("cp", "0"), "column cp should hold .* recoded"),
        (with_value("num", "?"), "column num .* it has gaps"),
        (with_value("age", "old"), 'got "old"'),
        (PATIENT[:-1], "14 columns, got rows with .13."),
    ],
)
def test_recoded_or_broken_copies_are_refused(row, complaint):
    with pytest.raises(DataError, match=complaint):
        heart_disease.assemble([["va", *row]])


def write_hospitals(folder, *, leave_out: int = 0) -> None:
    (folder / "heart-disease").mkdir(parents=True)
    for hospital, patients in heart_disease.PATIENTS.items():
        rows = [AS_UCI_WRITES_IT] * (patients - leave_out)
        path = folder / f"heart-disease/processed.{hospital}.data"
        path.write_text("\n".join(rows) + "\n")


def test_hospitals_are_the_clients(folder):
    write_hospitals(folder)
    raw = heart_disease.load()
    assert raw.x.shape == (920, len(heart_disease.FEATURES))
    assert raw.x.dtype == np.float32
    assert raw.clients[0] == "cleveland"
    assert raw.clients[-1] == "va"
    assert raw.split is None


def test_a_hospital_that_lost_a_patient_is_refused(folder):
    write_hospitals(folder, leave_out=1)
    with pytest.raises(DataError, match="'cleveland': 302"):
        heart_disease.load()


# Activity ----------------------------------------------------------------------------------------


def recordings(folder, *numbers_and_people: tuple[int, int]) -> Held:
    """Write recordings whose acceleration along x counts the samples; 300 samples each."""
    folder.mkdir()
    paths = {}
    for number, person in numbers_and_people:
        for kind, offset in (("acc", 0), ("gyro", 1000)):
            name = f"{kind}_exp{number:02d}_user{person:02d}.txt"
            rows = np.arange(1, 301)[:, None] + [offset, 0, 0]
            np.savetxt(folder / name, rows, fmt="%.6f")
            paths[name] = folder / name
    return Held(source=replace(har.SOURCES[0], sums={}), paths=paths, where="the archive")


def test_windows_stay_inside_their_stretch_and_transitions_are_left_out(folder):
    held = recordings(folder, (1, 7))
    stretches = np.array([[1, 7, 5, 11, 203], [1, 7, 8, 150, 300]])  # standing, then sitting down
    arrays = har.cut_recordings(held, stretches)
    assert arrays["x"].shape == (2, 6, 128)
    assert arrays["x"][:, 0, 0].tolist() == [11, 75]  # samples are counted from 1
    assert arrays["x"][:, 0, -1].tolist() == [138, 202]
    assert arrays["x"][0, 3, 0] == 1011
    assert arrays["y"].tolist() == [4, 4]
    assert arrays["clients"].tolist() == ["person-07", "person-07"]


def test_a_persons_first_recording_trains_and_the_later_ones_test(folder):
    held = recordings(folder, (3, 2), (4, 2), (5, 9))
    stretches = np.array([[n, who, 1, 1, 128] for n, who in ((3, 2), (4, 2), (5, 9))])
    arrays = har.cut_recordings(held, stretches)
    assert arrays["clients"].tolist() == ["person-02", "person-02", "person-09"]
    assert arrays["split"].tolist() == ["train", "test", "train"]


def test_validation_windows_share_no_sample_with_training_windows():
    # Ten windows in a row, each overlapping the next, of two activities of one person.
    y, one_person = np.repeat([0, 1], 10), np.ones(20, int)
    split = har.split(y, one_person, np.zeros(20, int))
    assert split.tolist() == (["train"] * 8 + ["", "val"]) * 2


def test_a_stretch_shorter_than_a_window_gives_none():
    assert har.cut_windows(np.zeros((127, 6), np.float32)).shape == (0, 6, 128)


def test_a_missing_recording_is_named(folder):
    held = recordings(folder, (1, 1))
    with pytest.raises(DataError, match=r"acc_exp02_user01\.txt is not in the same folder"):
        har.cut_recordings(held, np.array([[2, 1, 1, 1, 300]]))


def test_incomplete_labels_are_refused(folder):
    (folder / "har").mkdir(parents=True)
    (folder / "har/labels.txt").write_text("1 1 5 250 1232\n")
    for kind in ("acc", "gyro"):
        (folder / f"har/{kind}_exp01_user01.txt").write_text("0 0 0\n")
    with pytest.raises(DataError, match="61 recordings of 30 people; it names 1 of 1"):
        har.load()


# Shakespeare -------------------------------------------------------------------------------------


def text_of(tokens: np.ndarray) -> str:
    return "".join(ALPHABET[token] for token in tokens)


def test_windows_have_eighty_characters_and_predict_the_one_after_each():
    text = bytes(ALPHABET.encode() * 3)[:170]
    windows = shakespeare.cut_windows(text)
    assert windows.shape == (2, 81)
    assert text_of(windows[0]) == text[:81].decode()
    assert text_of(windows[1]) == text[80:161].decode()
    assert len(shakespeare.cut_windows(text[:80])) == 0


def test_characters_of_another_edition_are_refused():
    with pytest.raises(DataError, match=r"also found \['1'\]"):
        shakespeare.tokenize(b"Act 1")


def test_client_names_are_plain_and_different():
    played = [("Love's Labor's Lost", "MOTH"), ("The Life of Timon of Athens", "VARRO'S SERVANT")]
    names = shakespeare.client_names([Role(play, role, b"", b"") for play, role in played])
    assert names == ["Loves-Labors-Lost/MOTH", "Timon-of-Athens/VARROS-SERVANT"]


def test_a_role_without_enough_text_for_both_splits_is_left_out():
    long, short = b"a" * 100, b"a" * 80
    roles = [Role("P", "A", long, short), Role("P", "B", long, long), Role("P", "C", short, long)]
    arrays = shakespeare.assemble(roles)
    assert arrays["clients"].tolist() == ["P/B", "P/B"]
    assert arrays["split"].tolist() == ["train", "test"]


PLAY = """<?xml version="1.0"?>
<!DOCTYPE PLAY SYSTEM "play.dtd">
<PLAY><TITLE>The Tragedy of Toys</TITLE><ACT><SCENE>
<SPEECH><SPEAKER>Bear</SPEAKER>{lines}</SPEECH>
<SPEECH><SPEAKER>Bear</SPEAKER><SPEAKER>Doll</SPEAKER><LINE>Said by both.</LINE></SPEECH>
<SPEECH><SPEAKER>Doll</SPEAKER><LINE>Short.</LINE></SPEECH>
</SCENE></ACT></PLAY>"""


def held_play(folder) -> Held:
    said = [f"<LINE><STAGEDIR>Aside</STAGEDIR>  {chr(97 + k) * 100}</LINE>" for k in range(10)]
    path = folder / "toys_moby.xml"
    folder.mkdir()
    path.write_text(PLAY.format(lines="\n".join(said)))
    return Held(source=shakespeare.SOURCES[0], paths={path.name: path}, where="the archive")


def test_a_play_is_divided_by_speaker_and_cut_after_four_fifths_of_the_lines(folder):
    bear, doll = shakespeare.roles_of(held_play(folder), "toys_moby.xml")
    assert (bear.play, bear.name) == ("The Tragedy of Toys", "BEAR")
    assert bear.train.decode().splitlines() == [f"Aside {c * 100}" for c in "abcdefgh"]
    assert bear.test.decode().splitlines() == [f"Aside {c * 100}" for c in "ij"]
    assert doll.train + doll.test == b"Short.\n"


def test_a_folder_with_some_of_the_plays_is_refused(folder):
    with pytest.raises(DataError, match="37 XML files; it holds 1"):
        shakespeare.decode_plays(held_play(folder))


def test_a_file_that_is_not_a_play_is_refused_by_name(folder):
    held = held_play(folder)
    held.paths["toys_moby.xml"].write_text("<PLAY>")
    with pytest.raises(DataError, match=r"toys_moby\.xml should be a play in XML"):
        list(shakespeare.roles_of(held, "toys_moby.xml"))


def test_one_target_per_window_follows_80_characters_of_the_same_role_and_split(folder):
    said = {"A": ALPHABET.encode() * 5, "B": ALPHABET[::-1].encode() * 4}

    def decode(held):
        return shakespeare.assemble([Role("P", name, t, t[5:]) for name, t in said.items()])

    (folder / "toy").mkdir(parents=True)
    (folder / "toy/toy").touch()
    raw = shakespeare.load_next(0, [Source(("toy",), {"toy": None}, decode)])
    found = [f"{text_of(x)}{ALPHABET[y]}" for x, y in zip(raw.x, raw.y, strict=True)]
    wanted = []
    for name, text in said.items():
        for split, part in (("train", text.decode()), ("test", text.decode()[5:])):
            kept = part[: (len(part) - 1) // 80 * 80 + 1]
            cut = [kept[start : start + 81] for start in range(0, len(kept) - 80, 10)]
            wanted += [(window, f"P/{name}", split) for window in cut]
    assert list(zip(found, raw.clients, raw.split, strict=True)) == wanted


def test_min_chars_selects_the_roles_with_enough_text(folder):
    def decode(held):
        text = ALPHABET.encode() * 5
        roles = [("A", text[:200]), ("B", text[:300]), ("C", text[:100])]
        return shakespeare.assemble([Role("P", name, text, text) for name, text in roles])

    (folder / "toy").mkdir(parents=True)
    (folder / "toy/toy").touch()
    source = Source(("toy",), {"toy": None}, decode)
    raw = shakespeare.load(min_chars=400, sources=[source])
    assert set(raw.clients.tolist()) == {"P/A", "P/B"}
    assert isinstance(raw.x, np.memmap)
    assert np.array_equal(raw.x[:, 1:], raw.y[:, :-1])
    with pytest.raises(DataError, match="the longest has 600"):
        shakespeare.load(min_chars=601, sources=[source])
