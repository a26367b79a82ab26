"""A cohort in chunks: clients stacked on a leading axis under `vmap`, chunks side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.func import vmap

from motet import tree
from motet.admission import receive
from motet.backends.backend import Outcome, combine, naming
from motet.backends.stacking import stack_padded, stack_ragged
from motet.errors import CapabilityError
from motet.fitting import STACKED_MODE, Mode
from motet.method import PerClient, RoundInfo
from motet.plans import Plan
from motet.setting import Point, Setting, down_for
from motet.task import Task

T = TypeVar("T")
CHUNK_BYTES = 64 * 2**20  # of parameters stacked at once: more falls out of the cache
LARGEST_CHUNK = 16


@dataclass(frozen=True)
class Vectorized:
    """Runs stacks of clients; results agree with `Serial` to rounding.

    Attributes:
        chunk_size: Clients per stack; chosen from the size of the model if None.
        workers: Threads that work on chunks; never changes a bit of the result.
        mode: How a stack is trained: "stack" steps all clients at once, "loop" one after another
            inside the
            chunk; chosen from the kind of the model if None.
    """

    setting: Setting
    chunk_size: int | None = None
    workers: int | None = None
    mode: Mode | None = None
    name: ClassVar[str] = "vectorized"

    def __post_init__(self) -> None:
        if not self.setting.method.vectorizable:
            raise CapabilityError(
                f"{self.setting.method.name} decides by the value of a tensor, so it cannot be "
                "stacked over "
                'clients; use backend="serial".'
            )

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort chunk by chunk and merge the chunks in order."""
        chunks = self._chunks(sorted(info.cohort), self.setting.method.plans())
        parts = self._in_threads(lambda chunk: self._train_chunk(down, chunk, info), chunks)
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

    def _train_chunk(self, down: Any, chunk: list[str], info: RoundInfo) -> Outcome:
        setting, method = self.setting, self.setting.method
        data = [setting.data(c, method.plans(), info.number) for c in chunk]
        kept = tree.stack([setting.client(c) for c in chunk])
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any) -> Any:
            return method.client_update(down, client, data, setting.task)

        with naming(chunk, info), _mode(self.mode or default_mode(setting.task)):
            many = vmap(one, in_dims=(down_dim, 0, 0))
            uploads, kept = many(stacked_down, kept, stack_padded(data))
        for i, client in enumerate(chunk):
            setting.store.put(client, tree.tree_map(lambda leaf, i=i: leaf[i], kept))
        weights = torch.tensor([setting.weight(c) for c in chunk])
        received = receive(method.reduce, chunk, uploads, weights)
        return Outcome(
            partial=received.partial,
            replied=received.replied,
            rejected=received.rejected,
            bytes_down=sum(tree.count_bytes(down_for(down, c)) for c in chunk),
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
        kept = tree.stack([setting.client(c) for c in chunk])
        stacked_down, down_dim = _stack_down(down, chunk)

        def one(down: Any, client: Any, data: Any, _: Tensor) -> Any:
            return setting.predictor(down, client, data, point=point, new=new)

        with naming(chunk, info), _mode(self.mode or default_mode(setting.task)):
            # The last argument gives vmap its size when nothing else is per client.
            many = vmap(one, in_dims=(down_dim, 0, 0, 0))
            return many(stacked_down, kept, stack_padded(data), torch.zeros(len(chunk)))

    def _predict_chunk(
        self, personals: Any, inputs: list[tuple[str, Tensor]]
    ) -> list[tuple[str, Tensor]]:
        method, task = self.setting.method, self.setting.task
        stacked = stack_ragged([x for _, x in inputs])
        predicted = vmap(lambda personal, x: method.predict(personal, x, task))(personals, stacked)
        return [(client, predicted[i, : len(x)]) for i, (client, x) in enumerate(inputs)]

    def _chunks(self, clients: Sequence[str], plans: Mapping[str, Plan]) -> list[list[str]]:
        """Put clients of similar size together, whatever the order they are listed in."""
        federation = self.setting.federation
        widths = {c: self._width(c, plans) for c in clients}
        ordered = sorted(clients, key=lambda c: (widths[c], federation.size(c, "train"), c))
        size = self.chunk_size or default_chunk(self.setting.task)
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

    def _in_threads(self, work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        # One torch thread per chunk even with one worker: splitting a sum over threads would change
        # its rounding.
        workers = self.workers or min(os.cpu_count() or 1, max(len(items), 1))
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(lambda item: copy_context().run(work, item), items))


def default_chunk(task: Task) -> int:
    """Choose how many clients to stack: as many as stay near the cache."""
    size = tree.count_bytes(dict(task.skeleton.named_parameters()))
    return int(max(1, min(LARGEST_CHUNK, CHUNK_BYTES // max(4 * size, 1))))


def default_mode(task: Task) -> Mode:
    """Train in turn where there are convolutions: stacked ones are slower on a CPU."""
    convolutions = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return "loop" if any(isinstance(m, convolutions) for m in task.skeleton.modules()) else "stack"


def _stack_down(down: Any, chunk: Sequence[str]) -> tuple[Any, int | None]:
    if isinstance(down, PerClient):
        return tree.stack([down[c] for c in chunk]), 0
    return down, None


@contextmanager
def _mode(mode: Mode) -> Iterator[None]:
    token = STACKED_MODE.set(mode)
    try:
        yield
    finally:
        STACKED_MODE.reset(token)
