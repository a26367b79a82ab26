"""Whatever a site sends, only that site can be lost: the others count, and the run goes on.

Mutated replies of every method are in `test_message_laws.py`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import ClassVar

import numpy as np
import pytest
import torch
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from message_mutations import MESSAGES
from staging import Array, LoopbackGrid, Stage

from motet import FedAvg, FedFomo, Krum
from motet._core import tree
from motet.testing._comparing import require_close

VICTIM = "few"


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, "motet")
    return caplog


# -- single replies that did harm ---------------------------------------------


def in_every_round(change):
    """A fault in the replies of one site, to training or scoring, in every round."""

    def fault(who, reply):
        return change(reply) if who == VICTIM else [reply]

    return fault


def header(kind, **values):
    def change(reply):
        if reply.metadata.message_type == kind:
            for name, value in values.items():
                reply.content["header"][name] = value
        return [reply]

    return change


def npy(old, new):
    def change(reply):
        arrays = reply.content["arrays"]
        for name in list(arrays):
            array = arrays[name]
            data = array.data.replace(old, new, 1)
            arrays[name] = Array(array.dtype, array.shape, array.stype, data)
        return [reply]

    return change


HARMFUL = {
    "a weight that is infinite in single precision": (header("train", weight=1e300), "a weight is"),
    "a weight that takes the whole mean": (header("train", weight=1e10), "a weight is"),
    "half an example": (header("train", weight=0.5), "a weight is"),
    "gradients that are no number": (header("train", gradients=float("nan")), "gradients must"),
    "gradients below 0": (header("train", gradients=-1e9), "gradients must"),
    "a shape of truth values": (npy(b"(", b"(True,"), "is not an array of numbers"),
    "a reason with escape codes": (header("train", refused="\x1b[2Jgone"), "\\x1b[2Jgone"),
    "a reason of 20 MB": (header("train", refused="x" * 20_000_000), "xxx..."),
    "a header that is a list": (header("train", weight=[1.0] * 10_000), 'needs "weight" as float'),
}


@pytest.mark.parametrize("harm", HARMFUL)
def test_a_harmful_reply_costs_its_site_every_round_and_nobody_else_anything(harm, tmp_path):
    change, reason = HARMFUL[harm]
    stage = Stage.set(FedAvg(), tmp_path, fault=in_every_round(change), rounds=2)
    served = stage.play()
    assert tree.is_finite(served.server)
    lines = (tmp_path / "out/rounds.jsonl").read_text().splitlines()
    assert sum(map(len, lines)) < 10_000
    for line in map(json.loads, lines):
        assert line["rejected"].keys() == {VICTIM}
        assert reason in line["rejected"][VICTIM]
        assert set(line["replied"]) == set(stage.world.data.clients) - {VICTIM}


SCORES = {
    "NaN": {"value": float("nan")},
    "infinite": {"value": float("inf")},
    "an accuracy of 7": {"value": 7.0},
    "a loss of 1e308": {"loss": 1e308},
    "a negative number of examples": {"examples": -5},
    "more examples than there are people": {"examples": 2**62},
    "a mark that is text": {"diverged": "no"},
}


@pytest.mark.parametrize("values", SCORES.values(), ids=SCORES)
def test_a_score_out_of_range_is_left_out_and_its_site_named(values, tmp_path, heard):
    change = in_every_round(header("query.score", **values))
    Stage.set(FedAvg(), tmp_path, fault=change, rounds=1).play()
    assert f"{VICTIM} sent no score: " in heard.text
    assert "experiment stage: finished" in heard.text


def test_an_upload_about_models_that_do_not_exist_is_rejected(tmp_path, heard):
    def change(reply):
        if reply.metadata.message_type == "train":
            owners = reply.content["arrays"]["owners"].numpy().copy()
            owners[:] = 10**6
            reply.content["arrays"]["owners"] = Array(owners)
        return [reply]

    stage = Stage.set(FedFomo(), tmp_path, fault=in_every_round(change), rounds=2)
    served = stage.play()
    assert f"{VICTIM} rejected: the owner of a model is a client from 0 to 5; got 1000000" in (
        heard.text
    )
    assert tree.is_finite(served.server)
    lines = map(json.loads, (tmp_path / "out/rounds.jsonl").read_text().splitlines())
    assert all(set(line["replied"]) == set(stage.world.data.clients) - {VICTIM} for line in lines)


class Trusting(FedAvg):
    """A method whose server breaks if an upload is negative."""

    name = "trusting"

    def server_update(self, server, combined, info, task):
        if any(bool((leaf < -1e6).any()) for leaf in tree.leaves(combined)):
            raise ZeroDivisionError("not expected")
        return super().server_update(server, combined, info, task)


def below_everything(reply):
    if reply.metadata.message_type == "train":
        arrays = reply.content["arrays"]
        for name in list(arrays):
            arrays[name] = Array(np.full_like(arrays[name].numpy(), -1e30))
    return [reply]


def test_an_upload_that_breaks_a_method_s_own_update_is_rejected(tmp_path, heard):
    stage = Stage.set(Trusting(), tmp_path, fault=in_every_round(below_everything), rounds=2)
    served = stage.play()
    assert f"round 2: {VICTIM} rejected: the uploads cannot be combined" in heard.text
    without = in_every_round(header("train", refused="no"))
    honest = Stage.set(Trusting(), tmp_path / "honest", rounds=2, fault=without)
    require_close(honest.play().server, served.server, "the server without that upload", 1e-6)


def test_a_robust_mean_is_spared_the_same_way(tmp_path):
    method = FedAvg(reduce=Krum(attackers=1))
    stage = Stage.set(method, tmp_path, fault=in_every_round(below_everything), rounds=1)
    served = stage.play()
    assert max(float(leaf.abs().max()) for leaf in tree.leaves(served.server)) < 1e3


def test_a_round_that_no_upload_can_be_used_in_leaves_the_server_as_it_was(tmp_path, heard):
    stage = Stage.set(
        Trusting(), tmp_path, fault=lambda _, reply: below_everything(reply), rounds=1
    )
    served = stage.play()
    assert "round 1: the server keeps its old state: the uploads cannot be combined" in heard.text
    assert all(torch.isfinite(leaf).all() for leaf in tree.leaves(served.server))


def test_the_operator_can_state_the_largest_number_of_examples(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, rounds=1, max_examples=1)
    stage.play()
    assert "a weight is a number of examples or batches from 1 to 1; got" in heard.text


# -- replies that are no messages ---------------------------------------------


class DecodingGrid(LoopbackGrid):
    """Decodes replies when they are asked for, as Flower does: the bytes are the site's own."""

    rng = np.random.default_rng(3)
    told: ClassVar[list[str]] = []

    def pull_messages(self, message_ids):
        return [self.decoded(message) for message in super().pull_messages(message_ids)]

    def decoded(self, message):
        if message.metadata.src_node_id != self._id(VICTIM):
            return message
        parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.told.append(spoil_a_part(parts, self.rng))
        return inflate_object_from_contents(message.object_id, parts)


