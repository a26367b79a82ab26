"""Federations of texts: one list of texts per client, turned into numbers by a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._federation import Federation
from motet.data._sources.arrays import from_arrays
from motet.data._split import Split
from motet.errors import DataError, RequestError

NO_TARGET = -1  # what "masked_cross_entropy" leaves out
Texts = Mapping[str, Any]  # texts by client, or (texts, labels)


def from_texts(
    train: Texts,
    test: Texts | None = None,
    *,
    tokenizer: Any,
    length: int,
    pad: int = 0,
    split: Split | None = None,
    seed: int = 0,
    classes: int | None = None,
) -> Federation:
    """Make a federation of tokens: texts are cut to `length` tokens, or padded at the end.

    Args:
        train: By client: `(texts, labels)`, for a label per text; or texts alone, to predict every
            next token. Targets at padding are -1, so the loss is "masked_cross_entropy".
        test: The same for the test split.
        tokenizer: A `tokenizers.Tokenizer`, a tokenizer of `transformers`, or any function from a
            text to token numbers.
        length: Tokens of an example.
        pad: Token number of padding; it must be the one that the network masks.
        split: Cuts validation and test examples off `train`.
        seed: Of the cut.
        classes: Number of labels; the size of the vocabulary if there are none.

    Returns:
        A federation whose inputs are token numbers.

    Raises:
        RequestError: `length` is below 1.

    Example:
        >>> data = from_texts(
        ...     {"ann": (["ab", "b"], [0, 1])},
        ...     tokenizer=lambda text: [ord(letter) - 96 for letter in text],
        ...     length=2,
        ... )
        >>> data.examples("ann", "train").x.tolist()
        [[1, 2], [2, 0]]
    """
    if length < 1:
        raise RequestError(f"length= must be 1 or more; got {length}.")

    def encoded(texts: Texts) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        return {
            client: _examples(client, given, tokenizer, length, pad)
            for client, given in texts.items()
        }

    tests = None if test is None else encoded(test)
    return from_arrays(encoded(train), test=tests, split=split, seed=seed, classes=classes)


def _examples(
    client: str, given: Any, tokenizer: Any, length: int, pad: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    texts, labels = given if isinstance(given, tuple) else (given, None)
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if isinstance(texts, str) or wrong is not None:
        found = type(texts if isinstance(texts, str) else wrong).__name__
        raise DataError(f'client "{client}" must have a list of texts; got {found}.')
    x = np.full((len(texts), length), pad, np.int64)
    for row, text in zip(x, texts, strict=True):
        tokens = _tokens(tokenizer, text)[:length]
        row[: len(tokens)] = tokens
    if labels is not None:
        return x, np.asarray(labels)
    following = np.full_like(x, NO_TARGET)
    following[:, :-1] = np.where(x[:, 1:] == pad, NO_TARGET, x[:, 1:])
    return x, following


def _tokens(tokenizer: Any, text: str) -> Sequence[int]:
    made = tokenizer.encode(text) if hasattr(tokenizer, "encode") else tokenizer(text)
    tokens: Sequence[int] = getattr(made, "ids", made)
    return tokens
