"""Whatever a server sends, a site keeps to what it agreed to, and its state is not lost.

Mutated requests of every method are in `test_message_laws.py`.
"""

from __future__ import annotations

import logging
import os
import stat
import tracemalloc

import numpy as np
import pytest
from message_mutations import copied, with_bytes
from staging import FlowerTransport, LoopbackGrid, Message, Stage, client_app

from motet import Ditto, FedFomo
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.pinning import check_offer, hash_of_text, pinned
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.server_loop import run_server
from motet.errors import CohortError, StateError, WireError

VICTIM = "few"


class Site:
    """One site of an experiment, and the requests that it was sent in round 1."""

    def __init__(self, method, folder):
        self.requests, self.context = {}, None
        stage = Stage.set(method, folder, rounds=1)
        self.app = stage.grid.app

        def noting(message, context):
            if context.node_config["client"] == VICTIM:
                self.requests.setdefault(message.metadata.message_type, message.content)
                self.context = context
            return self.app(message, context)

        stage.grid.app = noting
        stage.play()
        (self.state,) = (folder / VICTIM).rglob("*.safetensors")
        self.count = 0

    def ask(self, kind, content):
        """Send a request; return the header of the reply."""
        self.count += 1
        message = Message(content, 2**40, kind)
        message.metadata.__dict__["_message_id"] = f"message-{self.count}"
        return dict(self.app(message, self.context).content["header"])

    def asked(self, kind="train", **values):
        content = copied(self.requests[kind])
        content["header"].update(values)
        return self.ask(kind, content)


@pytest.fixture(scope="module", params=[Ditto(), FedFomo()], ids=lambda method: method.name)
def site(request, tmp_path_factory):
    return Site(request.param, tmp_path_factory.mktemp("site"))


