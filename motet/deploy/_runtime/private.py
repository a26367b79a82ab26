"""The private state of a client on the disk of its own site: one file, replaced in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from motet._core.atomic import make_private_folder, write_atomically
from motet._engine.stores import state_format
from motet.errors import StateError, WireError


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
        client: The client.
        agreed: What the experiment is; a file of another one is refused.
    """

    path: Path
    client: str
    agreed: str

    @classmethod
    def of(cls, folder: Path, experiment: str, client: str, agreed: str) -> PrivateFile:
        """Name the file, whatever characters a client's name has."""
        name = quote(client, safe=" ").replace(".", "%2E")
        return cls(folder / experiment / f"{name}.safetensors", client, agreed)

    def read(self, template: Any) -> Kept | None:
        """Read what the client keeps; None if it has never worked in this experiment."""
        if not self.path.exists():
            return None
        sealed, about = self._load()
        self._check_is_ours(sealed.client, about)
        layout = state_format.Layout.of({"before": template, "after": template})
        both = layout.read_one(sealed.state)
        return Kept(sealed.version, both["before"], both["after"])

    def write(self, kept: Kept) -> None:
        """Keep the new state and the one before it: on disk when this returns, and never half."""
        make_private_folder(self.path.parent)
        both = {"before": kept.before, "after": kept.after}
        state = state_format.Layout.of(both).write_one(both)
        sealed = state_format.Sealed(self.client, kept.number, state)
        contents = state_format.to_file(sealed, {"agreed": self.agreed})
        write_atomically(self.path, contents, private=True)

    def _load(self) -> tuple[state_format.Sealed, Mapping[str, str]]:
        try:
            return state_format.from_file(self.path.read_bytes())
        except WireError as reason:
            raise StateError(
                f"{self.path.name} is damaged ({reason}). Restore it from a backup, or delete it "
                "to start over."
            ) from reason
        except StateError as reason:
            raise StateError(
                f"{self.path.name} cannot be used: {reason}. Finish the experiment with the "
                "version that began it, or delete the file to start over."
            ) from reason

    def _check_is_ours(self, client: str, about: Mapping[str, str]) -> None:
        if client != self.client:
            raise StateError(
                f'{self.path.name} holds the state of "{client}", expected "{self.client}"; put '
                "the right file back."
            )
        if about.get("agreed") != self.agreed:
            raise StateError(
                f"{self.path.name} belongs to another configuration of the experiment; give this "
                "one another name."
            )
