"""Certificates and keys: what they are trusted for, and who can read them."""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from motet.deploy._certificates import Authority, write_certificates, write_private
from motet.deploy._keys import write_site_key

HOSTS = ["fl.example.org", "127.0.0.1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder, HOSTS)
    write_site_key(folder / "site.key")
    return folder


def shake_hands(server_folder, authority, host):
    """Let a client and a server talk over TLS in memory."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(server_folder / "server.pem", server_folder / "server.key")
    client = ssl.create_default_context(cafile=authority)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname=host)
    theirs = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours.version()


@pytest.mark.parametrize("host", HOSTS)
def test_a_site_with_the_authority_s_certificate_trusts_the_server(folder, host):
    assert shake_hands(folder, folder / "ca.crt", host) in ("TLSv1.2", "TLSv1.3")


def test_a_server_under_another_name_is_not_trusted(folder):
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, folder / "ca.crt", "elsewhere.example.org")


def test_a_server_of_another_authority_is_not_trusted(folder, tmp_path):
    write_certificates(tmp_path, HOSTS)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, folder / "ca.crt", HOSTS[0])


def test_a_server_s_certificate_signs_nothing_and_names_its_hosts(folder):
    server = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    extension = server.extensions.get_extension_for_class
    assert not extension(x509.BasicConstraints).value.ca
    assert list(extension(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = extension(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(HOSTS[1])]


def test_the_authority_may_sign_servers_but_no_further_authority():
    constraints = Authority.create("a").certificate.extensions.get_extension_for_class(
        x509.BasicConstraints
    )
    assert constraints.critical
    assert constraints.value.ca
    assert constraints.value.path_length == 0


def test_a_site_s_key_is_one_that_flower_accepts(folder):
    key = load_ssh_private_key((folder / "site.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp384r1"
    public = load_ssh_public_key((folder / "site.key.pub").read_bytes())
    assert public == key.public_key()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
@pytest.mark.parametrize("name", ["ca.key", "server.key", "site.key"])
def test_a_private_key_is_readable_by_its_owner_alone(folder, name):
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_key_that_replaces_a_readable_file_is_not_readable(tmp_path):
    (tmp_path / "key").write_text("old")
    (tmp_path / "key").chmod(0o644)
    write_private(tmp_path / "key", b"new")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert (tmp_path / "key").read_bytes() == b"new"
