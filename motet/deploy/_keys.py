"""Keys of sites: a site creates its own, and the operator registers the public one."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)

from motet._core.atomic import make_private_folder, write_atomically
from motet._core.real_paths import did_you_mean
from motet.errors import RequestError, StateError


def write_site_key(path: Path) -> None:
    """Write a site's key pair, as `ssh-keygen -t ecdsa -b 384` would: `path` and `path`.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    make_private_folder(path.parent)
    write_atomically(path, secret, private=True)
    write_atomically(public_of(path), public + b"\n")


def replace_site_key(path: Path, *, overwrite: bool) -> Path | None:
    """Write a new key pair; an earlier one is kept beside it, and its path is returned."""
    if not path.exists():
        write_site_key(path)
        return None
    if not overwrite:
        raise StateError(
            f"{path} exists. --overwrite creates a new key and keeps this one beside it; the "
            "server refuses the new key until its operator has registered it."
        )
    old = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
    path.rename(old)
    write_site_key(path)
    return old


def public_of(path: Path) -> Path:
    """Return the path of the public key that belongs to a private one."""
    return path.with_name(f"{path.name}.pub")


def read_public_key(path: Path) -> bytes:
    """Read a public key that Flower accepts, in one line without a comment."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise RequestError(f"there is no public key at {path}.{did_you_mean(path)}") from None
    except OSError as reason:
        raise StateError(f"{path} cannot be read: {(reason.strerror or '').lower()}.") from None
    if b"PRIVATE KEY" in text:
        raise RequestError(
            f"{path} is a private key, which must not leave its site. Send {path.name}.pub, and "
            "create a new key at the site."
        )
    try:
        key = load_ssh_public_key(text)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise RequestError(
            f"{path} is not a public key that can be used: expected one of `motet deploy key`, or "
            "of `ssh-keygen -t ecdsa -b 384`."
        )
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def fingerprint(path: Path) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` shows it."""
    blob = base64.b64decode(read_public_key(path).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
