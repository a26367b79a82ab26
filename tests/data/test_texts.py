"""Texts by client become tokens: cut, padded, with a label or with every next token as target."""

from __future__ import annotations

import pytest

from motet.data import Split, from_texts
from motet.errors import DataError, RequestError


def letters(text):
    return [ord(letter) - 96 for letter in text]


class Encoder:
    """As in `tokenizers`: numbers are in `ids`."""

    class Encoding:
        def __init__(self, ids):
            self.ids = ids

    def encode(self, text):
        return self.Encoding(letters(text))


@pytest.mark.parametrize("tokenizer", [letters, Encoder()])
def test_texts_are_cut_and_padded(tokenizer):
    data = from_texts({"a": (["abc", "a"], [0, 1])}, tokenizer=tokenizer, length=2, classes=2)
    x, y = data.examples("a", "train")
    assert x.tolist() == [[1, 2], [1, 0]]
    assert y.tolist() == [0, 1]


def test_every_next_token_is_a_target_and_padding_is_none():
    data = from_texts({"a": ["abc", "ab"]}, tokenizer=letters, length=4, classes=27)
    assert data.examples("a", "train").y.tolist() == [[2, 3, -1, -1], [2, -1, -1, -1]]


def test_a_split_cuts_test_examples():
    texts = {"a": (["abc"] * 8, [0, 1] * 4)}
    data = from_texts(texts, tokenizer=letters, length=3, split=Split(val=0.0, test=0.25))
    assert data.size("a", "test") == 2


def test_wrong_texts_are_named():
    with pytest.raises(DataError, match='client "a" must have a list of texts; got int'):
        from_texts({"a": ([3], [0])}, tokenizer=letters, length=3)
    with pytest.raises(DataError, match="got str"):
        from_texts({"a": "abc"}, tokenizer=letters, length=3)
    with pytest.raises(RequestError, match="1 or more"):
        from_texts({"a": ["abc"]}, tokenizer=letters, length=0)
