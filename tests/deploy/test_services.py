"""The nginx and systemd files of `motet deploy init`, tested with nginx and systemd."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from federation import await_that, superlink, write_deployment

from motet.deploy._layout import LOOPBACK, SUPERLINK_PORT
from motet.deploy._limits import BODY_S, HEADER_S, PER_ADDRESS
from motet.deploy._loopback import free_ports, status_of
from motet.deploy._services import PROGRAMS, server_place

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
        str(server_place(deployment)): str(deployment.path),
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


@pytest.fixture(scope="module")
def door(deployment, tmp_path_factory):
    """An nginx in front of it; calls return the status."""
    (port,) = free_ports(1)
    trust = ssl.create_default_context(cafile=deployment.authority)
    with superlink(deployment.certificates) as behind:
        command = write_nginx(tmp_path_factory.mktemp("nginx"), deployment, port, behind)
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        await_that(lambda: status_of(f"https://{LOOPBACK}:{port}/", trust) == 404)
        yield Door(port, trust)
        running.terminate()
        running.wait()


class Door:
    """Calls an nginx that listens on loopback."""

    def __init__(self, port, trust):
        self.port, self.trust = port, trust

    def __call__(self, method, path):
        return called(f"https://{LOOPBACK}:{self.port}{path}", method, self.trust)

    def begin(self, stack, origin=LOOPBACK):
        """Send the header of a request, and return its connection."""
        plainly = socket.create_connection((LOOPBACK, self.port), 30, source_address=(origin, 0))
        connection = stack.enter_context(self.trust.wrap_socket(plainly, server_hostname=LOOPBACK))
        connection.sendall(
            b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"
        )
        return connection


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


@WITH_NGINX
def test_nginx_holds_few_requests_of_one_address_and_goes_on_with_others(door):
    with ExitStack() as stack:
        for _ in range(PER_ADDRESS):
            door.begin(stack)
        await_that(lambda: door("POST", "/v1/fleet/pull-messages") == 429)
        site = door.begin(stack, "127.0.0.2")
        site.sendall(b"hi")
        assert site.recv(1000).split()[1] == b"200"


@WITH_NGINX
def test_nginx_has_the_time_limits_of_the_path_filter(deployment):
    text = (deployment.path / "nginx.conf").read_text()
    assert f"client_header_timeout {HEADER_S:.0f}s;" in text
    assert f"client_body_timeout   {BODY_S:.0f}s;" in text


# -- nftables -----------------------------------------------------------------

CONNECT = """
import os, socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for account in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        os.setuid(account)
        with socket.socket() as one:
            os._exit(one.connect_ex(listening.getsockname()) != 0)
    print(account, os.waitpid(child, 0)[1] == 0)
"""


@pytest.mark.skipif(
    shutil.which("nft") is None or shutil.which("unshare") is None or os.getuid() != 0,
    reason="needs nftables, and root in a network namespace of its own",
)
@pytest.mark.parametrize("kind", ["superlink_port", "site_port"])
def test_the_firewall_keeps_other_accounts_from_the_ports_on_loopback(deployment, tmp_path, kind):
    text = (deployment.path / "firewall.nft").read_text()
    (tmp_path / "firewall.nft").write_text(text.replace("root, motet", "root, 4321"))
    (tmp_path / "connect.py").write_text(CONNECT)
    port = getattr(deployment, kind)
    script = (
        f"ip link set lo up && nft -f {tmp_path}/firewall.nft && nft -f {tmp_path}/firewall.nft "
        f"&& {sys.executable} {tmp_path}/connect.py {port} 0 4321 1234"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("network namespaces are not permitted here")
    assert done.stdout.split("\n")[:3] == ["0 True", "4321 True", "1234 False"], done.stderr


# -- systemd ------------------------------------------------------------------


@WITH_SYSTEMD
def test_systemd_accepts_what_is_written_for_it(deployment, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("motet", "flower-superlink", "flower-superexec", "flower-supernode"):
        (programs / name).symlink_to(shutil.which("true"))  # it wants to see that they are there
    units = []
    for written in sorted(deployment.path.rglob("*.service")):
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
    assert {path.name for path in deployment.path.rglob("*.service")} == {
        f"motet-small-{name}.service" for name in ("superlink", "superexec", "filter", "site")
    }
    about_ours = [line for line in done.stderr.splitlines() if "motet" in line]
    assert (done.returncode, about_ours) == (0, [])
