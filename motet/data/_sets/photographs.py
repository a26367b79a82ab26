"""GLDv2 (landmarks by author) and FLICKR-AES (taste by worker): a table of pictures, and the files.

Pictures are cut to their middle square and resized to 96x96 pixels.

T.-M. H. Hsu et al. "Federated visual classification with real-world data distribution." ECCV 2020.
J. Ren et al. "Personalized image aesthetics." ICCV 2017.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motet.data._registry import Dataset, Normalize, Raw
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.data._sets.pictures import read_pictures
from motet.errors import DataError

GLDV2_WHERE = (
    "the tables and pictures of gld23k are those of TensorFlow Federated, "
    "https://www.tensorflow.org/federated: mini_gld_train_split.csv, mini_gld_test.csv and a "
    "folder images; those of the full set are federated_train.csv and test.csv."
)
FLICKR_WHERE = (
    "FLICKR-AES_image_labeled_by_each_worker.csv and the folder 40K of pictures are at "
    "https://github.com/alanspike/personalizedImageAesthetics."
)
ENDINGS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
RATINGS = (60, 290)  # workers with as many, as in FedPer's experiments
SCALE = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Labelled(NamedTuple):
    """One row of a table."""

    client: str
    picture: str
    label: str


def rows_of(held: Held, name: str, columns: Sequence[str | None]) -> list[Labelled]:
    """Read client, picture and label from the columns that are called so; None is empty."""
    path = held.paths[name]
    header, *table = _cells(path, held.read(name).decode("utf-8-sig", "replace"), held.where)
    named = [column.lower() for column in header]
    wanted = [column for column in columns if column is not None]
    absent = [column for column in wanted if column.lower() not in named]
    if absent:
        raise DataError(
            f"{path} should have a column {absent[0]}; it has {', '.join(header) or 'none'}. Get "
            f"it again: {held.where}"
        )
    places = [None if column is None else named.index(column.lower()) for column in columns]
    found = []
    for number, cells in enumerate(table, 2):
        if not cells:
            continue
        if len(cells) != len(header):
            raise DataError(
                f"{path}, row {number}: expected {len(header)} cells, found {len(cells)}. The file "
                f"is damaged. Get it again: {held.where}"
            )
        values = ["" if place is None else cells[place] for place in places]
        empty = [c for c, v in zip(columns, values, strict=True) if c is not None and not v]
        if empty:
            raise DataError(
                f"{path}, row {number}: the column {empty[0]} is empty. Fill it or remove the row, "
                f"or get the file again: {held.where}"
            )
        found.append(Labelled(*values))
    return found


def _cells(path: Path, text: str, where: str) -> list[list[str]]:
    """Split a table into its cells; its first row is there, if only as an empty one."""
    table = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        rows = [[cell.strip() for cell in row] for row in table]
    except csv.Error as reason:
        raise DataError(
            f"{path}, line {table.line_num}: not a table of comma-separated cells ({reason}). The "
            f"file is damaged. Get it again: {where}"
        ) from None
    return rows or [[]]


def decode_gldv2(held: Held, *, train: str, test: str) -> Arrays:
    """Read the pictures of every author; those of the test set are shared out by class."""
    folder = held.paths[train].parent
    rows = rows_of(held, train, ("user_id", "image_id", "class"))
    tested = rows_of(held, test, (None, "image_id", "class"))
    names = sorted({row.label for row in rows}, key=lambda label: (len(label), label))
    number = {label: place for place, label in enumerate(names)}
    known = [row for row in tested if row.label in number]
    everything = [*rows, *known]
    return {
        "x": read_pictures([_landmark(folder, row.picture) for row in everything], held.where),
        "y": np.array([number[row.label] for row in everything], np.int64),
        "clients": np.array([f"author-{row.client}" for row in rows] + [""] * len(known)),
        "names": np.array(names),
    }


def _landmark(folder: Path, picture: str) -> Path:
    """Find a picture: all in one folder, or in folders by the first letters of their names."""
    places = (folder / "train" / Path(*picture[:3]), folder / "images")
    paths = [place / f"{picture}{ending}" for ending in ENDINGS for place in places]
    return next((path for path in paths if path.is_file()), places[1] / f"{picture}.jpg")


def with_tested_clients(arrays: Arrays) -> Arrays:
    """Give test pictures to the authors of the same class, in turn: they have none of their own."""
    clients, y = arrays["clients"].astype(object), arrays["y"]
    held_out = np.flatnonzero(clients == "")
    authors: dict[int, list[str]] = {}
    for client, label in zip(clients, y.tolist(), strict=True):
        if client and client not in authors.setdefault(label, []):
            authors[label].append(client)
    for place, row in enumerate(held_out.tolist()):
        own = sorted(authors[int(y[row])])
        clients[row] = own[place % len(own)]
    split = np.where(np.isin(np.arange(len(y)), held_out), "test", "train")
    return {**arrays, "clients": clients.astype(str), "split": split}


def decode_flickr(held: Held) -> Arrays:
    """Read the ratings, 1 to 5, of workers who rated as many pictures as those in FedPer."""
    [(name, path)] = held.paths.items()
    rows = rows_of(held, name, ("worker", "imagePair", "score"))
    counts = Counter(row.client for row in rows)
    least, most = RATINGS
    chosen = [row for row in rows if least <= counts[row.client] <= most]
    if not chosen:
        raise DataError(
            f"{path} should hold workers with {least} to {most} ratings, and has none. Get it "
            f"again: {held.where}"
        )
    scores = [row.label.removesuffix(".0") for row in chosen]
    wrong = next((score for score in scores if score not in set("12345")), None)
    if wrong is not None:
        raise DataError(
            f'{path} should hold scores of 1 to 5; found "{wrong}". Get it again: {held.where}'
        )
    folder = path.parent / "40K"
    unique = sorted({row.picture for row in chosen})
    place = {picture: number for number, picture in enumerate(unique)}
    pictures = read_pictures([folder / picture for picture in unique], held.where)
    return {
        "x": pictures[[place[row.picture] for row in chosen]],
        "y": np.array([int(score) - 1 for score in scores], np.int64),
        "clients": np.array([row.client for row in chosen]),
        "names": np.array(list("12345")),
    }


GLDV2_SOURCES = tuple(
    Source(
        ("gldv2", "gld23k", "gld160k"),
        {train: None, test: None},
        partial(decode_gldv2, train=train, test=test),
    )
    for train, test in (
        ("mini_gld_train_split.csv", "mini_gld_test.csv"),
        ("federated_train.csv", "test.csv"),
    )
)
FLICKR_SOURCES = (
    Source(("flickr-aes",), {"FLICKR-AES_image_labeled_by_each_worker.csv": None}, decode_flickr),
)


def load(name: str, sources: Sequence[Source], where: str) -> Raw:
    """Return uint8 [rows, 3, 96, 96] with each row's author or worker."""
    arrays = open_arrays(name, sources, where)
    labels = tuple(arrays["names"].tolist())
    if (arrays["clients"] == "").any():
        arrays = with_tested_clients(arrays)
    return Raw(
        x=arrays["x"],
        y=arrays["y"],
        clients=arrays["clients"],
        split=arrays.get("split"),
        labels=labels,
        normalize=SCALE,
        classes=len(labels),
    )


GLDV2 = Dataset(
    name="gldv2",
    summary="photographs of landmarks, 96x96, one client per author",
    load=partial(load, "gldv2", GLDV2_SOURCES, GLDV2_WHERE),
    natural=True,
    default_partition=None,
    where=GLDV2_WHERE,
)
FLICKR_AES = Dataset(
    name="flickr-aes",
    summary="how much workers like photographs, 96x96, scores 1 to 5, one client per worker",
    load=partial(load, "flickr-aes", FLICKR_SOURCES, FLICKR_WHERE),
    natural=True,
    default_partition=None,
    where=FLICKR_WHERE,
)
