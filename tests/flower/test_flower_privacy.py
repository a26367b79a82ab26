"""Nothing private is in any message: every byte that was sent, both ways, is searched."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from staging import Given, Stage

from motet import APFL, Ditto, FedPer, Flow, KNNPer
from motet._core import tree
from motet.deploy._runtime.sitedata import Everywhere

METHODS = [FedPer(), KNNPer(), Ditto(), APFL(), Flow()]
COMMON = {0.0, 0.5, 1.0}  # numbers that any message may hold by chance


def as_bytes(value) -> list[bytes]:
    """The bytes of every tensor in a tree, but for those that say nothing."""
    telling = [leaf for leaf in tree.leaves(value) if set(leaf.flatten().tolist()) - COMMON]
    return [leaf.contiguous().numpy().tobytes() for leaf in telling]


def private_bytes(stage: Stage) -> list[bytes]:
    """All that must stay at home: inputs, what clients keep after a round, their predictors."""
    data, run = stage.world.data, stage.oracle(rounds=1)
    needles = [row.numpy().tobytes() for c in data.clients for row in data.examples(c, "train").x]
    # Not after the first round: where local work is one step, a personal model is then the one
    # that is sent up, since both began as the same.
    while run.rounds_done < stage.run.rounds:
        run.advance()
        needles += [part for c in data.clients for part in as_bytes(run.clients[c])]
    shared = set(as_bytes(run.server))
    predictors = [part for c in data.clients for part in as_bytes(run.personal(c))]
    return needles + [part for part in predictors if part not in shared]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_private_tensor_is_in_any_message(method, tmp_path):
    stage = Stage.set(method, tmp_path)
    run = stage.play()
    sent = b"".join(stage.grid.traffic)
    assert all(part in sent for part in as_bytes(run.server)), "the search finds what was sent"
    secrets = private_bytes(stage)
    assert len(secrets) > 50
    assert not [secret for secret in secrets if secret in sent]


class Careless(Everywhere):
    """Sites of which one cannot read its data, and says too much about it."""

    def load(self, client, place):
        if client == "few":
            raise ValueError("row 17: patient Smith")
        return super().load(client, place)


class CarelessStage(Stage):
    @property
    def agreement(self):
        return replace(super().agreement, sites=Careless(Given(self.world.data)))


def test_an_error_about_the_data_of_a_site_stays_there(tmp_path, caplog):
    stage = CarelessStage.set(FedPer(), tmp_path)
    with caplog.at_level(logging.WARNING, "motet.deploy._runtime"):
        stage.play()
    assert "round 1: few rejected: its site failed with ValueError; the log there" in caplog.text
    assert b"Smith" not in b"".join(stage.grid.traffic)
