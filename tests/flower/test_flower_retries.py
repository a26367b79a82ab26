"""A round that is run again counts every good reply once, whichever attempt it answers."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

import numpy as np
import pytest
from staging import FlowerTransport, LoopbackGrid, Stage

from motet import Ditto, FedFomo, Scaffold
from motet.deploy._runtime import flower_apps
from motet.deploy._runtime.parcels import Parcel
from motet.testing._comparing import require_same

SITE = "few"


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, "motet")
    return caplog


def asked(stage):
    """Count the requests to train, by client and round."""
    counts, app = {}, stage.grid.app

    def counting(message, context):
        if message.metadata.message_type == "train":
            key = (context.node_config["client"], message.metadata.group_id)
            counts[key] = counts.get(key, 0) + 1
        return app(message, context)

    stage.grid.app = counting
    return counts


def require_uninterrupted(stage, served):
    oracle = stage.oracle()
    require_same(oracle.server, served.server, "the server")
    for client in oracle.clients:
        require_same(oracle.clients[client], stage.kept(client), f"what {client} keeps")
    lines = [json.loads(x) for x in (stage.folder / "out/rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, stage.run.rounds + 1))
    assert all(line["replied"] == sorted(stage.world.data.clients) for line in lines)


def test_a_reply_to_the_first_attempt_that_arrives_in_the_second_counts(tmp_path, heard):
    held = []

    def fault(who, reply):
        if (who, reply.metadata.group_id, reply.metadata.message_type) != (SITE, "1", "train"):
            return [reply]
        held.append(reply)
        return [held[0]] if len(held) == 2 else []  # the second never arrives

    stage = Stage.set(Ditto(), tmp_path, fault=fault, min_clients=6, deadline_s=0.5)
    served = stage.play()
    assert "round 2: few answered an earlier attempt" in heard.text
    assert "attempt 2 of 3" not in heard.text
    require_uninterrupted(stage, served)


def test_both_replies_are_one(tmp_path, heard):
    held = []

    def fault(who, reply):
        if (who, reply.metadata.group_id, reply.metadata.message_type) != (SITE, "1", "train"):
            return [reply]
        held.append(reply)
        return held if len(held) == 2 else []

    stage = Stage.set(Ditto(), tmp_path, fault=fault, min_clients=6, deadline_s=0.5)
    require_uninterrupted(stage, stage.play())
    assert "round 2: few replied twice; once is enough" in heard.text


def test_sites_whose_replies_are_good_are_not_asked_again(tmp_path):
    lost = []

    def fault(who, reply):
        is_first = (who, reply.metadata.group_id) == (SITE, "1") and not lost
        if is_first and reply.metadata.message_type == "train":
            lost.append(who)
            return []
        return [reply]

    stage = Stage.set(Scaffold(), tmp_path, fault=fault, min_clients=6, deadline_s=0.5)
    counts = asked(stage)
    require_uninterrupted(stage, stage.play())
    assert {key: n for key, n in counts.items() if n > 1} == {(SITE, "1"): 2}


def test_a_site_that_refused_is_asked_again(tmp_path):
    refused = []

    def fault(who, reply):
        is_first = (who, reply.metadata.group_id) == (SITE, "1") and not refused
        if is_first and reply.metadata.message_type == "train":
            refused.append(who)
            reply.content["header"]["refused"] = "its disk is full"
        return [reply]

    stage = Stage.set(Scaffold(), tmp_path, fault=fault, min_clients=6, deadline_s=5.0)
    require_uninterrupted(stage, stage.play())


@pytest.mark.parametrize(("second", "counts"), [("same", True), ("other", False), ("", False)])
def test_a_reply_counts_for_another_attempt_only_if_the_request_is_the_same(
    second, counts, tmp_path, heard
):
    held = []

    def fault(who, reply):
        held.append(reply)
        return [] if len(held) == 1 else [held[0]]

    grid = Stage.set(Ditto(), tmp_path, fault=fault).grid
    transport = FlowerTransport(grid, poll_s=0.01)
    for request in ("same" if second else "", second):
        parcels = {SITE: Parcel({"client": SITE}, request=request)}
        came = transport.exchange("train", parcels, number=0, deadline_s=0.3)
    assert (SITE in came.replies) is counts
    assert (SITE in came.lost) is not counts


def test_a_reply_is_waited_for_however_long_it_took_to_send_to_the_other_sites(
    tmp_path, monkeypatch
):
    grid, now = Stage.set(Ditto(), tmp_path).grid, [0.0]
    push = grid.push_messages

    def slow(messages):
        now[0] += 100.0
        return push(messages)

    monkeypatch.setattr(grid, "push_messages", slow)
    monkeypatch.setattr(flower_apps.time, "monotonic", lambda: now[0])
    parcels = {site: Parcel({"client": site}, request=site) for site in grid.nodes}
    came = FlowerTransport(grid).exchange("train", parcels, number=0, deadline_s=1.0)
    assert came.replies.keys() == parcels.keys()
    assert not came.lost


class PowerCutError(Exception):
    """Ends a server at once."""


@dataclass
class Unreliable(LoopbackGrid):
    """A grid that loses, delays and doubles replies, and whose server is killed, by a schedule."""

    seed: int = 0
    late: list = field(default_factory=list)

    def __post_init__(self):
        super().__post_init__()
        self.rng = np.random.default_rng(self.seed)

    def push_messages(self, messages):
        if self.rng.random() < 0.03:
            raise PowerCutError
        names = super().push_messages(messages)
        arrived, self._replies = self._replies, []
        for reply in arrived:
            lot = self.rng.random()
            if lot < 0.12:
                continue  # lost
            if lot < 0.3:
                self.late.append(reply)
            else:
                self._replies += [reply, reply] if lot < 0.4 else [reply]
        return names

    def pull_messages(self, message_ids):
        if self.late and self.rng.random() < 0.3:
            self._replies.append(self.late.pop(int(self.rng.integers(len(self.late)))))
        if self.rng.random() < 0.02:
            raise PowerCutError
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("seed", range(3))
def test_losses_delays_and_kills_by_schedule_end_as_an_uninterrupted_run(seed, tmp_path):
    method = (Ditto(), Scaffold(), FedFomo())[seed % 3]
    stage = Stage.set(method, tmp_path, rounds=2, min_clients=6, deadline_s=0.1, attempts=50)
    stage.grid = Unreliable(stage.grid.app, stage.grid.nodes, seed=seed)
    for _ in range(100):
        try:
            served = stage.play(FlowerTransport(stage.grid, poll_s=0.01))
            break
        except PowerCutError:
            continue
    require_uninterrupted(stage, served)
