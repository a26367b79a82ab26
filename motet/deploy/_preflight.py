"""Checks before a program starts: each says in one sentence what is wrong and how to fix it."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from motet._core.real_paths import did_you_mean
from motet.deploy._layout import LOOPBACK
from motet.deploy._site_settings import plain
from motet.errors import StateError

CONNECT_S = 10.0


def check_folder(folder: Path, *, writing: bool = False) -> None:
    """Refuse a folder that cannot be used by this account."""
    if not folder.is_dir():
        found = f"{folder} is a file" if folder.exists() else f"there is no folder at {folder}"
        raise StateError(f"{found}; expected a folder.{did_you_mean(folder)}")
    needed, verb = (os.W_OK, "write to") if writing else (os.R_OK, "read")
    if not os.access(folder, needed | os.X_OK):
        raise StateError(
            f"this account cannot {verb} {folder}; it belongs to another one. Start the program "
            f"as that account, or change the owner: chown -R $USER {folder}."
        )


def check_site_key(path: Path) -> None:
    """Refuse a private key that is missing, open to other accounts, or of another kind."""
    _check_private(path, "Create one with `motet deploy key`, and send the .pub file to the server")
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, OSError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(
            f"{path} is not a key that can be used: expected an EC key in OpenSSH format without a "
            "passphrase, as `motet deploy key` creates it."
        )


def check_server_key(path: Path) -> None:
    """Refuse a server's key that is missing, open to other accounts, or of another kind."""
    _check_private(path, "`motet deploy renew` creates a new one with its certificate")
    try:
        load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, OSError):
        raise StateError(f"{path} is not a private key in PEM format.") from None


def _check_private(path: Path, fix: str) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise StateError(f"there is no key at {path}. {fix}.") from None
    except OSError as reason:
        raise StateError(f"{path} cannot be read: {plain(reason)}.") from None
    if not os.access(path, os.R_OK):
        raise StateError(f"{path} cannot be read: permission denied. Start as its owner.")
    if os.name == "posix" and mode & 0o077:
        raise StateError(
            f"{path} can be read by other accounts (mode {mode:04o}). Run `chmod 600 {path}`; if "
            "others have read it, create a new key."
        )


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM format."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise StateError(f"there is no certificate at {path}.") from None
    except OSError as reason:
        raise StateError(f"{path} cannot be read: {plain(reason)}.") from None
    except ValueError:
        raise StateError(f"{path} is not a certificate in PEM format.") from None


def check_certificate(path: Path, fix: str) -> None:
    """Refuse a certificate that is missing or not valid now."""
    certificate, now = read_certificate(path), datetime.now(UTC)
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if now > ends:
        raise StateError(f"the certificate {path} expired on {ends:%Y-%m-%d}. {fix}.")
    if now < begins:
        raise StateError(
            f"the certificate {path} is valid from {begins:%Y-%m-%d %H:%M} UTC, and the clock of "
            f"this machine says {now:%Y-%m-%d %H:%M}. Set the clock."
        )


def check_port_is_free(port: int, fix: str, host: str = LOOPBACK) -> None:
    """Refuse a port that another program uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as reason:
            raise StateError(
                f"port {port} of {host} cannot be used: {plain(reason)}. {fix}."
            ) from None


def connection_trouble(address: str, authority: Path) -> str | None:
    """Try to reach a server over TLS, and say why that is not possible at the moment.

    Behind a proxy nothing is tried.

    Raises:
        StateError: The server answers, but it cannot be the right one.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if getproxies().keys() & {"https", "all"} and not proxy_bypass(host):
        return None
    trust = ssl.create_default_context(cafile=authority)
    try:
        with (
            socket.create_connection((host, int(port)), timeout=CONNECT_S) as plainly,
            trust.wrap_socket(plainly, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as reason:
        raise StateError(
            f"the server at {address} is not trusted: {reason.verify_message.rstrip('.').lower()}. "
            f"Compare {authority} with the operator's certificates/ca.crt; if the server's "
            "certificate has expired, the operator runs `motet deploy renew`."
        ) from None
    except ssl.SSLError:
        raise StateError(
            f"the program at {address} does not speak TLS: this is not the port of the federation. "
            "Correct server in site.toml."
        ) from None
    except OSError as reason:
        return (
            f"nothing answers at {address} ({plain(reason)}). If server in site.toml is right, the "
            "server is down, or a firewall is in between. Trying again until it answers."
        )
