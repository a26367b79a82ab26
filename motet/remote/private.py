"""What a client keeps, on the disk of its own site: one file, replaced in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from motet import tree, wire
from motet.atomic import write_atomically
from motet.errors import StateError


class Kept(NamedTuple):
    """The last round a client has worked in, and what it kept on both sides of it.

    A round that is asked for again starts from `before`, so it ends as it did the first time.
    """

    number: int  # from 0
    before: Any
    after: Any


@dataclass(frozen=True)
class PrivateFile:
    """The file of one client in one experiment.

    Attributes:
        path: Where it is; named after the client, never after an id that changes with a restart.
        agreed: What the experiment is; a file of another one is refused.
    """

    path: Path
    agreed: str

    @classmethod
    def of(cls, folder: Path, experiment: str, client: str, agreed: str) -> PrivateFile:
        """Name the file, whatever characters a client's name has."""
        name = quote(client, safe=" ").replace(".", "%2E")
        return cls(folder / experiment / f"{name}.safetensors", agreed)

    def read(self, template: Any) -> Kept | None:
        """Read what the client keeps; None if it has never worked in this experiment."""
        if not self.path.exists():
            return None
        about, named = self._load()
        if about.get("agreed") != self.agreed:
            raise StateError(
                f"{self.path.name} belongs to another configuration of the experiment; give this "
                "one another name."
            )
        both = wire.from_tensors({"before": template, "after": template}, named)
        return Kept(int(about["round"]), both["before"], both["after"])

    def write(self, kept: Kept) -> None:
        """Keep the new state and the one before it: on disk when this returns, and never half."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        both = {"before": kept.before, "after": kept.after}
        # Clones, because the format refuses names that share memory, and views have gaps.
        named = {name: leaf.detach().clone().contiguous() for name, leaf in tree.flatten(both)}
        about = {"agreed": self.agreed, "round": str(kept.number)}
        write_atomically(self.path, safetensors.torch.save(named, metadata=about))

    def _load(self) -> tuple[Mapping[str, str], dict[str, Tensor]]:
        try:
            with safe_open(self.path, framework="pt") as file:
                named = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return file.metadata() or {}, named
        except SafetensorError as reason:
            raise StateError(
                f"{self.path.name} is damaged ({reason}). Restore it from a backup, or delete it "
                "to start afresh."
            ) from reason
