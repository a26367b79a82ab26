"""`motet deploy start` and `filter` with something missing: one sentence, and nothing starts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from federation import write_deployment

from motet._cli.main import call
from motet.deploy import _certificates as certificates
from motet.deploy._certificates import write_certificates, write_shared_secret
from motet.deploy._layout import LOOPBACK
from motet.deploy._loopback import free_ports
from motet.deploy._preflight import connection_trouble
from motet.deploy._site_settings import SiteSettings, pinned_at
from motet.errors import RequestError, StateError


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    port, superlink_port, site_port = free_ports(3)
    return write_deployment(
        tmp_path_factory.mktemp("preflight") / "small",
        host=LOOPBACK,
        port=port,
        superlink_port=superlink_port,
        site_port=site_port,
    ).deployment


@pytest.fixture
def net(written, tmp_path):
    return shutil.copytree(written.path, tmp_path / "net")


@pytest.fixture
def site(net):
    return net / "sites" / "0"


@pytest.fixture
def sentence(capfd):
    """Call `motet deploy` with a wrong request, and return what it says about it."""

    def ask(*words):
        capfd.readouterr()
        code = call(["deploy", *map(str, words)])
        out, err = capfd.readouterr()
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert not set(err) & set("╭╮╰╯│─┌┐└┘")
        return err

    return ask


def expire(folder, monkeypatch, *, authority=False):
    """Write certificates that have expired a minute ago."""
    name = "AUTHORITY_VALID_FOR" if authority else "VALID_FOR"
    monkeypatch.setattr(certificates, name, timedelta(minutes=-1))
    write_certificates(folder, [LOOPBACK])


def test_a_missing_key_of_a_site(site, sentence):
    (site / "site.key").unlink()
    said = sentence("start", site)
    assert "there is no key at" in said
    assert "`motet deploy key`" in said


def test_a_key_of_another_kind(site, sentence):
    write_shared_secret(site / "site.key")
    assert "is not a key that can be used" in sentence("start", site)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_key_that_others_can_read(site, sentence):
    (site / "site.key").chmod(0o640)
    said = sentence("start", site)
    assert "can be read by other accounts (mode 0640)" in said
    assert f"chmod 600 {site / 'site.key'}" in said


def test_an_authority_that_has_expired(site, sentence, monkeypatch, tmp_path):
    expire(tmp_path / "old", monkeypatch, authority=True)
    shutil.copy(tmp_path / "old" / "ca.crt", site / "ca.crt")
    assert "ca.crt expired on 20" in sentence("start", site)


@pytest.mark.parametrize("program", ["start", "filter"])
def test_a_certificate_of_the_server_that_has_expired(net, sentence, monkeypatch, program):
    expire(net / "certificates", monkeypatch)
    said = sentence(program, net)
    assert "server.pem expired on 20" in said
    assert "motet deploy renew" in said


@pytest.mark.parametrize("program", ["start", "filter"])
def test_a_missing_key_of_the_server(net, sentence, program):
    (net / "certificates" / "server.key").unlink()
    assert "there is no key at" in sentence(program, net)


def test_data_that_are_not_there(site, sentence):
    shutil.rmtree(site / "data")
    assert f"there is no folder at {site / 'data'}" in sentence("start", site)


def test_a_missing_hash_of_the_experiment(site, sentence):
    (site / "experiment.sha256").unlink()
    assert "has no experiment.sha256" in sentence("start", site)


@pytest.mark.parametrize("program", ["start site", "start server", "filter"])
def test_a_port_that_another_program_uses(net, site, written, sentence, program):
    word, where, port = {
        "start site": ("start", site, written.site_port),
        "start server": ("start", net, written.superlink_port),
        "filter": ("filter", net, written.port),
    }[program]
    with socket.create_server((LOOPBACK, port)):
        said = sentence(word, where, *(("--host", LOOPBACK) if word == "filter" else ()))
    assert f"port {port} of {LOOPBACK} cannot be used: address already in use" in said


def test_a_folder_that_is_not_there(sentence, tmp_path):
    assert "there is no folder at" in sentence("start", tmp_path / "nowhere")


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can become others")
def test_a_folder_of_another_account():
    """As an account that may not read it; this process may read everything."""
    with tempfile.TemporaryDirectory() as own:  # pytest's own folders are closed to others
        _check_as_nobody(Path(own))


def _check_as_nobody(own):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from motet.deploy._preflight import check_folder, check_site_key\n"
        "from motet.errors import StateError\n"
        "os.setuid(65534)\n"
        "for check in (check_folder, lambda p: check_site_key(p / 'site.key')):\n"
        "    try: check(Path(sys.argv[1]))\n"
        "    except StateError as error: print(error)\n"
    )
    own.chmod(0o755)
    locked = own / "locked"
    locked.mkdir(mode=0o700)
    said = subprocess.run(
        [sys.executable, "-c", code, str(locked)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[0].startswith(f"this account cannot read {locked}; it belongs to another one.")
    assert said[1] == f"{locked / 'site.key'} cannot be read: permission denied."


# -- the server that a site connects to -----------------------------------------


def test_a_port_where_nothing_listens_is_a_remark_since_the_server_may_come(written):
    said = connection_trouble(f"{LOOPBACK}:{free_ports(1)[0]}", written.authority)
    assert "connection refused" in said
    assert "server in site.toml" in said


def test_a_port_of_another_service_is_refused(written):
    with socket.create_server((LOOPBACK, 0)) as other:
        from threading import Thread

        def answer():
            connection, _ = other.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"SSH-2.0-something else\r\n")

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(StateError, match="does not speak TLS: this is not the port"):
            connection_trouble(f"{LOOPBACK}:{other.getsockname()[1]}", written.authority)
        thread.join()


@pytest.mark.parametrize("server", ["fl.example.org", "fl.example.org:", "x:0", "x:99999", "x:y"])
def test_an_address_that_is_none_is_refused(site, server):
    settings = SiteSettings.read(site)
    with pytest.raises(RequestError, match=r"HOST:PORT|from 1 to 65535"):
        replace(settings, server=server)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("share_scores = 0", "share_scores in site.toml expects true or false; got 0."),
        ('port = "9094"', "port in site.toml expects a whole number; got '9094'."),
        ("port = 0", "port in site.toml expects a whole number from 1 to 65535; got 0."),
        ("share_score = true", 'site.toml has no key "share_score"; did you mean "share_scores"'),
        ("= 1", "is not valid TOML"),
        ('name = ""', "cannot name a site"),
        ('name = "a\\u001b[1m"', "cannot name a site"),
        ('server = "https://fl.example.org:8443"', "host expects a name or an address"),
        ("max_clients = 0", "max_clients expects 1 or more; got 0."),
        ('state = ""', 'state expects a path, such as "state"; got nothing.'),
        ("cross_site = 1", "cross_site in site.toml expects true or false; got 1."),
    ],
)
def test_a_wrong_line_in_site_toml_is_named(site, line, sentence):
    text = (site / "site.toml").read_text()
    key = line.partition(" ")[0]
    kept = [old for old in text.splitlines() if not old.startswith(f"{key} ")]
    (site / "site.toml").write_text("\n".join([*kept, line]))
    with pytest.raises((RequestError, StateError)) as refused:
        SiteSettings.read(site)
    assert sentence in str(refused.value)


def test_ports_come_from_the_record(net, written, capfd):
    record = (net / "deployment.toml").read_text()
    assert f"superlink_port = {written.superlink_port}" in record
    (net / "deployment.toml").write_text(
        record.replace(f"superlink_port = {written.superlink_port}", "superlink_port = 70000")
    )
    assert call(["deploy", "status", str(net), "--json"]) == 2
    assert "superlink_port expects a whole number from 1 to 65535; got 70000" in (
        capfd.readouterr().err
    )


def test_a_log_level_that_does_not_exist_is_refused(site, sentence):
    assert "--log-level expects debug, info, warning, error" in sentence(
        "start", site, "--log-level", "loud"
    )


def test_a_filter_says_in_json_where_it_stands(written):
    """A real one, stopped as soon as it has said so."""
    code = "from motet._cli.main import main; main()"
    words = ["deploy", "filter", str(written.path), "--host", LOOPBACK, "--json"]
    running = subprocess.Popen(
        [sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    line = json.loads(running.stderr.readline())
    running.terminate()
    running.communicate()
    assert line["level"] == "info"
    assert line["program"] == "path filter"
    assert f"forwarding {LOOPBACK}:{written.port}" in line["message"]


@pytest.mark.parametrize("pin", ["", "any", "hello world", "0" * 63, "g" * 64, "\x1b[2J"])
def test_a_pin_that_is_no_hash_is_refused(site, pin):
    (site / "experiment.sha256").write_text(pin)
    with pytest.raises(StateError, match="expects the hash of the experiment, 64 hexadecimal"):
        pinned_at(site)


def test_files_may_begin_with_a_byte_order_mark_or_end_lines_as_windows_does(site):
    expected = SiteSettings.read(site), pinned_at(site)
    for name in ("site.toml", "experiment.sha256"):
        text = (site / name).read_text()
        (site / name).write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    assert (SiteSettings.read(site), pinned_at(site)) == expected
