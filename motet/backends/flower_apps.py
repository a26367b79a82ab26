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

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from motet.errors import MotetError, WireError
from motet.remote.agreement import Agreement
from motet.remote.parcels import Parcel, Scalar, read_npy
from motet.remote.site import SCORE, TRAIN, Site, answer, open_site
from motet.remote.terms import Terms
from motet.remote.transport import Delivery

ARRAYS, HEADER = "arrays", "header"  # the two records of every message
MESSAGE_TYPES = {TRAIN: "train", SCORE: "query.score"}
REASONS = {5: "its site is unavailable", 8: "its site stopped in the middle of the work"}
NO_DEFAULTS: Mapping[str, Scalar] = MappingProxyType({})

log = logging.getLogger("motet.remote")


def server_app(
    defaults: Mapping[str, Scalar] = NO_DEFAULTS, agreement: Agreement | None = None
) -> ServerApp:
    """Make the server of an experiment.

    Args:
        defaults: Entries of the run config, where it has none of that name.
        agreement: The experiment, if it is made in Python and not read from the run config.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # Here, since a site starts a process per message, and would wait for it every time.
        from motet.remote.conductor import conduct

        _show_log()
        run_config = {**defaults, **context.run_config}
        try:
            agreed = agreement or Agreement.from_run_config(run_config)
            terms = Terms.from_run_config(run_config)
            conduct(agreed, terms, FlowerTransport(grid, terms.clients or agreed.sites.clients()))
        except MotetError as reason:
            log.error("experiment %s: failed: %s", run_config.get("experiment"), reason)  # noqa: TRY400 - the sentence says it
            raise

    return app


def client_app(
    defaults: Mapping[str, Scalar] = NO_DEFAULTS, agreement: Agreement | None = None
) -> ClientApp:
    """Make the client of an experiment; the arguments are those of `server_app`."""
    app = ClientApp()

    def reply(action: str, message: Message, context: Context) -> Message:
        _show_log()
        run_config = {**defaults, **context.run_config}

        def site() -> Site:
            agreed = agreement or Agreement.from_run_config(run_config)
            return open_site(agreed, parcel, run_config, context.node_config)

        parcel = _parcel(message)
        return Message(_content(answer(site, action, parcel)), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return reply(TRAIN, message, context)

    @app.query(SCORE)
    def score(message: Message, context: Context) -> Message:
        return reply(SCORE, message, context)

    return app


class Sent(NamedTuple):
    """A message that was sent, and not long ago."""

    client: str
    number: int  # of its round
    expires: float  # when no reply can come any more


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
        # A late reply is not used, but for another deadline it can be had, and named.
        due = self._push(action, parcels, number, ttl_s=2 * deadline_s)
        began = time.monotonic()
        end = began + deadline_s
        self._sent |= {name: Sent(c, number, end + deadline_s) for name, c in due.items()}
        silent = parcels.keys() - set(due.values())
        replies, lost = {}, dict.fromkeys(silent, "it could not be reached")
        while due:
            for sent, message in self._pull():
                if due.pop(message.metadata.reply_to_message_id, None) is None:
                    _name_stray(sent, message, number)
                elif message.has_error():
                    lost[sent.client] = _why(message)
                else:
                    replies[sent.client] = _reply(message)
            now = time.monotonic()
            if not due or now >= end:
                break
            # Each look is work for the SuperLink, so they become rarer the longer it takes.
            time.sleep(min((now - began) / 2, self.poll_s, end - now))
        lost |= dict.fromkeys(due.values(), f"no reply within {deadline_s:g} s")
        return Delivery(replies, lost)

    def _push(
        self, action: str, parcels: Mapping[str, Parcel], number: int, ttl_s: float
    ) -> dict[str, str]:
        """Send the messages one by one, so that it is certain whose each id is."""
        nodes, due = self._nodes(), dict[str, str]()
        for client in sorted(parcels.keys() & nodes.keys()):
            content, kind = _content(parcels[client]), MESSAGE_TYPES[action]
            message = Message(content, nodes[client], kind, ttl=ttl_s, group_id=str(number))
            sent = filter(None, self.grid.push_messages([message]))  # "" if it was refused
            due |= dict.fromkeys(sent, client)
        return due

    def _pull(self) -> list[tuple[Sent, Message]]:
        """Collect replies, also those to earlier rounds, each with what it answers."""
        now = time.monotonic()
        self._sent = {name: sent for name, sent in self._sent.items() if sent.expires > now}
        messages = list(self.grid.pull_messages(list(self._sent)))
        pairs = [(self._sent[m.metadata.reply_to_message_id], m) for m in messages]
        for message in messages:  # not asked for again: to Flower that would be an error
            self._sent.pop(message.metadata.reply_to_message_id, None)
        return pairs

    def _nodes(self) -> dict[str, int]:
        found = sorted(self.grid.get_nodes(), key=lambda node: node.node_id)
        for node in found:
            free = [name for name in sorted(self.names) if name not in self._given.values()]
            if not node.name and node.node_id not in self._given and free:
                self._given[node.node_id] = free[0]
        named = {node.name or self._given.get(node.node_id, ""): node.node_id for node in found}
        return {name: node_id for name, node_id in named.items() if name}


def _name_stray(sent: Sent, message: Message, number: int) -> None:
    """Say whose reply is not used, and why."""
    if message.has_error():
        return  # it was lost in its own round, where that was said
    if sent.number == number:
        log.warning("round %d: %s replied twice; once is enough", number + 1, sent.client)
    else:
        late = f"{sent.client}'s reply of round {sent.number + 1} came late and is ignored"
        log.warning("round %d: %s", number + 1, late)


def _content(parcel: Parcel) -> RecordDict:
    arrays = ArrayRecord({name: Array(array) for name, array in parcel.arrays.items()})
    return RecordDict({ARRAYS: arrays, HEADER: ConfigRecord(dict(parcel.header))})


def _parcel(message: Message) -> Parcel:
    content = message.content
    if content.array_records.keys() != {ARRAYS} or content.config_records.keys() != {HEADER}:
        raise WireError(f"a message holds {ARRAYS} and {HEADER}; {sorted(content)} came.")
    arrays = {
        name: read_npy(name, array.data) for name, array in content.array_records[ARRAYS].items()
    }
    return Parcel(dict(content.config_records[HEADER]), arrays)  # type: ignore[arg-type]


def _reply(message: Message) -> Parcel:
    """Read a reply; one that cannot be read is a refusal with that reason."""
    try:
        return _parcel(message)
    except WireError as reason:
        return Parcel({"refused": str(reason)})


def _why(message: Message) -> str:
    """Say why Flower has no reply."""
    error = message.error
    return REASONS.get(error.code, f"error {error.code}: {error.reason or 'no reason given'}")


def _show_log() -> None:
    """Send our lines where Flower's go, unless somebody listens already."""
    ours = logging.getLogger("motet")
    if not ours.hasHandlers():
        ours.addHandler(logging.StreamHandler())
        ours.setLevel(logging.INFO)