OUTSIDE = {
    "a round far ahead": ({"round": 2**62}, "the agreed number of rounds is 1; got"),
    "a round before the first": ({"round": -1}, "the agreed number of rounds is 1; got"),
    "a million clients": ({"clients": 10**6}, "federations of 1 to 1000 clients"),
    "more clients than there are numbers": ({"clients": 2**63 - 1}, "federations of 1 to 1000"),
    "no client at all": ({"clients": 0}, "federations of 1 to 1000"),
    "another experiment": ({"agreed": "0" * 64}, "0000; start both from the same"),
    "another client": ({"client": "many"}, 'got a message for "many"'),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_request_outside_of_the_agreement_is_refused_at_once(site, case):
    values, reason = OUTSIDE[case]
    before = site.state.read_bytes()
    tracemalloc.start()
    header = site.asked(**values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reason in header["refused"]
    assert site.state.read_bytes() == before
    assert peak < 5_000_000
    assert "refused" not in site.asked(), "the site can work in the next round"


@pytest.mark.parametrize("values", [{"split": "train"}, {"split": "../x"}, {"point": "\x1b[1m"}])
def test_a_site_scores_validation_and_test_data_at_known_points_and_nothing_else(site, values):
    refused = site.asked("query.score", **values)["refused"]
    assert refused.isprintable()
    assert "\x1b" not in refused


def test_arrays_that_cannot_be_read_are_refused_by_the_site(site):
    content = copied(site.requests["train"])
    name = sorted(content["arrays"])[0]
    array = content["arrays"][name]
    content["arrays"][name] = with_bytes(array, array.data.replace(b"(", b"(True,", 1))
    assert "is not an array of numbers" in site.ask("train", content)["refused"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_private_state_is_its_owner_s_alone_from_the_moment_it_is_created(tmp_path):
    old = os.umask(0)  # the most generous account there can be
    try:
        Stage.set(Ditto(), tmp_path, rounds=1).play()
    finally:
        os.umask(old)
    states = list(tmp_path.rglob("*.safetensors"))
    assert len(states) == 6
    for path in states:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for folder in (path.parent, path.parent.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# -- the agreed experiment ----------------------------------------------------

CONFIG = """
[run]
rounds = 1
seed = 3

[method]
name = "fedper"
personal = ["head"]

[model]
name = "mlp"
hidden = [4]

[data]
shape = [2]
classes = 2
"""
OTHERS = {
    "another method": CONFIG.replace('"fedper"\npersonal = ["head"]', '"fedavg"'),
    "another model": CONFIG.replace("[4]", "[5]"),
    "a function of the server's choice": CONFIG.replace('"mlp"\nhidden = [4]', '"os:system"'),
    "more rounds": CONFIG.replace("rounds = 1", "rounds = 2"),
    "another seed": CONFIG.replace("seed = 3", "seed = 4"),
    "data of the server's choice": CONFIG.replace(
        "shape = [2]\nclasses = 2", 'table = "/etc/passwd"\nclient = "a"\ntarget = "b"'
    ),
    "no config at all": "",
    "no TOML": "x = ",
    "a date": CONFIG.replace("seed = 3", "seed = 2020-01-01"),
    "deeper than a parser can read": f"x = {'[' * 5000}",
    "two megabytes": f"# {'x' * 2_000_000}",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    np.savez(folder / "train.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return folder


def grid_of(data, folder, offered, *, experiment="trial", **settings):
    nodes = {
        name: {"client": name, "data": str(data), "state-dir": str(folder / name), **settings}
        for name in ("north", "south")
    }
    return LoopbackGrid(client_app(), nodes, {"experiment": experiment, "config": offered})


def play(grid, folder, text, experiment="trial"):
    """Run the server of an experiment with these sites."""
    limits = ServerLimits(out=str(folder / "out"), deadline_s=5.0, attempts=1)
    agreement = Agreement.from_text(experiment, text)
    return run_server(agreement, limits, FlowerTransport(grid, poll_s=0.01))


def test_a_site_that_agreed_works_and_keeps_its_head(data, tmp_path):
    grid = grid_of(data, tmp_path, CONFIG, agreed=hash_of_text("trial", CONFIG))
    assert play(grid, tmp_path, CONFIG).rounds_done == 1
    (kept,) = (tmp_path / "north").rglob("*.safetensors")
    assert b"head.weight" in kept.read_bytes()
    assert b"head.weight" not in b"".join(grid.traffic)


def test_a_site_refuses_another_method_and_names_both_hashes(data, tmp_path, caplog):
    pin, other = hash_of_text("trial", CONFIG), OTHERS["another method"]
    grid = grid_of(data, tmp_path, other, agreed=pin)
    with caplog.at_level(logging.INFO, "motet"), pytest.raises(CohortError):
        play(grid, tmp_path, other)
    assert (
        f"agreed to the experiment {pin}, and the server runs {hash_of_text('trial', other)}"
        in (caplog.text)
    )
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("case", OTHERS)
def test_an_experiment_that_was_not_agreed_to_is_refused_before_it_is_read(case):
    node = {"client": "north", "data": "x", "agreed": hash_of_text("trial", CONFIG)}
    with pytest.raises(WireError):
        check_offer({"experiment": "trial", "config": OTHERS[case]}, node, {})


def test_the_same_experiment_under_another_name_is_another_one():
    node = {"client": "north", "agreed": hash_of_text("trial", CONFIG)}
    with pytest.raises(WireError, match="agreed to the experiment"):
        check_offer({"experiment": "trial-2", "config": CONFIG}, node, {})


def test_order_comments_and_spaces_of_a_config_do_not_matter():
    parts = CONFIG.strip().split("\n\n")
    other = "\n# a comment\n\n".join(reversed(parts)).replace("seed = 3", "seed   =   3")
    assert other != CONFIG
    assert hash_of_text("trial", other) == hash_of_text("trial", CONFIG)


@pytest.mark.parametrize("node", [{"client": "north"}, {"data": "x"}])
def test_a_site_that_has_agreed_to_nothing_refuses_and_says_what_to_set(node):
    with pytest.raises(StateError, match=r'set agreed="\.\.\." in the site'):
        check_offer({"experiment": "trial", "config": CONFIG}, node, {})


def test_the_pin_may_be_an_environment_variable_several_hashes_or_any():
    offer, pin = {"experiment": "trial", "config": CONFIG}, hash_of_text("trial", CONFIG)
    node = {"client": "north"}
    check_offer(offer, node, {"MOTET_AGREED": pin})
    check_offer(offer, {**node, "agreed": f"{'0' * 64}, {pin}"}, {})
    check_offer(offer, {**node, "agreed": "any"}, {})
    check_offer(offer, {}, {})  # a node of a simulation
    with pytest.raises(WireError):
        check_offer(offer, {}, {"MOTET_AGREED": "0" * 64})


def test_two_pins_that_differ_are_refused():
    with pytest.raises(StateError, match="make them equal, or remove one"):
        pinned({"agreed": "a"}, {"MOTET_AGREED": "b"})


def test_a_site_bounds_the_number_of_clients_by_its_own_setting(data, tmp_path, caplog):
    pin = hash_of_text("trial", CONFIG)
    grid = grid_of(data, tmp_path, CONFIG, agreed=pin, **{"max-clients": 1})
    with caplog.at_level(logging.INFO, "motet"), pytest.raises(CohortError):
        play(grid, tmp_path, CONFIG)
    assert "accepts federations of 1 to 1 clients; got 2" in caplog.text
