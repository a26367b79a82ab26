"""Two laws over mutated messages, for every method that deploys, and for robust reductions.

Whatever a site sends, only that site can be lost. Whatever a server sends, a site keeps to what it
agreed to. `MOTET_MESSAGES=20000` sends as many replies and as many requests.

Rounds are played whole if the reply is used, and now and then if it is rejected: a rejected reply
is never looked at again, so most of them are only read.
"""

from __future__ import annotations

import logging
import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from message_mutations import HARMLESS, MESSAGES, copied, mutated, pick
from staging import Message, Stage, client_app
from test_flower_traffic import METHODS, world_for

from motet import FedAvg, Krum, Median, TrimmedMean
from motet._core import tree
from motet._engine.evaluating import evaluation_of
from motet._engine.settling import settle
from motet.deploy._runtime import flower_apps
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.parcels import Parcel
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.server_loop import _fresh
from motet.deploy._runtime.site import SCORE, TRAIN
from motet.deploy._runtime.transport import Delivery
from motet.errors import WireError
from motet.methods import _catalog as catalog
from motet.testing._comparing import require_same

VICTIM = "few"
LONGEST = 300
ROBUST = (Krum(attackers=1), Median(), TrimmedMean(trim=0.2))
CASES = {
    **{name: catalog.method_class(name)() for name in METHODS},
    **{f"fedavg-{type(reduce).__name__}": FedAvg(reduce=reduce) for reduce in ROBUST},
}
EACH = -(-MESSAGES // len(CASES))  # messages per method
PLAYED = 8  # one in so many rejected replies is taken through a whole round


@dataclass(frozen=True, kw_only=True)
class Remembering(Agreement):
    """An experiment whose sites read their data once."""

    known: dict = field(default_factory=dict)

    def setting_at(self, client, place, *, check=True):
        if client not in self.known:
            self.known[client] = super().setting_at(client, place, check=check)
        return self.known[client]


@dataclass
class Replies:
    """A transport that notes requests, or delivers the same replies again and one of the victim."""

    honest: dict[str, dict[str, Parcel]] = field(default_factory=dict)  # by action and client
    hostile: Parcel | None = None
    asked: dict[str, dict[str, Parcel]] = field(default_factory=dict)

    def present(self):
        return ()

    def exchange(self, action, parcels, *, number, deadline_s):
        self.asked[action] = dict(parcels)
        replies = {c: reply for c, reply in self.honest.get(action, {}).items() if c in parcels}
        if VICTIM in replies and self.hostile is not None:
            replies[VICTIM] = self.hostile
        return Delivery(replies, dict.fromkeys(parcels.keys() - replies.keys(), "not asked"))


class Parties:
    """A server before its first round, its sites, and all of their messages."""

    def __init__(self, name, folder):
        stage = Stage.set(CASES[name], folder, world_for(name), rounds=1)
        self.everybody = tuple(sorted(stage.world.data.clients))
        self.folder, self.transport, self.count = folder, Replies(), 0
        agreement = Remembering(**vars(stage.agreement))
        self.app = client_app(agreement=agreement)
        federation = agreement.empty_federation(self.everybody)
        limits = ServerLimits(out=str(folder / "unused"))
        self.run = _fresh(agreement, limits, self.transport, federation)
        self.info = self.run.setting.info(0, self.everybody)
        self.down = self.run.setting.method.broadcast(self.run.server, self.info)
        with suppress(Exception):
            self.round(None)
        with suppress(Exception):
            self.scores(None)
        self.requests, self.replies = {}, {TRAIN: {}, SCORE: {}}
        for action in (TRAIN, SCORE):
            for client, parcel in self.transport.asked[action].items():
                content = flower_apps._content(parcel)
                if client == VICTIM:
                    self.requests[action] = content
                self.replies[action][client] = self.ask(action, content, client)
        self.transport.honest = {
            action: {client: read(content) for client, content in found.items()}
            for action, found in self.replies.items()
        }

    def ask(self, action, content, client=VICTIM):
        """Send a request to a site; return the content of its reply."""
        self.count += 1
        message = Message(content, 2**40, flower_apps.MESSAGE_TYPES[action])
        message.metadata.__dict__["_message_id"] = f"message-{self.count}"
        settings = {"client": client, "state-dir": str(self.folder / client)}
        context = SimpleNamespace(run_config={}, node_config=settings)
        return self.app(message, context).content

    @property
    def state(self):
        found = list((self.folder / VICTIM).rglob("*.safetensors"))
        return found[0].read_bytes() if found else b""

    def refusal_of(self, hostile):
        """Say why the server rejects this reply of the victim; None if it is used."""
        try:
            self.run.backend._read(VICTIM, hostile, self.info)
        except WireError as reason:
            return str(reason)
        return None

    def round(self, hostile):
        """Play the round with this reply of the victim; return the new server and the outcome."""
        self.transport.hostile, run = hostile, self.run
        outcome = run.backend.train(self.down, self.info)
        return settle(run.setting, run.server, outcome, self.down, self.info)

    def scores(self, hostile):
        self.transport.hostile, run = hostile, self.run
        info = run.setting.info(1, self.everybody, serving=True)
        down = run.setting.method.broadcast(run.server, info)
        rows = run.backend.scores(down, info, "test", "after_adapt")
        return evaluation_of(run, "test", "after_adapt", rows)


def read(content):
    return flower_apps._reply(SimpleNamespace(content=content))


@pytest.fixture(scope="module", params=CASES)
def parties(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flower_apps, "_show_log", lambda: None)
        patch.setattr(os, "fsync", lambda _: None)  # nobody pulls the plug here
        patch.setattr(logging.getLogger("motet"), "disabled", True)
        patch.setattr(logging.getLogger("motet.deploy._runtime"), "disabled", True)
        yield Parties(request.param, tmp_path_factory.mktemp("parties"))


def test_a_mutated_reply_is_used_or_costs_its_site_the_round(parties):
    without, honest = (
        parties.round(reply)[0].server for reply in (Parcel({"refused": "no"}), None)
    )
    rng, others = np.random.default_rng(7), set(parties.everybody) - {VICTIM}
    for number in range(EACH):
        content, told = another_reply(parties, TRAIN, rng)
        where, reply = f"reply {number}: {told}", read(content)
        refusal = parties.refusal_of(reply)
        if refusal is not None:
            require_sentence(refusal, where)
            if number % PLAYED:
                continue
        adopted, outcome = parties.round(reply)
        assert others <= set(outcome.replied), where
        assert not adopted.failed, where
        assert tree.is_finite(adopted.server), where
        assert 0 <= outcome.gradients < math.inf, where
        if refusal is not None:
            assert outcome.rejected == {VICTIM: refusal}, where
        if VICTIM not in outcome.replied:
            require_same(without, adopted.server, where)
            require_sentence(outcome.rejected[VICTIM], where)
        for reason in outcome.diverged.values():
            require_sentence(reason, where)
    for change in HARMLESS:
        content = copied(parties.replies[TRAIN][VICTIM])
        change(content, rng)
        require_same(honest, parties.round(read(content))[0].server, change.__name__)


def another_reply(parties, action, rng):
    """Mutate the victim's reply, or let it send one that answers another request or is not its."""
    if rng.random() < 0.9:
        return mutated(parties.replies[action][VICTIM], rng)
    other = SCORE if rng.random() < 0.3 else TRAIN
    whose = pick(sorted(parties.replies[other]), rng)
    theirs = parties.replies[other][whose]
    if rng.random() < 0.5:
        return theirs, f"{whose}'s reply to {other}"
    content = copied(parties.replies[action][VICTIM])
    for record in ("arrays", "header"):
        for name in theirs[record]:
            if rng.random() < 0.3:
                content[record][name] = theirs[record][name]
    return content, f"parts of {whose}'s reply to {other}"


def test_a_mutated_score_is_used_or_left_out(parties):
    rng, replies = np.random.default_rng(8), parties.transport.honest[SCORE]
    others = {c for c, reply in replies.items() if reply.header.get("examples")} - {VICTIM}
    for number in range(-(-EACH // 4)):
        content, told = another_reply(parties, SCORE, rng)
        table = parties.scores(read(content))
        where = f"score {number}: {told}"
        found = {row.client for row in (*table.rows, *table.undefined)}
        assert found - {VICTIM} == others, where
        if not table.diverged:
            assert 0 <= table.mean <= 1, where
            assert 0 <= table.weighted_mean <= 1, where
            assert math.isfinite(table.std + table.loss), where


@pytest.mark.parametrize("action", [TRAIN, SCORE])
def test_a_mutated_request_is_answered_or_refused_in_a_sentence(parties, action):
    rng, before = np.random.default_rng(9), parties.state
    for number in range(-(-EACH // 2)):
        content, told = mutated(parties.requests[action], rng)
        where = f"request {number}: {told}"
        header = parties.ask(action, content)["header"]
        if "refused" not in header:
            assert 0 <= header["round"] <= 1, where
            before = parties.state
            continue
        require_sentence(header["refused"], where)
        assert parties.state == before, where
    reply = parties.ask(action, parties.requests[action])
    assert "refused" not in reply["header"], "after all of them the site still works"


def require_sentence(text, where):
    assert 0 < len(text) <= LONGEST, where
    assert text.isprintable(), where
