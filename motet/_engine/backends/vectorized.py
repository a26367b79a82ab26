"""The vectorized backend: chunks of clients in threads, stacked under `vmap` or one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from motet._engine.backends.backend import Outcome, combine, naming
from motet._engine.backends.client_work import (
    deliver,
    predict_alone,
    predictor_alone,
    stack_rows,
    train_clients,
    train_in_turn,
)
from motet._engine.backends.freed_memory import keep_freed_memory
from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.backends.stacking import stack_padded, stack_ragged
from motet._engine.run_spec import Point, RunSpec
from motet._training.batching import Plan
from motet._training.devices import run_on
from motet._training.execution import Execution, executing
from motet.errors import CapabilityError, what_happened
from motet.method import ClientData, PerClient, RoundInfo

T = TypeVar("T")
log = logging.getLogger("motet")


@dataclass(frozen=True)
class Vectorized:
    """Runs chunks of clients as the plan says; results agree with `Serial` to rounding.

    A chunk that cannot be stacked after all is taken client by client: what `Serial` can run never
    fails here.
    """

    setting: RunSpec
    plan: ExecutionPlan
    name: ClassVar[str] = "vectorized"

    def __post_init__(self) -> None:
        if not self.setting.method.vectorizable:
            raise CapabilityError(
                f"{self.setting.method.name} decides by the value of a tensor, so it cannot be "
                'stacked over clients; use backend="serial".'
            )

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort chunk by chunk and merge the chunks in order."""
        # The largest first: threads that begin with them end at about the same time.
        chunks = self._chunks(sorted(info.cohort), self.setting.method.plans())[::-1]
        parts = self._in_threads(lambda chunk: self.train_chunk(down, chunk, info), chunks)
        with _one_torch_thread():
            return combine(self.setting.method.reduce, parts)

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Serve clients chunk by chunk; those that never trained are stacked apart."""
        plans = self.setting.serving_plans(point)
        chunks = [
            (chunk, new)
            for new in (False, True)
            for chunk in self._chunks(
                [c for c in sorted(inputs) if (c not in self.setting.store) == new], plans
            )
        ]

        def serve(chunk: tuple[list[str], bool]) -> list[tuple[str, Tensor]]:
            own = {client: inputs[client] for client in chunk[0]}
            return self._served(down, info, own, point, new=chunk[1])

        for served in self._in_threads(serve, chunks):
            yield from served

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Make one client's predictor."""
        with executing(replace(self._execution, mode="loop")):
            return predictor_alone(self.setting, down, info, client, point, self.plan.device)

    def train_chunk(self, down: Any, chunk: list[str], info: RoundInfo) -> Outcome:
        """Run one chunk of clients, keep what stays with them, and combine what they send."""
        trained = partial(self._trained, down, info, chunk)
        work = train_clients(self.setting, down, info, chunk, trained)
        return deliver(self.setting, down, info, chunk, work)

    def _trained(
        self, down: Any, info: RoundInfo, chunk: list[str], data: Sequence[ClientData]
    ) -> tuple[Any, Any]:
        """Do the work of a chunk: stacks of what is sent and of what is kept."""

        def in_turn() -> tuple[Any, Any]:
            return train_in_turn(self.setting, down, info, chunk, data, self.plan.device)

        return self._carried_out(lambda: self.train_stacked(down, info, chunk, data), in_turn)

    def _served(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point, *, new: bool
    ) -> list[tuple[str, Tensor]]:
        """Let the clients of a chunk predict."""

        def in_turn() -> list[tuple[str, Tensor]]:
            place = self.plan.device
            return [
                (client, predict_alone(self.setting, down, info, client, x, point, place))
                for client, x in inputs.items()
            ]

        return self._carried_out(
            lambda: self.serve_stacked(down, info, inputs, point, new=new), in_turn
        )

    def _carried_out(self, stacked: Callable[[], T], in_turn: Callable[[], T]) -> T:
        """Work as planned; if that fails, as `Serial` does, before giving up.

        Both ways are pure, so that work which failed half-way has changed nothing.
        """
        planned = stacked if self.plan.mode == "stack" else in_turn
        try:
            with executing(self._execution):
                return planned()
        except Exception as reason:
            failure = reason
        done = in_turn()  # raises, with one client's name, if the work itself is what fails
        if not self.failures:
            self.failures.append(failure)
            log.warning(
                "part of the work fails as planned (%s), so it is done client by client, at its "
                "own speed",
                what_happened(failure),
            )
        return done

    def train_stacked(
        self, down: Any, info: RoundInfo, chunk: Sequence[str], data: Sequence[ClientData]
    ) -> tuple[Any, Any]:
        """Do the local work of a stack of clients: stacks of what is sent and of what is kept."""
        setting = self.setting
        kept = setting.client_rows(chunk)
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any) -> Any:
            return setting.method.client_update(down, client, data, setting.task)

        with naming(chunk, info):
            many = vmap(one, in_dims=(down_dim, 0, 0))
            done: tuple[Any, Any] = self._there(many, stacked_down, kept, stack_padded(data))
        return done

    def serve_stacked(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point, *, new: bool
    ) -> list[tuple[str, Tensor]]:
        """Make the predictors of a stack of clients, and let them answer."""
        chunk, setting = list(inputs), self.setting
        data = [setting.data(c, setting.serving_plans(point), info.number) for c in chunk]
        with naming(chunk, info):
            personals = self._predictors(down, chunk, data, point, new=new)
            stacked = stack_ragged([inputs[c] for c in chunk])
            predicted = self._there(vmap(setting.answer), personals, stacked)
        return [(c, predicted[i, : len(inputs[c])]) for i, c in enumerate(chunk)]

    def _predictors(
        self,
        down: Any,
        chunk: Sequence[str],
        data: Sequence[ClientData],
        point: Point,
        *,
        new: bool,
    ) -> Any:
        setting = self.setting
        kept = setting.client_rows(chunk)
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any, _: Tensor) -> Any:
            return setting.predictor(down, client, data, point=point, new=new)

        # The last argument gives vmap its size when nothing else is per client.
        many = vmap(one, in_dims=(down_dim, 0, 0, 0))
        return self._there(many, stacked_down, kept, stack_padded(data), torch.zeros(len(chunk)))

    @cached_property
    def _execution(self) -> Execution:
        return self.plan.execution(self.setting)

    @cached_property
    def failures(self) -> list[Exception]:
        """What has failed as planned; said once."""
        return []

    def _there(self, work: Callable[..., Any], *values: Any) -> Any:
        return run_on(self.plan.device, work, *values)

    def _chunks(self, clients: Sequence[str], plans: Mapping[str, Plan]) -> list[list[str]]:
        """Put clients of similar size together, whatever the order they are listed in."""
        federation = self.setting.federation
        widths = {c: self._width(c, plans) for c in clients}
        ordered = sorted(clients, key=lambda c: (widths[c], federation.size(c, "train"), c))
        size = self.plan.chunk_size
        groups: list[list[str]] = []
        for client in ordered:
            fits = groups and len(groups[-1]) < size and widths[groups[-1][0]] == widths[client]
            groups[-1].append(client) if fits else groups.append([client])
        return groups

    def _width(self, client: str, plans: Mapping[str, Plan]) -> tuple[int, ...]:
        """Rows per batch, where they matter: batch statistics see every row, padding too."""
        if not self.setting.task.has_batch_statistics:
            return ()
        size = self.setting.federation.size
        return tuple(plan.width(size(client, plan.split)) for plan in plans.values())

    def _in_threads(self, work: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        waiting = [self._threads.submit(_isolated, work, item) for item in items][::-1]
        try:
            while waiting:
                yield waiting.pop().result()
        finally:  # an error, or a caller that stops early, leaves no thread at work
            for future in waiting:
                future.cancel()
            wait(waiting)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Threads for the life of the backend: a new one would begin with cold memory.

        As many torch threads in each as the plan says, even with one worker: splitting a sum over
        threads changes its rounding.
        """
        keep_freed_memory()
        each = (self.plan.torch_threads,)
        return ThreadPoolExecutor(
            self.plan.workers, initializer=torch.set_num_threads, initargs=each
        )


def _isolated(work: Callable[[Any], T], item: Any) -> T:
    """Work in a context of its own: threads serve many chunks."""
    return copy_context().run(work, item)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let this thread compute alone: helpers would go on spinning, and take the workers' cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _stack_down(down: Any, chunk: Sequence[str]) -> tuple[Any, int | None]:
    if isinstance(down, PerClient):
        return stack_rows([down[c] for c in chunk]), 0
    return down, None
