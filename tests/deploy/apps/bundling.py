"""Many experiments in one Flower run: every message carries one message of each experiment.

A message to a real site starts a Python process that imports torch; four experiments side by side
would start four times as many. Here the unchanged servers of all experiments run in threads, each
with a grid of its own that collects what they send until all of them wait for replies. What goes to
one site then travels in one envelope, and the unchanged clients answer its messages one by one.

In an envelope each message is a string of bytes: Flower asks for every array of a message in a call
of its own, and hundreds of arrays would be thousands of calls. (Other tests send them that way.)

This file is copied into the app that the tests submit.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterable
from types import SimpleNamespace

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.serverapp import Grid, ServerApp

from motet.deploy._runtime import flower_apps

LOOK_S = 0.5  # each experiment looks for its replies; they need not all reach the SuperLink


def contexts(context: Context) -> dict[str, Context]:
    """Give each experiment a context of its own; they share nothing but the node."""
    configs = json.loads(context.run_config["experiments"])
    shared = {k: v for k, v in context.run_config.items() if k != "experiments"}
    return {
        name: Context(
            context.run_id,
            context.node_id,
            context.node_config,
            RecordDict(),
            {
                **shared,
                "experiment": name,
                "config": text,
                "out": f"{shared['out']}/{name}",
            },
        )
        for name, text in configs.items()
    }


class Hub:
    """Collects the messages of all experiments, and hands out their replies."""

    def __init__(self, grid: Grid, names: Iterable[str]) -> None:
        self.grid, self.lock = grid, threading.Lock()
        self.busy = set(names)  # experiments that are not waiting yet
        self.waiting = set()
        self.outbox = {}  # (experiment, number) -> message
        self.under_way = {}  # id of an envelope -> what is in it
        self.replies = {name: [] for name in names}
        self.count = 0
        self.next_look = 0.0

    def push(self, name: str, message: Message) -> str:
        with self.lock:
            self._works(name)
            self.count += 1
            self.outbox[name, f"inner-{self.count}"] = message
            return f"inner-{self.count}"

    def pull(self, name: str, wanted: set[str]) -> list[Opened]:
        with self.lock:
            self.busy.discard(name)
            self.waiting.add(name)
            if not self.busy and self.outbox:
                self._send()
            if self.under_way and time.monotonic() > self.next_look:
                self._receive()
                self.next_look = time.monotonic() + LOOK_S
            there, self.replies[name] = self.replies[name], []
            replies = []
            for reply in there:
                asked = reply.metadata.reply_to_message_id in wanted
                (replies if asked else self.replies[name]).append(reply)
            if replies:
                self._works(name)
            return replies

    def leave(self, name: str) -> None:
        with self.lock:
            self.busy.discard(name)
            self.waiting.discard(name)

    def nodes(self) -> Iterable[NodeInfo]:
        with self.lock:
            return self.grid.get_nodes()

    def _works(self, name: str) -> None:
        self.waiting.discard(name)
        self.busy.add(name)

    def _send(self) -> None:
        inside = {}
        for (name, number), message in self.outbox.items():
            inside.setdefault(message.metadata.dst_node_id, []).append((name, number, message))
        self.outbox = {}
        for node, messages in inside.items():
            index, contents = ConfigRecord(), ConfigRecord()
            for name, number, message in messages:
                index[number] = f"{name} {message.metadata.message_type}"
                contents[number] = sealed(message.content)
            envelope = RecordDict({"index": index, "contents": contents})
            (sent,) = self.grid.push_messages([Message(envelope, node, "train")])
            self.under_way[sent] = [(name, number) for name, number, _ in messages]

    def _receive(self) -> None:
        for reply in self.grid.pull_messages(list(self.under_way)):
            inside = self.under_way.pop(reply.metadata.reply_to_message_id)
            for name, number in inside:
                self.replies[name].append(Opened(reply, number))


class Opened:
    """One message out of an envelope; an error is one for all of them."""

    def __init__(self, reply: Message, number: str) -> None:
        sender = reply.metadata.src_node_id
        self.metadata = SimpleNamespace(reply_to_message_id=number, src_node_id=sender)
        self.has_error = reply.has_error
        if reply.has_error():
            self.error = reply.error
        else:
            self.content = opened(reply.content["contents"][number])


class OneOfMany:
    """The grid as one experiment sees it."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self.hub.nodes()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self.hub.push(self.name, message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Opened]:
        return self.hub.pull(self.name, set(message_ids))


def sealed(content: RecordDict) -> bytes:
    """Write the records of one message as bytes."""
    return recorddict_to_proto(content).SerializeToString()


def opened(data: bytes) -> RecordDict:
    """Read the records of one message."""
    return recorddict_from_proto(RecordDictProto.FromString(data))


def server_app() -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        every = contexts(context)
        hub, failures = Hub(grid, every), {}

        def run_server(name: str) -> None:
            try:
                flower_apps.server_app()(OneOfMany(hub, name), every[name])
            except Exception as reason:
                failures[name] = reason
            finally:
                hub.leave(name)

        threads = [threading.Thread(target=run_server, args=(name,)) for name in every]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"failed: {failures}")

    return app


def client_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        every, contents = contexts(context), ConfigRecord()
        for number, about in message.content["index"].items():
            name, kind = about.split(" ")
            about_it = copy.deepcopy(message.metadata)
            about_it.message_type = kind
            content = opened(message.content["contents"][number])
            inner = Message(content=content, metadata=about_it)
            reply = flower_apps.client_app()(inner, every[name])
            contents[number] = sealed(reply.content)
        return Message(RecordDict({"contents": contents}), reply_to=message)

    return app
