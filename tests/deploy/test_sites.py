"""Keys and certificates in the hands of a site and an operator, without a server."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from datetime import timedelta

import pytest
from cryptography import x509
from federation import small_experiment, write_deployment

from motet._cli.main import call
from motet.deploy import _certificates as certificates
from motet.deploy._keys import fingerprint, public_of, replace_site_key, write_site_key
from motet.deploy._layout import Deployment
from motet.deploy._preflight import read_certificate
from motet.deploy._site_settings import SiteSettings
from motet.deploy._sitecheck import check_site
from motet.deploy._sites import add_site, remove_site, renew_certificates
from motet.deploy._submission import app_settings
from motet.errors import RequestError, StateError


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("sites") / "small"
    return write_deployment(path, small_experiment(clients=2)).deployment


@pytest.fixture
def net(written, tmp_path):
    shutil.copytree(written.path, tmp_path / "net")
    return Deployment.open(tmp_path / "net")


# -- sites --------------------------------------------------------------------


def test_a_new_site_gets_everything_but_data_and_a_key(net):
    folder = add_site(net, "north wing").folder
    grown = Deployment.open(net.path)
    assert grown.sites == ("0", "1", "north wing")
    assert app_settings(grown)["clients"] == "0,1,north wing"
    others = {path.name for path in net.site("0").iterdir()}
    assert {path.name for path in folder.iterdir()} == others - {
        "data",
        "site.key",
        "site.key.pub",
    }
    assert SiteSettings.read(folder).name == "north wing"
    assert (folder / "experiment.sha256").read_bytes() == (
        net.site("0") / "experiment.sha256"
    ).read_bytes()
    shutil.copytree(net.site("0") / "data", folder / "data")
    assert check_site(folder)["train"] > 0


def test_the_page_of_a_new_site_lists_what_the_pages_of_the_others_list(net):
    page = (add_site(net, "new").folder / "README.md").read_text()
    other = (net.site("0") / "README.md").read_text()
    start = "**Sent in each round**"
    assert page.split(start)[1].split("## 5")[0] == other.split(start)[1].split("## 5")[0]


@pytest.mark.parametrize(
    ("name", "sentence"), [("0", "is a site of this deployment already"), ("a,b", "cannot name")]
)
def test_a_name_that_cannot_be_added_is_refused_and_nothing_is_written(net, name, sentence):
    before = {path.name for path in (net.path / "sites").iterdir()}
    with pytest.raises(RequestError, match=sentence):
        add_site(net, name)
    assert {path.name for path in (net.path / "sites").iterdir()} == before


def test_a_site_that_does_not_exist_is_not_removed(net):
    with pytest.raises(RequestError, match='"00" is not a site of this deployment'):
        remove_site(net, "00")


# -- keys ---------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path):
    write_site_key(tmp_path / "site.key")
    public = public_of(tmp_path / "site.key")
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(public)], capture_output=True, text=True, check=True
    )
    assert fingerprint(public) == shown.stdout.split()[1]


def test_a_private_key_in_the_place_of_a_public_one_is_refused(tmp_path):
    write_site_key(tmp_path / "site.key")
    with pytest.raises(RequestError, match="is a private key, which must not leave its site"):
        fingerprint(tmp_path / "site.key")


@pytest.mark.parametrize("text", ["", "ssh-ed25519 AAAA", "hello", "\x00\xff"])
def test_what_is_no_public_key_is_refused(tmp_path, text):
    (tmp_path / "key.pub").write_text(text)
    with pytest.raises(RequestError, match="is not a public key that can be used"):
        fingerprint(tmp_path / "key.pub")


def test_a_key_is_not_replaced_unasked_and_the_old_one_is_kept(tmp_path):
    path = tmp_path / "site.key"
    assert replace_site_key(path, overwrite=False) is None
    first = path.read_bytes()
    with pytest.raises(StateError, match="--overwrite creates a new key"):
        replace_site_key(path, overwrite=False)
    old = replace_site_key(path, overwrite=True)
    assert old.read_bytes() == first != path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(old.stat().st_mode) == 0o600


def test_a_site_is_told_what_to_send_and_what_to_read_out(net, capfd):
    site = net.site("1")
    assert call(["deploy", "key", str(site)]) == 2
    assert "--overwrite" in capfd.readouterr().err
    assert call(["deploy", "key", str(site), "--overwrite"]) == 0
    said = capfd.readouterr().out
    assert fingerprint(site / "site.key.pub") in said
    assert "motet deploy site rekey 1 DIR --key site.key.pub" in said


# -- certificates ---------------------------------------------------------------


def test_a_renewed_server_is_trusted_by_sites_that_have_nothing_new(net):
    old = read_certificate(net.certificates / "server.pem")
    authority = net.authority.read_bytes()
    renew_certificates(net, authority=False)
    new = read_certificate(net.certificates / "server.pem")
    assert new.serial_number != old.serial_number
    assert net.authority.read_bytes() == authority
    new.verify_directly_issued_by(read_certificate(net.authority))
    assert stat.S_IMODE((net.certificates / "server.key").stat().st_mode) == 0o600


def test_a_new_authority_is_in_the_folder_of_every_site(net):
    before = net.authority.read_bytes()
    renew_certificates(net, authority=True)
    assert net.authority.read_bytes() != before
    for site in net.sites:
        assert (net.site(site) / "ca.crt").read_bytes() == net.authority.read_bytes()


def test_without_the_authority_s_key_nothing_is_renewed(net):
    (net.certificates / "ca.key").unlink()
    before = (net.certificates / "server.pem").read_bytes()
    with pytest.raises(StateError, match="key of the certificate authority is missing"):
        renew_certificates(net, authority=False)
    assert (net.certificates / "server.pem").read_bytes() == before


def test_a_certificate_never_outlives_its_authority(net, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY_VALID_FOR", timedelta(days=10))
    renew_certificates(net, authority=True)
    ends = [
        x509.load_pem_x509_certificate((net.certificates / name).read_bytes()).not_valid_after_utc
        for name in ("server.pem", "ca.crt")
    ]
    assert ends[0] <= ends[1]


# -- modes --------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_everything_is_the_owner_s_alone_from_creation_even_under_a_permissive_umask(
    tmp_path, monkeypatch
):
    """No mode is changed afterwards, so the mode that a file has now it has always had."""
    changed = []
    monkeypatch.setattr(os, "chmod", lambda path, *_, **__: changed.append(path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        '[run]\nrounds = 1\n[method]\nname = "fedper"\n[data]\nname = "digits"\n'
        '[data.partition]\nname = "iid"\nclients = 2\n'
    )
    before = os.umask(0)
    try:
        assert call(["deploy", "init", "net", "--from", "run.toml", "--quiet"]) == 0
        assert call(["deploy", "site", "add", "2", "net"]) == 0
        assert call(["deploy", "key", "net/sites/2"]) == 0
        assert call(["deploy", "renew", "net"]) == 0
        assert os.umask(0) == 0  # and the umask of this process is as it was
    finally:
        os.umask(before)
    open_ = {
        str(path.relative_to(tmp_path)): oct(path.stat().st_mode)
        for path in [tmp_path / "net", *(tmp_path / "net").rglob("*")]
        if path.stat().st_mode & 0o077
    }
    assert (open_, changed) == ({}, [])
    assert os.access(tmp_path / "net" / "sites" / "2" / "start.sh", os.X_OK)
