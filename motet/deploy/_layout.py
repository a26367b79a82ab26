"""The directory of a deployment: its record and the paths in it."""

from __future__ import annotations

import ipaddress
import re
import shlex
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import quote

import tomli_w

from motet._core.atomic import write_atomically
from motet._core.directory_lock import DirectoryLock
from motet._core.real_paths import did_you_mean, real_path
from motet.errors import RequestError, StateError, nearest

LOOPBACK = "127.0.0.1"
RECORD = "deployment.toml"
CONFIG = "experiment.toml"  # at each site: the agreed experiment
PIN = "experiment.sha256"  # at each site: its hash, which the site compares with the server's
BASE = "base.safetensors"  # at each site: the weights that the experiment freezes, if there are any
PACKAGE = "motet_app"  # of the Flower app
AGREED = "agreed"  # in a site's node config: that hash
KEY = "site.key"  # at each site; the public one is KEY.pub
PUBLIC_PORT, SUPERLINK_PORT, SITE_PORT = 8443, 8000, 9094  # unless a deployment says otherwise
# Names appear in a comma-separated list, in a quoted setting and as the name of a folder.
NAME = re.compile(r"\w[\w ./-]*")
LONGEST_NAME = 180  # bytes of a folder's name; file systems allow 255, and files get suffixes
# Cyrillic and Greek letters that look like Latin ones, after case folding.
LOOK_ALIKES = str.maketrans("авекмнорстухіјѕԁɡһʏαβεικνορτυχ", "abekmhopctyxijsdghyabeikvoptux")
HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Deployment:
    """One deployment.

    Attributes:
        path: Its directory.
        experiment: Name of the experiment, under which sites store their private state.
        sites: Names of the sites: the clients of the run that the deployment was made from.
        host: Name or address under which sites reach the server.
        port: Port there.
        superlink_port: Port of the SuperLink, on the server's loopback interface.
        site_port: Port of a site's own processes, on the site's loopback interface.
        listen: Address that the path filter listens on.

    Example:
        >>> from pathlib import Path
        >>> net = Deployment(Path("net"), "heart", ("basel", "lyon"), "fl.example.org")
        >>> net.address, net.site("basel").name
        ('fl.example.org:8443', 'basel')
    """

    path: Path
    experiment: str
    sites: tuple[str, ...]
    host: str
    port: int = PUBLIC_PORT
    superlink_port: int = SUPERLINK_PORT
    site_port: int = SITE_PORT
    listen: str = "0.0.0.0"

    def __post_init__(self) -> None:
        check_host(self.host)
        for name in ("port", "superlink_port", "site_port"):
            check_port(getattr(self, name), name)
        if self.port == self.superlink_port:
            raise RequestError(
                f"port and superlink_port are both {self.port}: sites connect to the first, and "
                "the SuperLink listens on the second. Choose another one."
            )

    @classmethod
    def open(cls, path: Path) -> Deployment:
        """Read the record of a directory.

        Args:
            path: The directory.
        """
        try:
            record = tomllib.loads((path / RECORD).read_text(encoding="utf-8"))
            _check_record(record)
            return cls(real_path(path), **{**record, "sites": tuple(record["sites"])})
        except (FileNotFoundError, NotADirectoryError):
            raise StateError(
                f"{path} is not a deployment: {RECORD} is missing. Create one with "
                f"`motet deploy init {shlex.quote(str(path))} --from RUN`.{did_you_mean(path)}"
            ) from None
        except OSError as reason:
            said = (reason.strerror or str(reason)).lower()
            raise StateError(f"{path / RECORD} cannot be read: {said}.") from None
        except ValueError as reason:  # also of TOML, of its encoding, and ours
            said = str(reason).rstrip(".")
            raise StateError(
                f"{path / RECORD} cannot be used: {said}. Correct it, or restore it from a backup."
            ) from None

    @classmethod
    @contextmanager
    def changing(cls, path: Path) -> Iterator[Deployment]:
        """Read the record of a directory that no other command changes in the meantime.

        Args:
            path: The directory.
        """
        with closing(DirectoryLock.take(cls.open(path).path)):
            yield cls.open(path)

    def save(self) -> None:
        """Write the record of this directory."""
        record = {k: v for k, v in vars(self).items() if k != "path"}
        write_atomically(self.path / RECORD, tomli_w.dumps(record).encode(), private=True)

    @property
    def app(self) -> Path:
        """The Flower app that is submitted; contains no secrets."""
        return self.path / "app"

    @property
    def certificates(self) -> Path:
        """The private authority and the server's certificate."""
        return self.path / "certificates"

    @property
    def authority(self) -> Path:
        """The authority's certificate, which server and sites trust."""
        return self.certificates / "ca.crt"

    @property
    def home(self) -> Path:
        """Where Flower's own command line keeps its settings."""
        return self.path / "flower"

    @property
    def trial(self) -> Path:
        """The folder of the last trial."""
        return self.path / "trial"

    @property
    def out(self) -> Path:
        """The run directory of the server."""
        return self.path / "run"

    @property
    def address(self) -> str:
        """The address that sites connect to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def hosts(self) -> list[str]:
        """The names and addresses of the server's certificate."""
        return list(dict.fromkeys([self.host, "localhost", LOOPBACK]))

    def site(self, name: str) -> Path:
        """Return the folder that is handed to a site.

        Args:
            name: Name of the site.
        """
        return self.path / "sites" / quote(name, safe=" ")

    @property
    def most_clients(self) -> int:
        """The largest federation that a site accepts messages about: twice the present one."""
        return max(10, 2 * len(self.sites))

    def data(self, name: str) -> Path:
        """Return the path of a site's data: a table, or a folder of arrays.

        Args:
            name: Name of the site.
        """
        table = self.site(name) / "data.csv"
        return table if table.exists() else self.site(name) / "data"


