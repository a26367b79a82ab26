"""What a site's page says about tensors agrees with the bytes on the wire, for every method."""

from __future__ import annotations

import pytest
from staging import Stage
from torch import nn

from motet import Task
from motet.deploy._traffic import audit_traffic, telling_bytes
from motet.methods import _catalog as catalog
from motet.testing import World, batch_norm, ragged
from motet.testing._worlds import CLASSES, FEATURES, ragged_data

METHODS = [name for name in catalog.method_names() if name != "fedavg-shared"]


def world_for(name):
    if name == "mocha":  # its solver is for one linear layer
        return World("linear", Task(lambda: nn.Linear(FEATURES, CLASSES)), ragged_data())
    return batch_norm() if name == "fedbn" else ragged()


class Wire:
    """Every message of a run, by site and direction."""

    def __init__(self, stage):
        self.up, self.down, app = {}, {}, stage.grid.app

        def noting(message, context):
            site = context.node_config["client"]
            self.down.setdefault(site, []).append(arrays_of(message))
            reply = app(message, context)
            self.up.setdefault(site, []).append(arrays_of(reply))
            return reply

        stage.grid.app = noting


def arrays_of(message):
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def all_bytes(messages):
    return b"".join(array.tobytes() for arrays in messages for array in arrays.values())


@pytest.mark.parametrize("name", METHODS)
def test_a_page_agrees_with_the_bytes_on_the_wire(name, tmp_path):
    stage = Stage.set(catalog.method_class(name)(), tmp_path, world_for(name), rounds=2)
    said, wire = audit_traffic(stage.agreement), Wire(stage)
    stage.play()
    kept = {site: telling_bytes(stage.kept(site)) for site in wire.up}
    sent = {site: all_bytes(messages) for site, messages in wire.up.items()}
    assert all({*said.stays, *said.leaves} >= tensors.keys() for tensors in kept.values())
    for site, tensors in kept.items():
        left = [name for name in said.stays if tensors.get(name, b"kept") in sent[site]]
        assert not left, f"{left} of {site} left it"
    for part in {name.split("/")[0] for name in said.leaves}:
        names = [name for name in said.leaves if name.startswith(part)]
        assert any(kept[s].get(name, b"x") in sent[s] for s in sent for name in names), part
    assert said.passed_on or not is_passed_on(wire)  # a page may warn of more than happened here


def is_passed_on(wire):
    """Whether any site was sent another site's upload, or a large part of it, as it is."""
    for sender, replies in wire.up.items():
        uploaded = [
            array.tobytes()
            for sent, received in zip(replies, wire.down[sender], strict=True)
            for array in sent.values()
            if is_telling(array) and array.tobytes() not in all_bytes([received])
        ]
        for receiver, messages in wire.down.items():
            received = all_bytes(messages)
            if receiver != sender and any(part in received for part in uploaded):
                return True
    return False


def is_telling(array):
    return array.dtype.kind == "f" and len({*array.ravel().tolist()} - {0.0, 0.5, 1.0}) > 1
