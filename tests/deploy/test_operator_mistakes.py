"""What an operator gets wrong is one sentence with a way out, before anything is started."""

from __future__ import annotations

from contextlib import closing

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName
from federation import write_deployment

from motet._cli.main import call
from motet._core.directory_lock import DirectoryLock
from motet.deploy._certificates import write_certificates
from motet.deploy._layout import RECORD, Deployment, check_host, check_names
from motet.deploy._loopback import free_ports
from motet.deploy._preflight import read_certificate
from motet.deploy._sitecheck import check_site
from motet.deploy._submission import app_settings
from motet.errors import RequestError, StateError


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    ports = dict(zip(("port", "superlink_port", "site_port"), free_ports(3), strict=True))
    return write_deployment(tmp_path_factory.mktemp("wrong") / "my net", **ports).deployment


HOSTS = (
    "", " ", "a b", "http://fl.example.org", "fl.example.org:8443", "fl.example.org/", "-x", "x-",
    ".", "köln.example", "a\nb", "a" * 254, "[::1]", "1.2.3.4.5:6", "$(id)", "a;b", "a'b", "../x",
)  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_no_site_could_connect_to_is_refused(host):
    with pytest.raises(RequestError, match="host expects a name or an address"):
        check_host(host)


@pytest.mark.parametrize("host", ["localhost", "fl-1.example.org", "192.0.2.7", "::1", "x"])
def test_names_and_addresses_are_hosts(host):
    check_host(host)


def test_a_certificate_is_made_for_a_host_with_a_long_name(tmp_path):
    host = ".".join(["a-department-of-a-hospital"] * 4)
    write_certificates(tmp_path, [host])
    names = read_certificate(tmp_path / "server.pem").extensions.get_extension_for_class(
        SubjectAlternativeName
    )
    assert names.value.get_values_for_type(DNSName) == [host]


ALIKE = (
    ("Nord", "nord"), ("straße", "STRASSE"), ("ﬁ", "fi"),
    ("Nord", "N\u043erd"), ("COP", "\u0421\u041e\u0420"), ("Beta", "\u0392eta"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_nobody_can_tell_apart_are_refused(one, other):
    with pytest.raises(RequestError, match="too much alike to name two sites"):
        check_names((one, "x", other))


def test_names_in_other_scripts_are_names():
    check_names(("Клиника", "Κλινική", "診療所", "Nord", "Süd"))


@pytest.mark.parametrize("name", ["x" * 181, "\u00fc" * 31, "診" * 21])
def test_a_name_that_is_too_long_for_a_folder_is_refused(name):
    with pytest.raises(RequestError, match="and 180 is the limit"):
        check_names((name,))
    check_names((name[:-1],))


CHANGES = (
    ("site", "add", "new", "DIR"), ("site", "remove", "0", "DIR"), ("renew", "DIR"),
    ("site", "rekey", "0", "DIR", "--key", "x.pub"), ("register", "DIR"), ("submit", "DIR"),
)  # fmt: skip


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: " ".join(words[:2]))
def test_two_operators_do_not_change_a_deployment_at_once(words, deployment, capsys):
    before = times(deployment.path)
    with closing(DirectoryLock.take(deployment.path)):  # as a command of somebody else does
        code = call(["deploy", *(str(deployment.path) if w == "DIR" else w for w in words)])
    assert code == 2
    assert "another process is at work in" in capsys.readouterr().err
    assert times(deployment.path) == before


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


RECORDS = {
    "": "it needs experiment and sites and host",
    "x = ": "cannot be used: invalid value",
    'sites = ["a"]': "it needs experiment and host",
    'experiment = "e"\nhost = "h"\nsites = "a"': "sites expects a list of names; got 'a'",
    'experiment = "e"\nhost = "h"\nsites = []': "sites expects a list of names",
    'experiment = "e"\nhost = "h"\nsites = [1]': "sites expects a list of names",
    'experiment = "e"\nhost = 3\nsites = ["a"]': "host expects text; got 3",
    'experiment = "e"\nhost = "h h"\nsites = ["a"]': "host expects a name or an address",
    'experiment = "e"\nhost = "h"\nsites = ["a"]\nport = "8443"': "port expects a whole number",
    'experiment = "e"\nhost = "h"\nsites = ["a"]\nprot = 1': 'there is no key "prot"; did you mean',
}


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_that_was_edited_by_hand_is_refused_with_its_mistake(record, tmp_path):
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(StateError) as caught:
        Deployment.open(tmp_path)
    assert RECORDS[record].lower() in str(caught.value).lower()


def test_a_record_in_another_encoding_is_refused(tmp_path):
    (tmp_path / RECORD).write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match="cannot be used"):
        Deployment.open(tmp_path)


REQUESTS = {
    "trial --rounds 0": "--rounds expects a number from 1 to 1,000,000; got 0.",
    "trial --rounds -3": "--rounds expects a number from 1",
    "submit --min-clients 0": "--min-clients expects a number from 1 to 4, the number of sites",
    "submit --min-clients 9": "--min-clients expects a number from 1 to 4, the number of sites",
    "submit --deadline 0": "--deadline expects seconds, above 0",
    "submit --deadline nan": "--deadline expects seconds, above 0",
    "submit --deadline inf": "--deadline expects seconds, above 0",
}


@pytest.mark.parametrize("words", REQUESTS)
def test_a_run_that_would_fail_at_once_is_not_begun(words, deployment, capsys):
    command, *options = words.split()
    assert call(["deploy", command, str(deployment.path), *options]) == 2
    assert REQUESTS[words] in capsys.readouterr().err
    assert not deployment.trial.exists()


def test_without_a_server_the_operator_hears_where_it_should_be(deployment, capsys):
    assert call(["deploy", "register", str(deployment.path)]) == 2
    said = capsys.readouterr().err
    assert f"nothing answers at 127.0.0.1:{deployment.superlink_port}" in said
    assert "server.sh" in said


def test_a_command_to_copy_quotes_names_with_spaces(deployment, capsys):
    assert call(["deploy", "site", "add", "St. Mary east", str(deployment.path)]) == 0
    assert f"rekey 'St. Mary east' '{deployment.path}' --key FILE" in capsys.readouterr().out


PROJECTS = {
    "x = ": "invalid value",
    "[tool]": "[tool.flwr.app.config] with the entry config is missing",
    "[tool.flwr.app.config]\nconfig = 3": "[tool.flwr.app.config] with the entry config is missing",
    "tool = 3": "[tool.flwr.app.config] with the entry config is missing",
}


@pytest.mark.parametrize("text", PROJECTS)
def test_an_app_that_was_edited_into_nonsense_is_refused_by_its_file(text, tmp_path):
    broken = Deployment(tmp_path, "e", ("a",), "localhost")
    broken.app.mkdir()
    (broken.app / "pyproject.toml").write_text(text)
    with pytest.raises(StateError) as caught:
        app_settings(broken)
    assert PROJECTS[text] in str(caught.value)
    assert "pyproject.toml cannot be used" in str(caught.value)


def test_an_app_that_is_gone_is_named(tmp_path):
    with pytest.raises(StateError, match=r"pyproject.toml cannot be used: no such file"):
        app_settings(Deployment(tmp_path, "e", ("a",), "localhost"))


def test_an_experiment_that_is_no_text_is_refused_at_the_site(tmp_path):
    (tmp_path / "experiment.toml").write_bytes(b"\xff\xff")
    with pytest.raises(StateError, match=r"experiment.toml cannot be read"):
        check_site(tmp_path)