def spoil_a_part(parts, rng):
    """Change the bytes of one object of a message, which is known by their hash."""
    name = sorted(parts)[int(rng.integers(len(parts)))]
    spoilt = bytearray(parts[name])
    how = ("flip", "cut", "random", "empty")[int(rng.integers(4))]
    place = int(rng.integers(len(spoilt)))
    if how == "flip":
        spoilt[place] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del spoilt[place:]
    elif how == "random":
        spoilt[:] = rng.bytes(place)
    else:
        spoilt.clear()
    parts[name] = bytes(spoilt)
    return f"{how} in {hashlib.sha256(spoilt).hexdigest()[:8]}"


def test_a_reply_that_cannot_be_decoded_costs_its_site_the_round_and_no_other_reply(tmp_path):
    rounds = max(12, MESSAGES // 500)
    stage = Stage.set(FedAvg(), tmp_path, rounds=rounds)
    stage.grid = DecodingGrid(stage.grid.app, stage.grid.nodes)
    served = stage.play()
    assert tree.is_finite(served.server)
    lines = [json.loads(x) for x in (tmp_path / "out/rounds.jsonl").read_text().splitlines()]
    everybody = set(stage.world.data.clients)
    assert all(set(line["replied"]) >= everybody - {VICTIM} for line in lines), stage.grid.told
    reasons = [line["rejected"].get(VICTIM, "") for line in lines]
    assert any("is not a message" in reason for reason in reasons)


def test_a_reply_that_another_site_sent_is_not_taken_for_its_own(tmp_path, heard):
    def answered_by_another(who, reply):
        if who == VICTIM:
            reply.metadata.__dict__["_src_node_id"] = 7
        return [reply]

    stage = Stage.set(FedAvg(), tmp_path, fault=answered_by_another, rounds=1)
    stage.play()
    assert f"{VICTIM} rejected: another site answered in its place" in heard.text
