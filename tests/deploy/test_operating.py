"""A deployment in the hands of its operator and a site: the written scripts, over TLS with keys.

The story is played once; each test looks at one part of what was recorded.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import sys
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tomli_w
from federation import answers, await_run, await_that, small_experiment, write_deployment

from motet._cli.main import call
from motet.deploy._control import Control
from motet.deploy._environment import environment
from motet.deploy._keys import fingerprint
from motet.deploy._layout import LOOPBACK, Deployment
from motet.deploy._loopback import CONNECTED, free_ports
from motet.deploy._preflight import read_certificate
from motet.deploy._processes import Processes
from motet.deploy._server import control_of
from motet.deploy._site_settings import SiteSettings
from motet.deploy._submission import app_settings, change_settings

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(os.name != "posix", reason="scripts are POSIX"),
]


class Office:
    """The operator's shell, and the programs that were started by the written scripts."""

    def __init__(self, deployment, folder, processes):
        self.deployment, self.folder, self.processes = deployment, folder, processes

    def motet(self, *words):
        return call(["deploy", *map(str, words)])

    def start(self, name, script, *words):
        """Start a script under a permissive umask, as a careless operator would."""
        command = ["sh", "-c", 'umask 000; exec "$@"', "sh", str(script), "--json", *words]
        self.processes.start(name, command, environment(self.folder / "home", OMP_NUM_THREADS="1"))

    def log(self, name):
        lines = self.processes.log(name).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def said(self, name):
        return " ".join(line["message"] for line in self.log(name))

    @property
    def control(self) -> Control:
        return control_of(self.deployment)

    def await_online(self, name, site):
        """Wait until a site is connected; its log comes first, since asking starts a program."""
        await_that(lambda: CONNECTED in self.said(name))
        await_that(lambda: self.state_of(site) == "online", pause_s=2.0)

    def state_of(self, site):
        return {node.name: node.status for node in self.control.nodes()}.get(site)

    def status(self, capture):
        capture()
        code = self.motet("status", self.deployment.path, "--json")
        return SimpleNamespace(code=code, **json.loads(capture()))

    def ended(self, name):
        return name in self.processes.ended()


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    folder = tmp_path_factory.mktemp("office")
    port, superlink_port, *site_ports = free_ports(4)
    ports = {"port": port, "superlink_port": superlink_port}
    experiment = small_experiment(clients=2, rounds=3)
    written = write_deployment(folder / "net", experiment, host=LOOPBACK, **ports).deployment
    deployment = replace(written, listen=LOOPBACK)
    deployment.save()
    change_settings(deployment, attempts=1)
    for site, site_port in zip(deployment.sites, site_ports, strict=True):
        given = shutil.copytree(deployment.site(site), folder / "hospitals" / site)
        replace(SiteSettings.read(given), port=site_port).write(given)
    with Processes(folder / "logs") as processes:
        yield Office(deployment, folder, processes)


@pytest.fixture(scope="module")
def story(office):
    """Everything that happens, in order; what is asserted later is recorded."""
    told, net = SimpleNamespace(), office.deployment
    printed = _Printed()
    hospital = office.folder / "hospitals" / "0"
    with printed:
        # The server, the registration and a site: the five commands of the README.
        office.start("server", net.path / "server.sh")
        await_that(lambda: answers(net))
        told.registered = office.motet("register", net.path)
        office.start("site", hospital / "start.sh")
        office.await_online("site", "0")
        told.waiting = office.status(printed.take)
        # A server that changed the method.
        agreed = app_settings(net)["config"]
        change_settings(
            net, config=tomli_w.dumps({**tomllib.loads(agreed), "method": {"name": "fedavg"}})
        )
        told.submitted = office.motet("submit", net.path)
        await_run(office.processes, "server", office.control)
        (failed,) = office.control.runs()
        told.failed, told.log = failed.status, office.control.log(failed.number)
        told.kept = [*(hospital / "state").rglob("*.safetensors")]
        told.after_failure = office.status(printed.take)
        # The agreed method, twice at once, and stopped.
        change_settings(net, config=agreed)
        shutil.rmtree(net.out)
        office.motet("submit", net.path)
        printed.take()
        told.second = office.motet("submit", net.path)
        told.refusal = printed.take_errors()
        told.alive = [run.number for run in office.control.runs() if not run.is_over]
        await_that(lambda: [*(hospital / "state").rglob("*.safetensors")])
        told.modes = _modes(hospital, net.path)
        told.stopped = office.motet("stop", net.path)
        # A new key, and what becomes of the old one.
        old = hospital / "old.key"
        shutil.copy(hospital / "site.key", old)
        office.motet("key", hospital, "--overwrite")
        told.key = fingerprint(hospital / "site.key.pub")
        told.rekeyed = office.motet(
            "site", "rekey", "0", net.path, "--key", f"{hospital}/site.key.pub"
        )
        await_that(lambda: office.ended("site"))
        settings = SiteSettings.read(hospital)
        replace(settings, key="old.key").write(hospital)
        office.start("thief", hospital / "start.sh")
        await_that(lambda: "does not let this site in" in office.said("thief"))
        told.thief = office.state_of("0")
        office.processes.kill("thief")
        settings.write(hospital)
        # The site with its new key loses its power, and comes back while the server takes it for
        # connected.
        office.start("site with power", hospital / "start.sh")
        office.await_online("site with power", "0")
        office.processes.kill("site with power")
        # Another site is removed, and the certificate renewed.
        told.removed = office.motet("site", "remove", "1", net.path)
        before = read_certificate(net.certificates / "server.pem")
        told.renewed = office.motet("renew", net.path)
        told.new_certificate = read_certificate(net.certificates / "server.pem") != before
        office.processes.stop("server")
        office.start("server again", net.path / "server.sh")
        await_that(lambda: answers(net))
        office.start("site again", hospital / "start.sh")
        # Of its state the server says "online" before: until it notices that the site was killed.
        await_that(lambda: "Activated node_id" in office.said("server again"))
        office.deployment = Deployment.open(net.path)
        told.sites = office.deployment.sites
        told.last = office.status(printed.take)
    return told


