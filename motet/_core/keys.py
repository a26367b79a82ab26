"""Keys: named, reproducible streams of randomness, the only ones in this package.

Every stream is named: run seed, then whatever it belongs to (round, client, purpose). Equal names
give equal streams on every machine and in every order of execution, so nothing depends on who ran
first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PLAIN = frozenset((int, str))


def _plain(name: int | str) -> int | str:
    """Turn numpy's numbers and strings into Python's: they are equal, but written differently."""
    return str(name) if isinstance(name, str) else int(name)


def _written(names: tuple[int | str, ...]) -> str:
    """Write the end of a path, with its closing parenthesis."""
    if len(names) > 1 and _PLAIN.issuperset(map(type, names)):
        return repr(names)[1:]  # the usual case, and much faster
    return ", ".join(repr(_plain(name)) for name in names) + ")"


@dataclass(frozen=True)
class Key:
    """A name for a stream of randomness.

    Attributes:
        seed: Seed of the run.
        path: Names of the stream, from the outermost to the innermost.

    >>> Key(0).fold("batches", 3, "alice").integer() == Key(0).fold("batches", 3, "alice").integer()
    True
    >>> Key(0).fold(1, 23) == Key(0).fold(12, 3)
    False
    """

    seed: int
    path: tuple[int | str, ...] = ()

    def fold(self, *names: int | str) -> Key:
        """Return the key of a stream below this one.

        Args:
            *names: Names or numbers, from the outermost to the innermost.
        """
        return Key(self.seed, (*self.path, *[n if type(n) in _PLAIN else _plain(n) for n in names]))

    def integer(self, bits: int = 63) -> int:
        """Return the number that belongs to this key.

        Args:
            bits: The number is below 2**bits.
        """
        return _number(repr((int(self.seed), *self.path)), bits)

    def numpy(self) -> np.random.Generator:
        """Return a numpy generator that starts at the beginning of the stream."""
        return np.random.Generator(np.random.Philox(self.integer()))

    def numpy_streams(
        self, names: Iterable[tuple[int | str, ...]]
    ) -> Iterator[np.random.Generator]:
        """Open the streams `self.fold(*name).numpy()` of many names, one after another.

        Much faster than one by one: a single generator is set to the start of each stream, so each
        is valid until the next one is asked for.

        Args:
            names: Names of each stream, as for `fold`.
        """
        start = repr((int(self.seed), *self.path, "")).removesuffix("'')")
        texts = [f"{start}{_written(name)}" for name in names]
        numbers = np.fromiter(map(_number, texts), np.uint64, len(texts))
        philox = np.random.Philox(0)
        generator, state = np.random.Generator(philox), philox.state
        for key in _philox_keys(numbers):
            state["state"]["key"] = key
            philox.state = state
            yield generator


def _number(text: str, bits: int = 63) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


_POOL = 4  # words that numpy's `SeedSequence` mixes a seed into


def _philox_keys(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Compute the keys of `np.random.Philox(seed)` for many seeds at once, [seeds, 2].

    It is what `np.random.SeedSequence` does with one seed (O'Neill, "Developing a seed_seq
    alternative", 2015), in arithmetic of whole arrays; numpy guarantees it never to change.
    """
    words = [seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)]
    words += [np.zeros_like(seeds)] * (_POOL - len(words))
    hashed = _hashing(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word.astype(np.uint32)) for word in words]
    for source in range(_POOL):
        for place in range(_POOL):
            if place != source:
                pool[place] = _mixed(pool[place], hashed(pool[source]))
    drawn = _hashing(0x8B51F9DD, 0x58F38DED)
    low, high, low2, high2 = (drawn(word).astype(np.uint64) for word in pool)
    shift = np.uint64(32)
    return np.stack([low | high << shift, low2 | high2 << shift], axis=1)


def _hashing(constant: int, factor: int) -> Callable[[NDArray[np.uint32]], NDArray[np.uint32]]:
    """Make a hash whose constant changes with every call."""
    mask = 0xFFFFFFFF

    def hashed(word: NDArray[np.uint32]) -> NDArray[np.uint32]:
        nonlocal constant
        scrambled = word ^ np.uint32(constant)
        constant = constant * factor & mask
        scrambled = scrambled * np.uint32(constant)
        return scrambled ^ (scrambled >> np.uint32(16))

    return hashed


def _mixed(one: NDArray[np.uint32], two: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = one * np.uint32(0xCA01F9DD) - two * np.uint32(0x4973F715)
    return mixed ^ (mixed >> np.uint32(16))
