"""Flower's ServerApp and ClientApp for every method: the only module that imports Flower.

What Flower calls a node is a client here, known by the name it was registered under. Messages are
pushed and pulled by hand, so that a lost, late or second reply is one that we know about.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from motet._core.visible_text import excerpt
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.parcels import Parcel, Scalar, read_npy
from motet.deploy._runtime.pinning import check_offer
from motet.deploy._runtime.replies import refusing
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.site import JUDGE, LEND, SCORE, TRAIN, Site, answer, open_site
from motet.deploy._runtime.transport import Delivery
from motet.errors import MotetError, WireError

ARRAYS, HEADER = "arrays", "header"  # the two records of every message
MESSAGE_TYPES = {
    TRAIN: "train",
    SCORE: "query.score",
    LEND: "query.lend",
    JUDGE: "query.judge",
}
REASONS = {5: "its site is unavailable", 8: "its site stopped in the middle of the work"}
NO_DEFAULTS: Mapping[str, Scalar] = MappingProxyType({})

log = logging.getLogger("motet.deploy._runtime")


def server_app(
    defaults: Mapping[str, Scalar] = NO_DEFAULTS, agreement: Agreement | None = None
) -> ServerApp:
    """Make the server of an experiment.

    Args:
        defaults: Entries of the run config, where it has none of that name.
        agreement: The experiment, if it is made in Python and not read from the run config.

    Returns:
        The app that Flower runs on the server.

    Example:
        >>> from motet.deploy import server_app
        >>> app = server_app({"out": "run", "min-clients": 3})  # in server_app.py of a Flower app
        >>> type(app).__name__
        'ServerApp'
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # Here, since a site starts a process per message, and would wait for it every time.
        from motet.deploy._runtime.server_loop import run_server

        _show_log()
        run_config = {**defaults, **context.run_config}
        try:
            agreed = agreement or Agreement.from_run_config(run_config)
            limits = ServerLimits.from_run_config(run_config)
            run_server(
                agreed, limits, FlowerTransport(grid, limits.clients or agreed.sites.clients())
            )
        except MotetError as reason:
            log.error("experiment %s: failed: %s", run_config.get("experiment"), reason)  # noqa: TRY400 - the sentence says it
            raise

    return app