class _Printed:
    """What commands in this process write, for a fixture that outlives a test."""

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        self.out, self.err = io.StringIO(), io.StringIO()
        self._patch.setattr(sys, "stdout", self.out)
        self._patch.setattr(sys, "stderr", self.err)
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def take(self):
        return _emptied(self.out)

    def take_errors(self):
        return _emptied(self.err)


def _emptied(stream):
    text = stream.getvalue()
    stream.seek(0)
    stream.truncate()
    return text


def _modes(*folders):
    """List what another account could read, or enter, of private states and databases."""
    paths = [folders[1] / "superlink.db", folders[0] / "state", *(folders[0] / "state").rglob("*")]
    return {str(path): stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths}


def test_the_written_scripts_bring_a_federation_up_on_the_ports_of_its_config(story):
    assert (story.registered, story.submitted) == (0, 0)
    assert story.waiting.sites["0"]["state"] == "online"
    assert story.waiting.sites["0"]["last_contact"] is not None
    assert story.waiting.sites["0"]["key_days"] == 0
    assert story.waiting.certificates["server"]["days"] >= 363


def test_the_status_of_a_federation_with_a_missing_site_is_an_error(story):
    assert story.waiting.code == 1
    assert story.waiting.troubles == ["1 is registered, but has never connected."]


def test_a_site_refuses_a_server_that_changed_the_method_and_names_both_hashes(story, office):
    site = office.folder / "hospitals" / "0"
    pinned = (site / "experiment.sha256").read_text().split()[0]
    assert story.failed == "finished:failed"
    assert f"this site has agreed to the experiment {pinned}, and the server runs" in story.log
    assert "refused: this site has agreed" in office.said("site")
    assert story.kept == []
    assert any("failed" in trouble for trouble in story.after_failure.troubles)


def test_a_second_submit_is_refused_while_a_run_is_alive(story):
    assert story.second == 2
    assert len(story.alive) == 1
    assert f"run {story.alive[0]} has not ended" in story.refusal
    assert "motet deploy stop" in story.refusal
    assert story.stopped == 0


def test_databases_and_states_are_private_though_the_umask_was_permissive(story):
    assert len(story.modes) >= 4
    assert set(story.modes.values()) == {0}


def test_the_old_key_of_a_rekeyed_site_is_refused_and_the_new_one_works(story):
    assert story.rekeyed == 0
    assert story.thief == "registered"  # and not online


def test_a_site_that_was_killed_is_started_once_and_comes_back_by_itself(story, office):
    assert story.last.sites["0"]["state"] == "online"
    assert not office.ended("site again")


def test_a_removed_site_is_gone_and_a_renewed_certificate_is_served(story, office):
    assert (story.removed, story.renewed, story.new_certificate) == (0, 0, True)
    assert story.sites == ("0",)
    assert set(story.last.sites) == {"0"}
    assert [*(office.deployment.path / "removed").iterdir()]


def test_every_line_of_the_programs_has_a_level(office, story):
    for name in ("server", "site"):
        lines = office.log(name)
        assert lines
        assert {line["level"] for line in lines} <= {"debug", "info", "warning", "error"}
