"""Readers of published federated data sets, on small files of the same formats."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import motet
from motet.config import experiment_from_dict
from motet.data import load
from motet.data._sets import librispeech, photographs, words
from motet.errors import DataError, MotetError

h5py = pytest.importorskip("h5py")
Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")
RANDOM = np.random.default_rng(0)


def write_leaf(path, users: dict[str, tuple[list, list]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {name: {"x": x, "y": y} for name, (x, y) in users.items()}
    sizes = [len(y) for _, y in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}))


def write_tff(path, clients: dict[str, dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, fields in clients.items():
            for field, values in fields.items():
                file.create_dataset(f"examples/{name}/{field}", data=values)


def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return RANDOM.random((rows, 28, 28)).astype(np.float32), RANDOM.integers(0, 62, rows)


# --- FEMNIST ---------------------------------------------------------------------------------


def write_femnist(folder, form: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    made = {}
    for split, rows in (("train", 6), ("test", 2)):
        users = {f"f{i:04d}_0{i}": drawn(rows + i) for i in range(3)}
        made |= {f"{split}/{name}": pair for name, pair in users.items()}
        if form == "leaf":
            for part, chosen in enumerate((list(users)[:2], list(users)[2:])):
                lists = {
                    u: (users[u][0].reshape(-1, 784).tolist(), users[u][1].tolist()) for u in chosen
                }
                write_leaf(folder / split / f"all_data_{part}_niid_0_keep_0_{split}_9.json", lists)
        else:
            fields = {u: {"pixels": x, "label": y.astype(np.int32)} for u, (x, y) in users.items()}
            write_tff(folder / f"fed_emnist_{split}.h5", fields)
    return made


@pytest.mark.parametrize("form", ["leaf", "tff"])
def test_femnist_has_its_writers_its_split_and_ink_as_in_mnist(root, form):
    made = write_femnist(root / "femnist", form)
    data = load("femnist", val=0.0)
    assert set(data.clients) == {name.partition("/")[2] for name in made}
    assert data.classes == 62
    assert data.labels[10] == "A"
    assert data.labels[-1] == "z"
    for name, (x, y) in made.items():
        split, _, client = name.partition("/")
        read = data.examples(client, split)
        assert sorted(read.y.tolist()) == sorted(y.tolist())
        ink = np.sort(read.x.sum((1, 2, 3)).numpy())
        assert np.allclose(ink, np.sort((1 - x).sum((1, 2))), atol=1.6)  # 784 roundings


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda text: text[: len(text) // 2], "should be a JSON file of LEAF"),
        (lambda text: "[]", "should be a JSON file of LEAF"),
        (lambda text: text.replace('"users"', '"people"'), "should be a JSON file of LEAF"),
        (
            lambda text: json.dumps(
                {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": [62]}}}
            ),
            'the labels of "a" should be 0 to 61; found 62',
        ),
        (
            lambda text: json.dumps(
                {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 9], "y": [1]}}}
            ),
            'the images of "a" should have 28x28 numbers',
        ),
        (
            lambda text: json.dumps({"users": ["a"], "user_data": {"a": {"x": [], "y": [1]}}}),
            '"a" should have one value of each field per example; found 0 of x, 1 of y',
        ),
    ],
)
def test_a_damaged_json_file_is_refused_in_one_sentence(root, spoil, complaint):
    write_femnist(root / "femnist", "leaf")
    [path, *_] = sorted((root / "femnist" / "train").glob("*.json"))
    path.write_text(spoil(path.read_text()))
    with pytest.raises(DataError, match=complaint):
        load("femnist")


def test_any_damaged_hdf5_file_is_read_rightly_or_refused(root):
    write_femnist(root / "femnist", "tff")
    path = root / "femnist" / "fed_emnist_train.h5"
    written, expected = path.read_bytes(), load("femnist", val=0.0)
    for place in range(0, len(written), len(written) // 40):
        spoiled = bytearray(written)
        spoiled[place : place + 8] = b"\xff" * 8
        path.write_bytes(spoiled[: -(place % 3) * 100 or None])
        try:
            found = load("femnist", val=0.0)
        except MotetError as refusal:
            assert len(str(refusal).splitlines()) == 1  # noqa: PT017
        else:
            assert set(found.clients) <= set(expected.clients)


def test_missing_files_are_named_with_where_to_get_them(root):
    for name in ("femnist", "stackoverflow", "reddit", "gldv2", "librispeech", "flickr-aes"):
        with pytest.raises(DataError, match=rf'data set "{name}" needs .* Get them: '):
            load(name)


# --- words -----------------------------------------------------------------------------------

LINES = ["how do i sort a list", "use sorted of course and not a loop of your own", "a b c"]


def write_stackoverflow(folder) -> None:
    users = {f"{i:08d}": LINES * (i + 1) for i in range(3)}
    for split, lines in (("train", users), ("test", dict.fromkeys(users, LINES[:2]))):
        fields = {u: {"tokens": [line.encode() for line in said]} for u, said in lines.items()}
        write_tff(folder / f"stackoverflow_{split}.h5", fields)


def test_stackoverflow_predicts_the_next_of_20_words_and_padding_is_no_target(root):
    write_stackoverflow(root / "stackoverflow")
    data = load("stackoverflow", val=0.0)
    assert data.clients == ("00000000", "00000001", "00000002")
    assert data.shape == (20,)
    assert data.classes == 10_004
    x, y = data.examples("00000001", "train")
    assert x.shape == y.shape == (6, 20)
    assert (x[:, 0] == words.BOS).all()
    said = y != -1
    assert (x[:, 1:][said[:, :-1]] == y[:, :-1][said[:, :-1]]).all()
    lengths = sorted(said.sum(1).tolist())
    assert lengths == sorted([len(line.split()) + 1 for line in LINES] * 2)  # and the end
    assert sorted(set(y[y > words.VOCABULARY].tolist())) == [words.EOS]
    first = next(iter(np.unique(x[(x > 0) & (x <= words.VOCABULARY)])))
    assert first == 1  # the most frequent word, "a"


def test_words_are_learned_without_their_padding_unless_a_loss_is_named(root):
    write_stackoverflow(root / "stackoverflow")
    tables = {
        "method": {"name": "fedper", "batch_size": 4},
        "data": {"name": "stackoverflow"},
        "model": {"embedding": 2, "hidden": 3},
        "run": {"rounds": 1, "backend": "serial"},
    }
    experiment = experiment_from_dict(tables)
    data = experiment.federation()
    assert experiment.resolved(data).model.loss == "masked_cross_entropy"
    run = motet.run(experiment.method, experiment.task(data), data, **experiment.settings())
    scored = run.evaluate("test")
    assert {row.client for row in scored.rows} == set(data.clients)


@pytest.mark.parametrize("nested", [False, True])
def test_reddit_is_read_from_leaf_however_deep_its_sentences_are_nested(root, nested):
    for split in ("train", "test"):
        lines = [["<BOS>", *line.split()[:9], "<EOS>", "<PAD>"] for line in LINES]
        x = [[line] for line in lines] if nested else lines
        targets = [{"target_tokens": [line[1:]], "count_tokens": 3} for line in lines]
        write_leaf(root / "reddit" / split / f"{split}_data.json", {"u1": (x, targets)})
    data = load("reddit", val=0.0)
    assert data.sizes("train") == {"u1": 3}
    assert data.shape == (10,)
    x, _ = data.examples("u1", "train")
    assert (x == words.EOS).sum() <= 3
    assert (x[:, 0] == words.BOS).all()


def test_test_sentences_do_not_make_the_vocabulary():
    texts = [
        words.Sentences("a", "train", [["x", "x", "y"]]),
        words.Sentences("a", "test", [["z", "z", "z", "x"]]),
    ]
    rows = words.assemble(texts, 5)["windows"]
    assert rows[0].tolist() == [words.BOS, 1, 1, 2, words.EOS, words.PAD]
    assert rows[1].tolist() == [words.BOS, words.OOV, words.OOV, words.OOV, 1, words.EOS]


# --- photographs -----------------------------------------------------------------------------


def write_picture(path, colour: tuple[int, int, int], size=(40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def write_table(path, header: list[str], rows: list[list]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_gldv2(folder) -> None:
    train = [
        [author, f"{author}{label}{i}abc", label]
        for author in "pq"
        for label in (7, 9)
        for i in "01"
    ]
    test = [["t7" + str(i), 7] for i in range(2)] + [["t90", 9], ["t50", 5]]
    write_table(folder / "mini_gld_train_split.csv", ["user_id", "image_id", "class"], train)
    write_table(folder / "mini_gld_test.csv", ["image_id", "class"], test)
    for place, (_, name, label) in enumerate(train):
        deep = folder / "train" / name[0] / name[1] / name[2] / f"{name}.jpg"
        write_picture(deep if place % 2 else folder / "images" / f"{name}.jpg", (20 * label, 0, 0))
    for name, label in test:
        write_picture(folder / "images" / f"{name}.jpg", (20 * label, 0, 0))


def test_gldv2_has_its_authors_and_shares_the_test_pictures_by_class(root):
    write_gldv2(root / "gldv2")
    data = load("gldv2", val=0.0)
    assert data.clients == ("author-p", "author-q")
    assert data.labels == ("7", "9")
    assert data.shape == (3, 96, 96)
    assert sum(data.sizes("test").values()) == 3  # the class that nobody trains on is left out
    for client in data.clients:
        x, y = data.examples(client, "train")
        red = (x[:, 0, 48, 48] * photographs.SCALE.std[0] + photographs.SCALE.mean[0]) * 255
        assert red.round().tolist() == pytest.approx([140.0 if k == 0 else 180.0 for k in y], abs=3)


def write_flickr(folder, workers: dict[str, int], score: str = "3") -> None:
    rows = [
        [worker, f"p{i}.jpg", score if i else "5"]
        for worker, n in workers.items()
        for i in range(n)
    ]
    write_table(
        folder / "FLICKR-AES_image_labeled_by_each_worker.csv",
        [" worker", " imagePair", " score"],
        rows,
    )
    for i in range(max(workers.values())):
        write_picture(folder / "40K" / f"p{i}.jpg", (i % 256, 0, 0), (8, 8))


def test_flickr_aes_has_the_workers_with_enough_ratings(root):
    write_flickr(root / "flickr-aes", {"A": 60, "B": 59, "C": 70})
    data = load("flickr-aes")
    assert data.clients == ("A", "C")
    assert data.classes == 5
    assert set(data.examples("C", "train").y.tolist()) <= {2, 4}


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda root: write_flickr(root, {"A": 60}, "9"), 'scores of 1 to 5; found "9"'),
        (lambda root: write_flickr(root, {"A": 3}), "workers with 60 to 290 ratings, and has none"),
        (lambda root: (root / "40K" / "p7.jpg").unlink(), r"picture .*p7\.jpg is missing"),
        (
            lambda root: (root / "40K" / "p7.jpg").write_bytes(b"\xff\xd8\xff no"),
            "cannot be read as a",
        ),
        (
            lambda root: next(root.glob("*.csv")).write_text("worker,score\na,1\n"),
            "a column imagePair",
        ),
        (
            lambda root: next(root.glob("*.csv")).write_text("worker,imagePair,score\na,1\n"),
            "row 2: expected 3 cells, found 2",
        ),
    ],
)
def test_damaged_tables_and_pictures_are_refused(root, spoil, complaint):
    folder = root / "flickr-aes"
    write_flickr(folder, {"A": 60})
    spoil(folder)
    with pytest.raises(DataError, match=complaint):
        load("flickr-aes")


# --- speech ----------------------------------------------------------------------------------


def write_speech(folder, *, suffix: str = "flac", text: str = "IT'S A TEST") -> None:
    for speaker in ("19", "26"):
        chapter = folder / speaker / "198"
        chapter.mkdir(parents=True)
        lines = []
        for number, hertz in enumerate((300, 600, 1200)):
            name = f"{speaker}-198-{number:04d}"
            wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(8000) / 16_000)
            soundfile.write(chapter / f"{name}.{suffix}", wave, 16_000, subtype="PCM_16")
            lines.append(f"{name} {text}")
        (chapter / f"{speaker}-198.trans.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("suffix", ["flac", "wav"])
def test_librispeech_has_its_speakers_transcripts_and_pitches(root, suffix):
    write_speech(root / "librispeech" / "train-clean-100", suffix=suffix)
    raw = librispeech.load()
    assert set(raw.clients) == {"speaker-19", "speaker-26"}
    assert raw.x.shape == (6, 64, 1600)
    said = "".join(librispeech.ALPHABET[k] for k in raw.y[0] if k >= 0)
    assert said == "IT'S A TEST"
    loudest = raw.x[:3, :, 10].argmax(1)  # a higher pitch is in a higher band
    assert list(loudest) == sorted(set(loudest.tolist()))
    assert (raw.x[:, :, 100:] < -13).all()  # silence after half a second
    assert load("librispeech").shape == (64, 1600)


def test_damaged_speech_is_refused(root):
    folder = root / "librispeech" / "train-clean-100"
    write_speech(folder)
    [audio, *_] = sorted(folder.glob("*/*/*.flac"))
    audio.write_bytes(audio.read_bytes()[:50])
    with pytest.raises(DataError, match="cannot be read as audio"):
        librispeech.load()
    [text, *_] = sorted(folder.glob("*/*/*.txt"))
    text.write_text("19-198-0000 CAFÉ 3\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 1: transcripts have the letters A to Z"):
        librispeech.load()
    text.write_text("nothing\n")
    with pytest.raises(DataError, match='line 1: expected "speaker-chapter-number TEXT"'):
        librispeech.load()
