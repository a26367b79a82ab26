"""What a federation needs to trust each other: a private authority, a server's certificate, keys.

Made for a trial, and good enough for a small consortium; a site with an authority of its own puts
its own files in their place. Private keys are readable by their owner alone, from the first byte.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=365)
SKEW = timedelta(minutes=5)  # clocks of two machines differ
SECRET_BYTES = 32


@dataclass(frozen=True)
class Authority:
    """Signs certificates that everybody who holds `certificate` believes."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def made(cls, name: str) -> Authority:
        """Make an authority that signs itself, and may sign servers but no further authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        must = [
            x509.BasicConstraints(ca=True, path_length=0),
            _usage(key_cert_sign=True, crl_sign=True),
        ]
        also = [x509.SubjectKeyIdentifier.from_public_key(key.public_key())]
        return cls(
            _signed(_named(name), key, issuer=_named(name), by=key, must=must, also=also), key
        )

    def server(self, hosts: Sequence[str]) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Make a certificate, and its key, for a server that is reached under these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        must = [
            x509.BasicConstraints(ca=False, path_length=None),
            _usage(digital_signature=True),
        ]
        also = [
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
        ]
        issuer = self.certificate.subject
        signed = _signed(_named(hosts[0]), key, issuer=issuer, by=self.key, must=must, also=also)
        return signed, key


def write_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.crt and ca.key, server.pem and server.key."""
    authority = Authority.made("motet deployment authority")
    certificate, key = authority.server(hosts)
    write_public(folder / "ca.crt", authority.certificate.public_bytes(Encoding.PEM))
    write_private(folder / "ca.key", _pem(authority.key))
    write_public(folder / "server.pem", certificate.public_bytes(Encoding.PEM))
    write_private(folder / "server.key", _pem(key))


def write_site_key(path: Path) -> None:
    """Write a site's key pair as `ssh-keygen -t ecdsa -b 384` would: `path` and `path`.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_private(path, secret)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_public(path.with_name(f"{path.name}.pub"), public + b"\n")


def write_shared_secret(path: Path) -> None:
    """Write what an executor shows the SuperLink before it is handed a run's code."""
    write_private(path, os.urandom(SECRET_BYTES))


def write_private(path: Path, contents: bytes) -> None:
    """Write a file that was never readable by anybody else, not even while it was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # an old file would keep its old mode
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)


def write_public(path: Path, contents: bytes) -> None:
    """Write a file that others may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    must: Sequence[x509.ExtensionType],
    also: Sequence[x509.ExtensionType],
) -> x509.Certificate:
    """Sign a certificate; a reader who does not know one of the `must` extensions refuses it."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID_FOR)
    )
    for extension in must:
        builder = builder.add_extension(extension, critical=True)
    for extension in also:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(by, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(**allowed: bool) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in every})


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
