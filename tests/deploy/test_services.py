"""What `motet deploy init` writes for nginx and systemd, tried on nginx and systemd themselves."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from federation import await_that, write_deployment

from motet.deploy.commands import LOOPBACK
from motet.deploy.layout import SUPERLINK_PORT
from motet.deploy.loopback import free_ports, status_of
from motet.deploy.services import PLACE, PROGRAMS

WITH_NGINX = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"
)
WITH_SYSTEMD = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze comes with systemd"
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return write_deployment(tmp_path_factory.mktemp("services") / "small").deployment


# -- nginx --------------------------------------------------------------------


def write_nginx(folder, deployment, port=8443, superlink_port=SUPERLINK_PORT):
    """Put the written server into an nginx of its own, with the places and ports of this test."""
    text = (deployment.path / "nginx.conf").read_text()
    for written, here in {
        str(PLACE): str(deployment.path),
        f"listen {deployment.port} ssl": f"listen {LOOPBACK}:{port} ssl",
        f"{LOOPBACK}:{SUPERLINK_PORT}": f"{LOOPBACK}:{superlink_port}",
    }.items():
        assert written in text
        text = text.replace(written, here)
    (folder / "server.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors.log;\n"
        f"events {{ }}\nhttp {{ access_log off; {places} include {folder}/server.conf; }}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


@WITH_NGINX
def test_nginx_accepts_what_is_written_for_it(deployment, tmp_path):
    command = write_nginx(tmp_path, deployment)
    done = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


class Behind(BaseHTTPRequestHandler):
    """Stands where the SuperLink stands, and answers to everything that it is there."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        self.do_POST()

    def log_message(self, *about):
        pass


@contextmanager
def superlink(deployment):
    """Something that answers over TLS, with the certificate of the deployment's server."""
    with HTTPServer((LOOPBACK, 0), Behind) as server:
        identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificates = deployment.certificates
        identity.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        server.socket = identity.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def door(deployment, tmp_path_factory):
    """An nginx in front of it; calls return the status."""
    (port,) = free_ports(1)
    trust = ssl.create_default_context(cafile=deployment.authority)
    with superlink(deployment) as behind:
        command = write_nginx(tmp_path_factory.mktemp("nginx"), deployment, port, behind)
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        await_that(lambda: status_of(f"https://{LOOPBACK}:{port}/", trust) == 404)
        yield lambda method, path: called(f"https://{LOOPBACK}:{port}{path}", method, trust)
        running.terminate()
        running.wait()


def called(url, method, trust):
    request = urllib.request.Request(url, data=b"" if method == "POST" else None, method=method)
    try:
        with urllib.request.urlopen(request, context=trust, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


@WITH_NGINX
def test_nginx_lets_sites_through(door):
    assert door("POST", "/v1/fleet/pull-messages") == 200


@WITH_NGINX
@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-runs",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/x/../../control/list-runs",
        "//v1/control/list-runs",
        "/health",
    ],
)
def test_nginx_lets_nothing_else_through(door, path):
    assert door("POST", path) == 404
    assert door("GET", path) == 404


@WITH_NGINX
def test_nginx_lets_sites_do_nothing_but_post(door):
    assert door("GET", "/v1/fleet/pull-messages") == 403


# -- systemd ------------------------------------------------------------------


@WITH_SYSTEMD
def test_systemd_accepts_what_is_written_for_it(deployment, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("motet", "flower-superlink", "flower-superexec", "flower-supernode"):
        (programs / name).symlink_to(shutil.which("true"))  # it wants to see that they are there
    units = []
    for written in sorted((deployment.path / "systemd").iterdir()):
        text = written.read_text()
        assert str(PROGRAMS) in text
        (tmp_path / written.name).write_text(text.replace(str(PROGRAMS), str(programs)))
        units.append(str(tmp_path / written.name))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    about_ours = [line for line in done.stderr.splitlines() if "motet" in line]
    assert (done.returncode, about_ours) == (0, [])
