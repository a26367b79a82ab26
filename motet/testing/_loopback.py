"""A Flower grid in one process: real apps and real messages, no network, and faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from motet.errors import CapabilityError

Config = Mapping[str, bool | int | float | str]
Fault = Callable[[str, Message], Sequence[Message]]  # (client, its reply) -> what arrives of it


def as_sent(_: str, reply: Message) -> Sequence[Message]:
    """Deliver a reply as it is."""
    return [reply]


@dataclass
class LoopbackGrid(Grid):
    """Runs a ClientApp for every node when a message is pushed.

    Every message is turned into bytes and back, as between machines.

    Attributes:
        app: What the nodes run.
        nodes: Node config by registered name.
        run_config: The same for all.
        fault: What arrives of a reply: nothing, another one, several.
        offline: Names of nodes that cannot be reached.
        traffic: The bytes of every message so far, both ways.

    Example:
        >>> import motet
        >>> grid = LoopbackGrid(motet.deploy.client_app(), {"basel": {"client": "basel"}})
        >>> [node.name for node in grid.get_nodes()]
        ['basel']
    """

    app: ClientApp
    nodes: dict[str, Config]
    run_config: Config = field(default_factory=dict)
    fault: Fault = as_sent
    offline: set[str] = field(default_factory=set)
    traffic: list[bytes] = field(default_factory=list)
    _replies: list[Message] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        # What the runtimes set for apps; without it no message can be made.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def drive(self, app: ServerApp) -> None:
        """Run a ServerApp against this grid."""
        app(self, self._context({}, 1))

    def get_nodes(self) -> Iterable[NodeInfo]:
        """List the nodes that are online."""
        here = [name for name in self.nodes if name not in self.offline]
        return [NodeInfo(node_id=self._id(name), name=name, status="online") for name in here]

    def get_node_ids(self) -> Iterable[int]:
        """List the ids of the nodes that are online."""
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the nodes answer at once."""
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Hand over the replies that have arrived."""
        wanted = set(message_ids)
        found = [m for m in self._replies if m.metadata.reply_to_message_id in wanted]
        self._replies = [m for m in self._replies if m not in found]
        return found

    def _push(self, message: Message) -> str:
        self._count += 1
        message.metadata.__dict__["_message_id"] = name = f"message-{self._count}"
        (client,) = [c for c, i in self._ids.items() if i == message.metadata.dst_node_id]
        self._replies += self.fault(client, self._answer(client, self._carried(message)))
        return name

    def _answer(self, client: str, message: Message) -> Message:
        if client in self.offline:
            return Message(Error(5, "Node Unavailable"), reply_to=message)
        context = self._context(self.nodes[client], self._id(client))
        try:
            return self._carried(self.app(message, context))
        except Exception as reason:  # as a SuperNode does
            return Message(Error(2, repr(reason)), reply_to=message)

    def _carried(self, message: Message) -> Message:
        """Turn a message into bytes and back."""
        parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.traffic.append(b"".join(parts.values()))
        arrived = inflate_object_from_contents(message.object_id, parts)
        assert isinstance(arrived, Message)
        arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
        return arrived

    def _context(self, node_config: Config, node_id: int) -> Context:
        return Context(1, node_id, dict(node_config), RecordDict(), dict(self.run_config))

    def _id(self, client: str) -> int:
        return self._ids.setdefault(client, 2**40 + len(self._ids))

    # The rest of Flower's interface, which our apps do not use.

    def set_run(self, run: Run) -> None:
        """Remember nothing: there is one run."""

    @property
    def run(self) -> Run:
        """Describe the one run."""
        return Run.create_empty(run_id=1)

    def create_message(self, *args: Any, **settings: Any) -> Message:
        """Refuse: Flower has given it up."""
        raise CapabilityError("this grid makes no messages; use the constructor of `Message`.")

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Refuse: it would hide lost and late replies."""
        raise CapabilityError("this grid does not wait for replies; push and pull them.")
