"""The only door to randomness.

Every stream is named: run seed, then whatever it belongs to (round, client, purpose). Equal names
give equal streams on every machine and in every order of execution, so nothing depends on who ran
first.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Key:
    """A name for a stream of randomness.

    >>> Key(0).fold("batches", 3, "alice").integer() == Key(0).fold("batches", 3, "alice").integer()
    True
    >>> Key(0).fold(1, 23) == Key(0).fold(12, 3)
    False
    """

    seed: int
    path: tuple[int | str, ...] = ()

    def fold(self, *names: int | str) -> Key:
        """Name a stream below this one."""
        # Numpy's numbers and strings equal Python's, but are written differently.
        plain = (str(name) if isinstance(name, str) else int(name) for name in names)
        return Key(self.seed, (*self.path, *plain))

    def integer(self, bits: int = 63) -> int:
        """Draw the stream's own number, below 2**bits."""
        text = repr((int(self.seed), *self.path)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> (64 - bits)

    def numpy(self) -> np.random.Generator:
        """Open the stream as a numpy generator."""
        return np.random.Generator(np.random.Philox(self.integer()))
