"""StackOverflow and Reddit: predict the next word of a user's sentences, from 10,000 words.

A sentence becomes 20 tokens (Reddit: 10) and the same shifted by one; shorter ones are padded, and
padding is no target. Read are TensorFlow Federated's HDF5 files, and LEAF's JSON files of Reddit.
Of StackOverflow's hundreds of thousands of users those with the most sentences are taken.

S. Reddi et al. "Adaptive federated optimization." ICLR 2021, for the task and its vocabulary.
S. Caldas et al. "LEAF: a benchmark for federated settings." arXiv:1812.01097, 2018.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.data._sets.per_user import leaf_split, tff_sizes, tff_users
from motet.errors import DataError

VOCABULARY = 10_000
PAD, OOV, BOS, EOS = 0, VOCABULARY + 1, VOCABULARY + 2, VOCABULARY + 3
TOKENS = VOCABULARY + 4
MARKS = {"<PAD>", "<BOS>", "<EOS>"}  # LEAF's own, which are set again here
MOST_USERS, MOST_SENTENCES = 1000, 1000
STACKOVERFLOW_WHERE = (
    "stackoverflow_train.h5 and stackoverflow_test.h5 are in stackoverflow.tar.bz2 of TensorFlow "
    "Federated, https://www.tensorflow.org/federated."
)
REDDIT_WHERE = (
    "LEAF's JSON files are made by data/reddit of https://github.com/TalwalkarLab/leaf; put its "
    "folders train and test here."
)


class Sentences(NamedTuple):
    """One user's sentences of one split, each a list of words."""

    user: str
    split: str
    words: list[list[str]]


def assemble(texts: Sequence[Sentences], length: int) -> Arrays:
    """Give words numbers, by how often the training sentences use them, and cut sentences."""
    counts = Counter(
        word for text in texts if text.split == "train" for line in text.words for word in line
    )
    common = sorted(counts, key=lambda word: (-counts[word], word))[:VOCABULARY]
    number = {word: rank for rank, word in enumerate(common, 1)}
    rows = [_tokens(line, number, length) for text in texts for line in text.words]
    if not rows:
        raise DataError("the files hold no sentence; they are damaged, or different ones.")
    return {
        "windows": np.stack(rows),
        "clients": np.array([text.user for text in texts for _ in text.words]),
        "split": np.array([text.split for text in texts for _ in text.words]),
    }


def _tokens(words: Sequence[str], number: dict[str, int], length: int) -> NDArray[np.int16]:
    """Write a sentence as numbers, between a beginning and, if it fits, an end."""
    tokens = [BOS, *(number.get(word, OOV) for word in words), EOS][: length + 1]
    return np.array(tokens + [PAD] * (length + 1 - len(tokens)), np.int16)


def decode_tff(held: Held, *, name: str, length: int) -> Arrays:
    """Read TensorFlow Federated's HDF5 files: the users with the most sentences to train on."""
    paths = {split: held.paths[f"{name}_{split}.h5"] for split in ("train", "test")}
    sizes = {split: tff_sizes(path, "tokens", held.where) for split, path in paths.items()}
    both = [user for user in sizes["train"] if user in sizes["test"]]
    if not both:
        raise DataError(
            f"no user of {paths['train']} is in {paths['test']}, so no user could be tested. Get "
            f"both files again: {held.where}"
        )
    chosen = sorted(both, key=lambda user: (-sizes["train"][user], user))[:MOST_USERS]
    texts = [
        Sentences(
            user.name,
            split,
            [_text(value, user.name).split() for value in user.fields["tokens"][:MOST_SENTENCES]],
        )
        for split, path in paths.items()
        for user in tff_users(path, ("tokens",), held.where, sorted(chosen))
    ]
    return assemble(texts, length)


def _text(value: Any, user: str) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise DataError(
            f'the tokens of "{user}" should be sentences, each a text; found '
            f"{type(value).__name__}. The file is damaged, or a different one."
        )
    return value


def decode_leaf(held: Held, *, length: int) -> Arrays:
    """Read LEAF's JSON files; those in a folder called test are the test set."""
    texts = [
        Sentences(user.name, split, list(_lines(user.fields["x"])))
        for split in ("train", "test")
        for user in leaf_split(held, split)
    ]
    return assemble([text for text in texts if text.words], length)


def _lines(nested: Iterable[Any]) -> Iterator[list[str]]:
    """Find the sentences in lists of lists, which LEAF nests by comment."""
    for item in nested:
        if not isinstance(item, list):
            found = "plain text" if isinstance(item, str) else f"{json.dumps(item)[:40]}"
            raise DataError(
                f"LEAF's sentences are lists of words, and {found} was found. Get the files "
                f"again: {REDDIT_WHERE}"
            )
        if item and all(isinstance(word, str) for word in item):
            yield [word for word in item if word not in MARKS]
        else:
            yield from _lines(item)


STACKOVERFLOW_SOURCES = (
    Source(
        ("stackoverflow",),
        {"stackoverflow_train.h5": None, "stackoverflow_test.h5": None},
        partial(decode_tff, name="stackoverflow", length=20),
    ),
)
REDDIT_SOURCES = (
    Source(
        ("reddit",),
        {},
        partial(decode_leaf, length=10),
        patterns=("train/*.json", "test/*.json"),
    ),
    Source(
        ("reddit",),
        {"reddit_train.h5": None, "reddit_test.h5": None},
        partial(decode_tff, name="reddit", length=10),
    ),
)


def load(name: str, sources: Sequence[Source], where: str) -> Raw:
    """Return int16 tokens x and y [rows, length], y shifted by one, -1 where there is no word."""
    arrays = open_arrays(name, sources, where)
    windows = arrays["windows"]
    y = windows[:, 1:].astype(np.int16)
    y[y == PAD] = -1
    return Raw(
        x=windows[:, :-1],
        y=y,
        clients=arrays["clients"],
        split=arrays["split"],
        classes=TOKENS,
    )


STACKOVERFLOW = Dataset(
    name="stackoverflow",
    summary="next word of questions and answers, one client per user (1,000 with most sentences)",
    load=partial(load, "stackoverflow", STACKOVERFLOW_SOURCES, STACKOVERFLOW_WHERE),
    natural=True,
    default_partition=None,
    where=STACKOVERFLOW_WHERE,
)
REDDIT = Dataset(
    name="reddit",
    summary="next word of comments, one client per user",
    load=partial(load, "reddit", REDDIT_SOURCES, REDDIT_WHERE),
    natural=True,
    default_partition=None,
    where=REDDIT_WHERE,
)
