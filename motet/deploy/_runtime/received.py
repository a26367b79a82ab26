"""The last model that a site was asked to evaluate, kept there so that it can be exported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from motet._core.atomic import make_private_folder, write_atomically
from motet.deploy._runtime.parcels import Arrays
from motet.errors import StateError

ABOUT = "motet"


class Received(NamedTuple):
    """What a server sent to be evaluated.

    Attributes:
        number: Rounds that had been done.
        clients: Clients of the federation.
        arrays: The message's tensors by path.
    """

    number: int
    clients: int
    arrays: Arrays


@dataclass(frozen=True)
class ReceivedFile:
    """The file of one client in one experiment, beside its private state.

    Attributes:
        path: Where it is.
        agreed: What the experiment is; a file of another one is refused.
    """

    path: Path
    agreed: str

    @classmethod
    def beside(cls, private: Path, agreed: str) -> ReceivedFile:
        """Name the file that belongs to a file of private state."""
        return cls(private.with_suffix(".received"), agreed)

    def write(self, received: Received) -> None:
        """Keep what was received, instead of what was received before."""
        make_private_folder(self.path.parent)
        about = {"agreed": self.agreed, "number": received.number, "clients": received.clients}
        arrays = {name: np.ascontiguousarray(array) for name, array in received.arrays.items()}
        written = safetensors.numpy.save(arrays, metadata={ABOUT: json.dumps(about)})
        write_atomically(self.path, written, private=True)

    def read(self) -> Received | None:
        """Read what was received last; None if nothing was."""
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(self.path, "numpy") as file:
                about = json.loads((file.metadata() or {})[ABOUT])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            number, clients, agreed = about["number"], about["clients"], about["agreed"]
        except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError) as reason:
            raise StateError(
                f"{self.path.name} is damaged ({reason}). Delete it, and ask the operator for "
                "`motet deploy submit DIR --evaluate-only`, which sends the model again."
            ) from None
        if agreed != self.agreed:
            raise StateError(
                f"{self.path.name} belongs to another configuration of the experiment."
            )
        return Received(int(number), int(clients), arrays)
