"""Sites that break the rules. This file is copied into the app that the tests submit.

The setting `tricks` says who does what: {"0": ["huge_weight", "long_reason"]} for rounds 1 and 2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from motet.deploy._runtime import flower_apps


def spoilt_header(
    arrays: dict[str, Array], header: dict[str, Any], settings: Mapping[str, Any]
) -> None:
    """Give every array a shape of truth values, in the text in front of its numbers."""
    for name, array in arrays.items():
        data = array.data.replace(b"(", b"(True,", 1)
        arrays[name] = Array(array.dtype, array.shape, array.stype, data)


def huge_weight(
    arrays: dict[str, Array], header: dict[str, Any], settings: Mapping[str, Any]
) -> None:
    header["weight"] = 1e300  # infinite in single precision


def long_reason(
    arrays: dict[str, Array], header: dict[str, Any], settings: Mapping[str, Any]
) -> None:
    header["refused"] = "\x1b[2J" + "x" * 1_000_000


def honest(arrays: dict[str, Array], header: dict[str, Any], settings: Mapping[str, Any]) -> None:
    pass


def held_back(
    arrays: dict[str, Array], header: dict[str, Any], settings: Mapping[str, Any]
) -> None:
    Path(f"{settings['until']}.waiting").touch()
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


def client_app() -> ClientApp:
    """An honest client whose reply is corrupted before it is sent."""
    client, app = flower_apps.client_app(), ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        reply = client(message, context)
        arrays = dict(reply.content["arrays"])
        header = dict(reply.content["header"])
        mine = json.loads(context.run_config["tricks"]).get(context.node_config["client"], [])
        for trick in mine[header["round"] :][:1]:
            TRICKS[trick](arrays, header, context.run_config)
        content = RecordDict({"arrays": ArrayRecord(arrays), "header": ConfigRecord(header)})
        return Message(content, reply_to=message)

    @app.query("score")
    def score(message: Message, context: Context) -> Message:
        return client(message, context)

    return app