def _check_record(record: Mapping[str, object]) -> None:
    """Refuse a record with other keys, or with values of another type."""
    known = {one.name for one in fields(Deployment)} - {"path"}
    for key in record.keys() - known:
        raise RequestError(f'there is no key "{key}"; {nearest(key, known)}')
    missing = [key for key in ("experiment", "sites", "host") if key not in record]
    if missing:
        raise RequestError(f"it needs {' and '.join(missing)}")
    sites = record["sites"]
    if not isinstance(sites, list) or not sites or not all(isinstance(s, str) for s in sites):
        raise RequestError(f"sites expects a list of names; got {sites!r}")
    for key in ("experiment", "host", "listen"):
        if not isinstance(record.get(key, ""), str):
            raise RequestError(f"{key} expects text; got {record[key]!r}")


def check_host(host: str) -> None:
    """Refuse what is neither a name nor an address, such as one with a port or a scheme.

    >>> check_host("fl.example.org")
    >>> check_host("https://fl.example.org:8443")
    Traceback (most recent call last):
    motet.errors.RequestError: host expects a name or an address, such as fl.example.org or \
192.0.2.7, without a scheme or a port (--port); got "https://fl.example.org:8443".
    """
    if HOST.fullmatch(host):
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise RequestError(
            "host expects a name or an address, such as fl.example.org or 192.0.2.7, without a "
            f'scheme or a port (--port); got "{host}".'
        ) from None


def check_port(port: object, name: str) -> None:
    """Refuse what is not a port.

    >>> check_port(70000, "port")
    Traceback (most recent call last):
    motet.errors.RequestError: port expects a whole number from 1 to 65535; got 70000.
    """
    if type(port) is not int or not 1 <= port <= 65535:
        message = f"{name} expects a whole number from 1 to 65535; got {port!r}."
        raise RequestError(message, option=name if name.isidentifier() else None)


def check_new(path: Path) -> None:
    """Refuse a directory that is not empty: existing keys are never overwritten."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "already holds a deployment" if (path / RECORD).exists() else "is not empty"
        raise StateError(f"{path} {what}. Choose a new directory, or remove this one first.")


def check_names(sites: tuple[str, ...]) -> None:
    """Refuse names that are not valid for a site."""
    for name in sites:
        if not NAME.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot name a site: expected letters, digits, spaces and . / - _, and "
                "a letter or digit first. Rename the client in the data."
            )
        if len(quote(name, safe=" ")) > LONGEST_NAME:
            raise RequestError(
                f"{name[:40]!r}... cannot name a site: its folder's name would have "
                f"{len(quote(name, safe=' '))} characters, and {LONGEST_NAME} is the limit. Rename "
                "the client in the data."
            )
    # People and some file systems cannot tell "Nord" from "nord", two ways of writing an umlaut, or
    # a Latin letter from a Cyrillic one.
    seen: dict[str, str] = {}
    for name in sites:
        shown = unicodedata.normalize("NFKC", name).casefold().translate(LOOK_ALIKES)
        other = seen.setdefault(shown, name)
        if other != name:
            raise RequestError(
                f'"{other}" and "{name}" are too much alike to name two sites: they differ only in '
                "case or in letters that look the same. Rename one of them."
            )
