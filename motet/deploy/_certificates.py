"""Certificates and keys of a federation: a private authority, the server's certificate, site keys.

Suitable for a trial and for a small consortium; a consortium with its own authority replaces the
files. Private keys are readable only by their owner, from the moment the file is created.
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
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from motet._core.atomic import make_private_folder, write_atomically
from motet.deploy._preflight import read_certificate
from motet.errors import StateError

VALID_FOR = timedelta(days=365)  # of a server's certificate, which `motet deploy renew` renews
AUTHORITY_VALID_FOR = timedelta(days=3653)  # a new authority must be brought to every site
SKEW = timedelta(minutes=5)  # tolerated difference between the clocks of two machines
SECRET_BYTES = 32


@dataclass(frozen=True)
class Authority:
    """Signs certificates that are trusted by everyone who has `certificate`."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str) -> Authority:
        """Create a self-signed authority that can sign servers but no other authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        critical = [
            x509.BasicConstraints(ca=True, path_length=0),
            _usage(key_cert_sign=True, crl_sign=True),
        ]
        other = [x509.SubjectKeyIdentifier.from_public_key(key.public_key())]
        subject = _common_name(name)
        certificate = _sign(
            subject,
            key,
            issuer=subject,
            by=key,
            critical=critical,
            other=other,
            valid_for=AUTHORITY_VALID_FOR,
        )
        return cls(certificate, key)

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read the authority of a deployment, with its key."""
        path = folder / "ca.key"
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            raise StateError(
                f"the key of the certificate authority is missing: {path}. Restore it from "
                "its backup, or create a new authority with --authority and give its ca.crt to "
                "every site."
            ) from None
        except (OSError, ValueError, TypeError):
            raise StateError(f"{path} is not a private key in PEM format.") from None
        certificate = read_certificate(folder / "ca.crt")
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != certificate.public_key()
        ):
            raise StateError(f"{path} is not the key of {folder / 'ca.crt'}.")
        return cls(certificate, key)

    def server(self, hosts: Sequence[str]) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Create a certificate and its key for a server that is reached under these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        critical = [
            x509.BasicConstraints(ca=False, path_length=None),
            _usage(digital_signature=True),
        ]
        other = [
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
        ]
        subject, issuer = _common_name(hosts[0]), self.certificate.subject
        # A certificate that outlives its authority is worth nothing from then on.
        left = self.certificate.not_valid_after_utc - datetime.now(UTC)
        signed = _sign(
            subject,
            key,
            issuer=issuer,
            by=self.key,
            critical=critical,
            other=other,
            valid_for=min(VALID_FOR, left),
        )
        return signed, key


def write_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.crt and ca.key, server.pem and server.key."""
    authority = Authority.create("motet deployment authority")
    write_public(folder / "ca.crt", authority.certificate.public_bytes(Encoding.PEM))
    write_private(folder / "ca.key", _pem(authority.key))
    write_server_certificate(folder, authority, hosts)


def write_server_certificate(folder: Path, authority: Authority, hosts: Sequence[str]) -> None:
    """Write server.pem and server.key, in the place of earlier ones."""
    certificate, key = authority.server(hosts)
    write_private(folder / "server.key", _pem(key))
    write_public(folder / "server.pem", certificate.public_bytes(Encoding.PEM))


def write_shared_secret(path: Path) -> None:
    """Write the secret by which an executor authenticates to the SuperLink."""
    write_private(path, os.urandom(SECRET_BYTES))


def write_private(path: Path, contents: bytes) -> None:
    """Write a file that is never readable by other users, not even while it is being written."""
    make_private_folder(path.parent)
    write_atomically(path, contents, private=True)


def write_public(path: Path, contents: bytes) -> None:
    """Write a file that other users may read."""
    make_private_folder(path.parent)
    write_atomically(path, contents)


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    critical: Sequence[x509.ExtensionType],
    other: Sequence[x509.ExtensionType],
    valid_for: timedelta,
) -> x509.Certificate:
    """Sign a certificate; software that does not know a `critical` extension must reject it."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + valid_for)
    )
    for extension in critical:
        builder = builder.add_extension(extension, critical=True)
    for extension in other:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(by, hashes.SHA256())


def _common_name(name: str) -> x509.Name:
    # At most 64 characters; hosts are compared with the alternative names, which hold all of it.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


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