def client_app(
    defaults: Mapping[str, Scalar] = NO_DEFAULTS, agreement: Agreement | None = None
) -> ClientApp:
    """Make the client of an experiment; the arguments are those of `server_app`.

    Args:
        defaults: As for `server_app`.
        agreement: As for `server_app`.

    Returns:
        The app that Flower runs at every site.

    Example:
        >>> from motet.deploy import client_app
        >>> app = client_app()  # in client_app.py of a Flower app
        >>> type(app).__name__
        'ClientApp'
    """
    app = ClientApp()

    def reply(action: str, message: Message, context: Context) -> Message:
        _show_log()
        run_config = {**defaults, **context.run_config}

        def site(parcel: Parcel) -> Site:
            if agreement is None:
                check_offer(run_config, context.node_config)
            agreed = agreement or Agreement.from_run_config(run_config)
            return open_site(agreed, parcel, run_config, context.node_config)

        answered = answer(lambda: _parcel(message), site, action)
        return Message(_content(answered), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return reply(TRAIN, message, context)

    @app.query(SCORE)
    def score(message: Message, context: Context) -> Message:
        return reply(SCORE, message, context)

    @app.query(LEND)
    def lend(message: Message, context: Context) -> Message:
        return reply(LEND, message, context)

    @app.query(JUDGE)
    def judge(message: Message, context: Context) -> Message:
        return reply(JUDGE, message, context)

    return app


class Sent(NamedTuple):
    """A message that was sent, and not long ago."""

    client: str
    number: int  # of its round
    request: str  # `Parcel.request`
    expires: float  # when no reply can come any more
    node: int  # that it was sent to


class Arrived(NamedTuple):
    """What has arrived for a message: a reply, or why there is none."""

    name: str  # of the message that it answers
    sent: Sent
    parcel: Parcel
    lost: str = ""


@dataclass
class FlowerTransport:
    """Reaches clients through a Flower grid.

    Attributes:
        grid: Where messages go.
        names: For nodes without a registered name, as in simulations: they get these, in order.
        poll_s: Most seconds between two looks for replies; a short round is looked at more often.
    """

    grid: Grid
    names: Sequence[str] = ()
    poll_s: float = 1.0
    _sent: dict[str, Sent] = field(default_factory=dict)  # unanswered, by message id
    _given: dict[int, str] = field(default_factory=dict)  # names of nodes that had none

    def present(self) -> tuple[str, ...]:
        """List who is online, by name."""
        return tuple(sorted(self._nodes()))

    def exchange(
        self, action: str, parcels: Mapping[str, Parcel], *, number: int, deadline_s: float
    ) -> Delivery:
        """Send each client its own parcel, and wait for the replies to these, no longer."""
        # A late reply of an earlier round is not used, but for another deadline it can be named.
        due = self._push(action, parcels, number, deadline_s)
        began = time.monotonic()
        end = began + deadline_s
        for name in due.values():  # sending takes time, too: the first must not expire before `end`
            self._sent[name] = self._sent[name]._replace(expires=end + deadline_s)
        lost = dict.fromkeys(parcels.keys() - due.keys(), "it could not be reached")
        replies: dict[str, Parcel] = {}
        while due:
            for name, sent, reply, why in self._pull():
                client = sent.client
                is_open = client in parcels and client not in replies
                if not is_open or due.get(client) != name:
                    if why or not (is_open and _is_same_request(sent, parcels[client])):
                        _name_stray(sent, why, number)
                        continue
                    log.info("round %d: %s answered an earlier attempt", number + 1, client)
                due.pop(client, None)
                lost.pop(client, None)
                if why:
                    lost[client] = why
                else:
                    replies[client] = reply
            now = time.monotonic()
            if not due or now >= end:
                break
            # Each look is work for the SuperLink, so they become rarer the longer it takes.
            time.sleep(min((now - began) / 2, self.poll_s, end - now))
        lost |= dict.fromkeys(due, f"no reply within {deadline_s:g} s")
        return Delivery(replies, lost)

    def _push(
        self, action: str, parcels: Mapping[str, Parcel], number: int, deadline_s: float
    ) -> dict[str, str]:
        """Send the messages one by one, and return their ids by client."""
        nodes, due = self._nodes(), dict[str, str]()
        ttl_s = 2 * deadline_s
        for client in sorted(parcels.keys() & nodes.keys()):
            content, kind = _content(parcels[client]), MESSAGE_TYPES[action]
            message = Message(content, nodes[client], kind, ttl=ttl_s, group_id=str(number))
            for name in filter(None, self.grid.push_messages([message])):  # "" if it was refused
                due[client] = name
                expires = time.monotonic() + ttl_s
                self._sent[name] = Sent(
                    client, number, parcels[client].request, expires, nodes[client]
                )
        return due

    def _pull(self) -> list[Arrived]:
        """Collect replies, also those to earlier rounds, each with what it answers."""
        now = time.monotonic()
        self._sent = {name: sent for name, sent in self._sent.items() if sent.expires > now}
        arrived = [one for name in list(self._sent) for one in self._pull_one(name)]
        for one in arrived:  # not asked for again: to Flower that would be an error
            self._sent.pop(one.name, None)
        return arrived

    def _pull_one(self, name: str) -> list[Arrived]:
        """Ask for the reply to one message.

        One by one, since Flower decodes replies here: bytes that are no message raise an error,
        and what was asked for in the same call would be lost with them.
        """
        sent = self._sent[name]
        try:
            found = list(self.grid.pull_messages([name]))
        except httpx.HTTPError:
            raise  # about the connection, and not about the reply
        except Exception as reason:
            log.debug("a reply of %s cannot be decoded", sent.client, exc_info=True)
            refused = Parcel({"refused": f"its reply is not a message ({type(reason).__name__})."})
            return [Arrived(name, sent, refused)]
        ours = [m for m in found if m.metadata.reply_to_message_id == name]
        return [_arrived(name, sent, message) for message in ours]

    def _nodes(self) -> dict[str, int]:
        found = sorted(self.grid.get_nodes(), key=lambda node: node.node_id)
        for node in found:
            free = [name for name in sorted(self.names) if name not in self._given.values()]
            if not node.name and node.node_id not in self._given and free:
                self._given[node.node_id] = free[0]
        named = {node.name or self._given.get(node.node_id, ""): node.node_id for node in found}
        return {name: node_id for name, node_id in named.items() if name}


def _arrived(name: str, sent: Sent, message: Message) -> Arrived:
    if message.has_error():
        return Arrived(name, sent, Parcel({}), lost=_why(message))
    if message.metadata.src_node_id != sent.node:
        return Arrived(name, sent, Parcel({"refused": "another site answered in its place."}))
    return Arrived(name, sent, _reply(message))


def _is_same_request(sent: Sent, parcel: Parcel) -> bool:
    """Tell whether an earlier attempt at the round asked for the same."""
    return bool(sent.request) and sent.request == parcel.request


def _name_stray(sent: Sent, lost: str, number: int) -> None:
    """Say whose reply is not used, and why."""
    if lost:
        return  # that was said in its own round
    if sent.number == number:
        log.warning("round %d: %s replied twice; once is enough", number + 1, sent.client)
    else:
        late = f"{sent.client}'s reply of round {sent.number + 1} arrived late and is ignored"
        log.warning("round %d: %s", number + 1, late)


def _content(parcel: Parcel) -> RecordDict:
    arrays = ArrayRecord({name: Array(array) for name, array in parcel.arrays.items()})
    return RecordDict({ARRAYS: arrays, HEADER: ConfigRecord(dict(parcel.header))})


def _parcel(message: Message) -> Parcel:
    content = message.content
    kinds = {name: type(record) for name, record in content.items()}
    if kinds != {ARRAYS: ArrayRecord, HEADER: ConfigRecord}:
        raise WireError(
            f"a message must hold {ARRAYS} and {HEADER}, and nothing else; got {sorted(content)}."
        )
    arrays = {
        name: read_npy(name, array.data) for name, array in content.array_records[ARRAYS].items()
    }
    return Parcel(dict(content.config_records[HEADER]), arrays)  # type: ignore[arg-type]


def _reply(message: Message) -> Parcel:
    """Read a reply; one that cannot be read is a refusal with that reason."""
    try:
        with refusing():
            return _parcel(message)
    except WireError as reason:
        return Parcel({"refused": str(reason)})


def _why(message: Message) -> str:
    """Say why Flower has no reply."""
    error = message.error
    given = excerpt(str(error.reason or "no reason given"))
    return REASONS.get(error.code, f"error {error.code}: {given}")


def _show_log() -> None:
    """Send our lines where Flower's go, unless a handler is installed."""
    ours = logging.getLogger("motet")
    if not ours.hasHandlers():
        ours.addHandler(logging.StreamHandler())
        ours.setLevel(logging.INFO)
