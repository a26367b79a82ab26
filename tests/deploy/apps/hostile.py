"""Sites that break the rules. This file is copied into the app that the tests submit.

The setting `tricks` says who does what: {"0": ["huge_weight", "long_reason"]} for rounds 1 and 2.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from motet.deploy._runtime import flower_apps


def spoilt_header(arrays, header, settings):
    """Give every array a shape of truth values, in the text in front of its numbers."""
    for name, array in arrays.items():
        data = array.data.replace(b"(", b"(True,", 1)
        arrays[name] = Array(array.dtype, array.shape, array.stype, data)


def huge_weight(arrays, header, settings):
    header["weight"] = 1e300  # infinite in single precision


def long_reason(arrays, header, settings):
    header["refused"] = "\x1b[2J" + "x" * 1_000_000


def honest(arrays, header, settings):
    pass


def held_back(arrays, header, settings):
    while not Path(settings["until"]).exists():
        time.sleep(0.2)


TRICKS = {
    trick.__name__: trick
    for trick in (
        spoilt_header,
        huge_weight,
        long_reason,
        honest,
        held_back,
    )
}


def client_app():
    """An honest client whose reply is corrupted before it is sent."""
    client, app = flower_apps.client_app(), ClientApp()

    @app.train()
    def train(message, context):
        reply = client(message, context)
        arrays = dict(reply.content["arrays"])
        header = dict(reply.content["header"])
        mine = json.loads(context.run_config["tricks"]).get(context.node_config["client"], [])
        for trick in mine[header["round"] :][:1]:
            TRICKS[trick](arrays, header, context.run_config)
        content = RecordDict({"arrays": ArrayRecord(arrays), "header": ConfigRecord(header)})
        return Message(content, reply_to=message)

    @app.query("score")
    def score(message, context):
        return client(message, context)

    return app
