"""The choices of one site, in its `site.toml`: every way of starting the site reads this file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from motet._core.atomic import write_atomically
from motet._core.visible_text import excerpt
from motet.deploy._commands import node_config, supernode
from motet.deploy._layout import (
    AGREED,
    KEY,
    PIN,
    SITE_PORT,
    check_host,
    check_names,
    check_port,
)
from motet.errors import RequestError, StateError, nearest

SETTINGS = "site.toml"
STATE = "state"
WITH_MARK = "utf-8-sig"  # some editors begin a file with a byte order mark
HASH = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, kw_only=True)
class SiteSettings:
    """What `site.toml` says. Paths are absolute, or relative to the folder of the site.

    Attributes:
        name: The site's name in the experiment.
        server: Address to connect to, HOST:PORT.
        data: Its data: a table, or a folder of arrays.
        state: Folder of its private state.
        key: Its private key.
        port: Port of the site's own processes, on loopback.
        max_clients: The largest federation that it accepts messages about.
        share_scores: Whether the server receives its scores.
        cross_site: Whether its own model may leave it to be scored at other sites, and theirs here.
        base: Its file of the weights that the experiment freezes; "" if there are none.
    """

    name: str
    server: str
    data: str = "data"
    state: str = STATE
    key: str = KEY
    port: int = SITE_PORT
    max_clients: int = 10
    share_scores: bool = True
    cross_site: bool = False
    base: str = ""

    def __post_init__(self) -> None:
        check_names((self.name,))
        check_port(self.port, f"port in {SETTINGS}")
        host, _, port = self.server.rpartition(":")
        if not host or not port.isdecimal():
            raise RequestError(f'server expects "HOST:PORT"; got "{self.server}".')
        check_host(host.removeprefix("[").removesuffix("]"))
        check_port(int(port), "the port of server")
        if self.max_clients < 1:
            raise RequestError(f"max_clients expects 1 or more; got {self.max_clients}.")
        for key in ("data", "state", "key"):
            if not getattr(self, key).strip():
                raise RequestError(f'{key} expects a path, such as "{key}"; got nothing.')

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
        """Read the settings of a site."""
        path = folder / SETTINGS
        try:
            table = tomllib.loads(path.read_text(encoding=WITH_MARK))
        except FileNotFoundError:
            raise RequestError(
                f"{folder} is not the folder of a site: it has no {SETTINGS}."
            ) from None
        except OSError as reason:
            raise StateError(f"{path} cannot be read: {plain(reason)}.") from None
        except ValueError as reason:
            raise StateError(f"{path} is not valid TOML: {str(reason).rstrip('.')}.") from None
        return cls._of(table)

    @classmethod
    def _of(cls, table: Mapping[str, Any]) -> SiteSettings:
        """Check names and types here: `motet.config` would load torch, and a site starts often."""
        kinds = {"str": str, "int": int, "bool": bool}
        known = {one.name: kinds[str(one.type)] for one in fields(cls)}
        for key, value in table.items():
            if key not in known:
                raise RequestError(f'{SETTINGS} has no key "{key}"; {nearest(key, known)}.')
            if type(value) is not known[key]:
                expected = {str: "text", int: "a whole number", bool: "true or false"}[known[key]]
                raise RequestError(f"{key} in {SETTINGS} expects {expected}; got {value!r}.")
        missing = [key for key in ("name", "server") if key not in table]
        if missing:
            raise RequestError(f"{SETTINGS} needs {' and '.join(missing)}.")
        return cls(**table)

    def write(self, folder: Path) -> None:
        """Write the settings into the folder of the site."""
        said = {key: value for key, value in asdict(self).items() if value != ""}
        contents = "# The choices of this site. start.sh, the systemd unit and the container read "
        contents += "them here.\n" + tomli_w.dumps(said)
        write_atomically(folder / SETTINGS, contents.encode(), private=True)

    def command(self, folder: Path, agreed: str) -> list[str]:
        """Return the command line of the site's SuperNode.

        Args:
            folder: Of the site.
            agreed: The hash of the experiment that it has agreed to.
        """
        settings: dict[str, object] = {
            "client": self.name,
            "data": str(folder / self.data),
            "state-dir": str(folder / self.state),
            AGREED: agreed,
            "max-clients": self.max_clients,
            "share-scores": self.share_scores,
            "cross-site": self.cross_site,
        }
        if self.base:
            settings["base"] = str(folder / self.base)
        program = supernode(folder, server=self.server, port=self.port, key=folder / self.key)
        return [*program, *node_config(settings)]


def pinned_at(folder: Path) -> tuple[str, str]:
    """Read the hash that a site has pinned, and the name of the experiment."""
    path = folder / PIN
    try:
        text = path.read_text(encoding=WITH_MARK)
    except FileNotFoundError:
        raise RequestError(
            f"{folder} has no {PIN}, the hash of the experiment; ask for it again."
        ) from None
    except (OSError, ValueError) as reason:
        raise StateError(f"{path} cannot be read: {plain(reason)}.") from None
    pinned, _, name = text.strip().partition("  ")
    if not HASH.fullmatch(pinned):
        raise StateError(
            f"{path} expects the hash of the experiment, 64 hexadecimal digits, and its name; got "
            f'"{excerpt(text, most=80)}". Ask for the file again.'
        )
    return pinned.lower(), name.strip()


def plain(reason: BaseException) -> str:
    """Say why a file could not be used, without a number or a path.

    >>> plain(FileNotFoundError(2, "No such file or directory", "x"))
    'no such file or directory'
    """
    said = getattr(reason, "strerror", None) or str(reason)
    return str(said).partition(" (while")[0].lower().rstrip(".")
