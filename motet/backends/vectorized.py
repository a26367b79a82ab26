"""A cohort in chunks: clients stacked on a leading axis under `vmap`, chunks side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from motet import tree
from motet.admission import receive
from motet.backends.backend import Outcome, combine, naming
from motet.backends.stacking import stack_padded, stack_ragged
from motet.errors import CapabilityError
from motet.execution.choice import executing
from motet.execution.devices import run_on
from motet.execution.planning import ExecutionPlan
from motet.method import PerClient, RoundInfo
from motet.plans import Plan
from motet.setting import Point, Setting, down_for

T = TypeVar("T")


@dataclass(frozen=True)
class Vectorized:
    """Runs stacks of clients, as the plan says; results agree with `Serial` to rounding."""

    setting: Setting
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
            personals = self._predictors(down, info, chunk[0], point, new=chunk[1])
            return self._predict_chunk(personals, [(c, inputs[c]) for c in chunk[0]])

        for served in self._in_threads(serve, chunks):
            yield from served

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Make one client's predictor: a stack of one."""
        new = client not in self.setting.store
        return tree.row(self._predictors(down, info, [client], point, new=new), 0)

    def train_chunk(self, down: Any, chunk: list[str], info: RoundInfo) -> Outcome:
        """Run one stack of clients, keep what stays with them, and combine what they send."""
        setting, method = self.setting, self.setting.method
        data = [setting.work(c, info.number) for c in chunk]
        kept = setting.store.rows(chunk, setting.fresh_client)
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any) -> Any:
            return method.client_update(down, client, data, setting.task)

        with naming(chunk, info), executing(self.plan.execution(setting)):
            many = vmap(one, in_dims=(down_dim, 0, 0))
            uploads, kept = self._there(many, stacked_down, kept, stack_padded(data))
        setting.store.put_rows(chunk, kept)
        received = receive(setting, info, down, chunk, uploads)
        return Outcome(
            partial=received.partial,
            replied=received.replied,
            lost=received.lost,
            rejected=received.rejected,
            bytes_down=_bytes_for(down, chunk),
            bytes_up=tree.count_bytes(uploads),
            gradients=sum(
                method.gradient_evaluations(down_for(down, c), d)
                for c, d in zip(chunk, data, strict=True)
            ),
        )

    def _predictors(
        self, down: Any, info: RoundInfo, chunk: Sequence[str], point: Point, *, new: bool
    ) -> Any:
        setting = self.setting
        data = [setting.data(c, setting.serving_plans(point), info.number) for c in chunk]
        kept = setting.store.rows(chunk, setting.fresh_client)
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any, _: Tensor) -> Any:
            return setting.predictor(down, client, data, point=point, new=new)

        with naming(chunk, info), executing(self.plan.execution(setting)):
            # The last argument gives vmap its size when nothing else is per client.
            many = vmap(one, in_dims=(down_dim, 0, 0, 0))
            counted = torch.zeros(len(chunk))
            return self._there(many, stacked_down, kept, stack_padded(data), counted)

    def _predict_chunk(
        self, personals: Any, inputs: list[tuple[str, Tensor]]
    ) -> list[tuple[str, Tensor]]:
        stacked = stack_ragged([x for _, x in inputs])
        predicted = self._there(vmap(self.setting.answer), personals, stacked)
        return [(client, predicted[i, : len(x)]) for i, (client, x) in enumerate(inputs)]

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
        return self._threads.map(lambda item: copy_context().run(work, item), items)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Threads for the life of the backend: a new one would begin with cold memory.

        One torch thread in each, even with one worker: splitting a sum over threads would change
        its rounding.
        """
        return ThreadPoolExecutor(
            self.plan.workers, initializer=torch.set_num_threads, initargs=(1,)
        )


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let this thread compute alone: helpers would go on spinning, and take the workers' cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bytes_for(down: Any, chunk: Sequence[str]) -> int:
    if isinstance(down, PerClient):
        return sum(tree.count_bytes(down[c]) for c in chunk)
    return len(chunk) * tree.count_bytes(down)


def _stack_down(down: Any, chunk: Sequence[str]) -> tuple[Any, int | None]:
    if isinstance(down, PerClient):
        if len(chunk) == 1:
            return tree.tree_map(lambda leaf: leaf[None], down[chunk[0]]), 0  # no copy
        return tree.stack([down[c] for c in chunk]), 0
    return down, None
