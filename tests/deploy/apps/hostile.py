"""Sites that break the rules. This file is copied into the app that the tests submit.

The setting `tricks` says who does what: {"0": ["not_a_number", "old_round"]} for rounds 1 and 2.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from motet.deploy._runtime import flower_apps


def not_a_number(arrays, header, settings):
    name = sorted(arrays)[0]
    arrays[name] = np.full_like(arrays[name], np.nan)


def wrong_shape(arrays, header, settings):
    name = sorted(arrays)[0]
    arrays[name] = arrays[name].reshape(-1)[:-1]


def hundredfold(arrays, header, settings):
    for name in list(arrays):
        arrays[name] = np.concatenate([arrays[name]] * 100)


def old_round(arrays, header, settings):
    header["round"] = -1


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
        not_a_number,
        wrong_shape,
        hundredfold,
        old_round,
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
        arrays = {k: v.numpy() for k, v in reply.content["arrays"].items()}
        header = dict(reply.content["header"])
        mine = json.loads(context.run_config["tricks"]).get(context.node_config["client"], [])
        for trick in mine[header["round"] :][:1]:
            TRICKS[trick](arrays, header, context.run_config)
        spoilt = ArrayRecord({k: Array(v) for k, v in arrays.items()})
        content = RecordDict({"arrays": spoilt, "header": ConfigRecord(header)})
        return Message(content, reply_to=message)

    @app.query("score")
    def score(message, context):
        return client(message, context)

    return app
