"""What Flower's secure aggregation (SecAgg+) does today: the experiment behind decision 50.

    python benchmarks/secure_aggregation.py

Flower's own server workflow and client modifier, `SecAggPlusWorkflow` and `secaggplus_mod`, in one
process, with five clients that send three numbers each. Nothing here is cryptography of ours.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters
    from flwr.common import parameters_to_ndarrays as read
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server import LegacyContext
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from flwr.supercore.task_identity import TaskIdentity

CLIENTS = 5
NUMBERS = {number: np.full(3, float(number)) for number in range(1, CLIENTS + 1)}
STAGES = (Stage.SETUP, Stage.SHARE_KEYS, Stage.COLLECT_MASKED_VECTORS, Stage.UNMASK)


class Proxy:
    """What the workflow knows a client by."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Everybody:
    """A client manager with a fixed number of clients."""

    def num_available(self) -> int:
        """Return how many there are."""
        return CLIENTS


class Capturing(FedAvg):
    """A strategy that asks all clients, and notes what it is given."""

    seen: Any = None

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Send everybody the same."""
        return [(Proxy(number), FitIns(parameters, {})) for number in NUMBERS]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Note the result: every reply holds the mean, and no reply its own numbers."""
        self.seen = [read(result.parameters) for _, result in results]
        return super().aggregate_fit(server_round, results, failures)


class LocalGrid:
    """Carries messages to clients in this process; some are gone from a stage on."""

    def __init__(self, handler: Any, gone: dict[int, str]) -> None:
        self.handler, self.gone = handler, gone
        self.contexts = {n: Context(1, n, {}, RecordDict(), {}) for n in NUMBERS}
        self.wire: dict[int, list[bytes]] = {}

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """Let every client answer, or fail."""
        return [self._answer(carried(message)) for message in messages]

    def _answer(self, message: Message) -> Message:
        number = message.metadata.dst_node_id
        stage = str(message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        leaves = self.gone.get(number)
        if leaves and STAGES.index(stage) >= STAGES.index(leaves):
            return Message(Error(5, "gone"), reply_to=message)
        try:
            reply = secaggplus_mod(message, self.contexts[number], self.handler)
        except Exception as reason:
            return Message(Error(2, f"{type(reason).__name__}: {reason}"), reply_to=message)
        if stage == Stage.COLLECT_MASKED_VECTORS:
            record = reply.content.config_records[RECORD_KEY_CONFIGS]
            self.wire[number] = list(record[Key.MASKED_PARAMETERS])
        return reply


def carried(message: Message) -> Message:
    """Turn a message into bytes and back, as between machines."""
    parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, parts)
    assert isinstance(arrived, Message)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


def legacy_reply(message: Message, _: Context) -> Message:
    """Answer as a client of Flower's old interface does: records called fitres.*."""
    numbers = [NUMBERS[message.metadata.dst_node_id]]
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(numbers), 1, {})
    return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)


def message_reply(message: Message, _: Context) -> Message:
    """Answer as an app on the Message API does: one record of arrays, and one of values."""
    arrays = ArrayRecord({"w": Array(NUMBERS[message.metadata.dst_node_id])})
    content = RecordDict({"arrays": arrays, "header": ConfigRecord({"weight": 1.0})})
    return Message(content, reply_to=message)


def aggregate(handler: Any, gone: dict[int, str] | None = None) -> tuple[str, LocalGrid]:
    """Run the protocol once, and say what the server got."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    grid, strategy = LocalGrid(handler, gone or {}), Capturing()
    context = LegacyContext(
        Context(1, 1, {}, RecordDict(), {}), strategy=strategy, client_manager=Everybody()
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({"current_round": 1})
    start = compat.parameters_to_arrayrecord(ndarrays_to_parameters([np.zeros(3)]), keep_input=True)
    context.state.array_records[MAIN_PARAMS_RECORD] = start
    workflow = SecAggPlusWorkflow(
        num_shares=CLIENTS, reconstruction_threshold=3, max_weight=1.0, timeout=5.0
    )
    workflow(grid, context)
    if strategy.seen is None:
        return "no result: the round is abandoned", grid
    return f"the mean {strategy.seen[0][0]}", grid


def asked_for_both_shares(grid: LocalGrid) -> str:
    """Ask a client for the shares of another's two secrets, which together unmask its upload."""
    context = grid.contexts[1]
    state = context.state.config_records["secaggplus_state"]
    state["current_stage"] = Stage.COLLECT_MASKED_VECTORS
    others = list(NUMBERS)
    asked = {Key.STAGE: Stage.UNMASK, Key.ACTIVE_NODE_ID_LIST: others, Key.DEAD_NODE_ID_LIST: [2]}
    message = Message(RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(asked)}), 1, "train")
    reply = secaggplus_mod(message, context, legacy_reply)
    owners = list(reply.content.config_records[RECORD_KEY_CONFIGS][Key.NODE_ID_LIST])
    return f"shares of client 2 that client 1 gives away: {owners.count(2)} (1 would be safe)"


def main() -> None:
    """Print what happens in each case."""
    truth = np.mean([value[0] for value in NUMBERS.values()])
    print(f"five clients send 1 to 5; their mean is {truth}")
    done, grid = aggregate(legacy_reply)
    hidden = all(NUMBERS[n].tobytes() not in b"".join(parts) for n, parts in grid.wire.items())
    print(f"1. old client interface:                       {done}; uploads hidden: {hidden}")
    print(f"2. an app on the Message API:                  {aggregate(message_reply)[0]}")
    for place, stage in enumerate(STAGES):
        result = aggregate(legacy_reply, {5: stage})[0]
        print(f"{place + 3}. client 5 is gone from stage {stage!r:24}: {result}")
    print(f"7. a server that asks for both shares:         {asked_for_both_shares(grid)}")


if __name__ == "__main__":
    main()
