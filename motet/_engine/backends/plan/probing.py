"""The trial before the first round: a few examples, a step or two, nothing kept.

What no backend can run is refused here, in the same words on every backend. What works for one
client but not in a stack, or not with channels last, gets a plan that suits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from motet._core import tree
from motet._engine.backends.client_work import predict_alone, train_alone
from motet._engine.backends.plan import agreement
from motet._engine.backends.plan.layouts import why_not_channels_last
from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.backends.vectorized import Vectorized
from motet._engine.faults import NO_FAULTS
from motet._engine.run_spec import RunSpec
from motet._engine.stores.memory import MemoryStore
from motet._training.batching import Plan
from motet._training.execution import executing
from motet.data._federation import Examples
from motet.errors import CaptureError, MotetError, WorkError, what_happened
from motet.method import ClientData, RoundInfo

ENOUGH = 5  # examples of an ordinary client
FEWER = 3  # of a smaller one
AMPLIFIED = 0.03  # share of a number by which two correct executions may differ
BATCH = 4  # so that one takes two steps and the other a narrower one

Clients = Sequence[str]
Trained = Mapping[str, tuple[Any, Any]]  # by client: what it sends, and what it keeps
Served = Mapping[str, Tensor]  # by client: its predictions
Results = dict[str, Trained | Served]  # by what was done


@dataclass(frozen=True)
class Few(RunSpec):
    """A setting in which some clients take part with their first examples, for a step or two.

    Attributes:
        few: How many examples each of them has.
    """

    few: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, setting: RunSpec) -> Few:
        """Choose clients, and keep nothing of what they do."""
        same = {part.name: getattr(setting, part.name) for part in fields(RunSpec)}
        same |= {"store": MemoryStore(), "init_clients": {}, "faults": NO_FAULTS}
        return cls(**same, few=_chosen(setting))

    def data(self, client: str, plans: Mapping[str, Plan], number: int) -> ClientData:
        """Draw batches from a client's first examples."""
        splits: set[str] = {plan.split for plan in plans.values()}
        examples = {split: self.examples(client, split) for split in splits}
        short = {name: _short(plan) for name, plan in plans.items()}
        return self.data_from(examples, client, short, number)

    def examples(self, client: str, split: str) -> Examples:
        """Take a client's first examples."""
        x, y = self.federation.lent_examples(client, split)
        return Examples(x[: self.few[client]], y[: self.few[client]])


class Way(Protocol):
    """A way to do the work of some clients."""

    def train(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Trained:
        """Return what each client sends, and what it keeps."""
        ...

    def serve(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Served:
        """Return each client's predictions on its own examples."""
        ...


class Alone:
    """Clients by themselves, as the method is written."""

    def train(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Trained:
        """Train one client after another."""
        return {
            client: train_alone(setting, down, info, client, setting.work(client, info.number))
            for client in clients
        }

    def serve(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Served:
        """Serve one client after another."""
        return {
            client: predict_alone(setting, down, info, client, x, "after_adapt")
            for client, x in _inputs(setting, clients).items()
        }


@dataclass(frozen=True)
class Stacked:
    """Clients in one stack."""

    plan: ExecutionPlan

    def train(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Trained:
        """Train the stack."""
        data = [setting.work(client, info.number) for client in clients]
        done = Vectorized(setting, self.plan).train_stacked(down, info, clients, data)
        return {client: tree.row(done, place) for place, client in enumerate(clients)}

    def serve(self, setting: Few, down: Any, info: RoundInfo, clients: Clients) -> Served:
        """Serve the stack."""
        inputs = _inputs(setting, clients)
        backend = Vectorized(setting, self.plan)
        return dict(backend.serve_stacked(down, info, inputs, "after_adapt", new=True))


@dataclass(frozen=True)
class Trial:
    """The first round of some clients, and how they are served without it."""

    setting: Few
    server: Any

    @classmethod
    def of(cls, setting: RunSpec, server: Any) -> Trial:
        """Prepare a trial; `server` is the state before the first round."""
        return cls(Few.of(setting), server)

    def check_work(self) -> None:
        """Refuse work that fails as the method is written: it would fail on every backend."""
        _ = self._plain

    def why_not(self, plan: ExecutionPlan) -> str:
        """Say in one line why a plan does not work, or changes results; nothing if it works."""
        if plan.mode == "loop" and plan.channels_last:
            # Never tried out: it would not fail here, but end the process later.
            why = why_not_channels_last(self.setting.task)
            if why:
                return why
        plan = replace(plan, traced=False)
        execution = plan.execution(self.setting)
        differs = agreement.why_not(self.setting.task, self._cases, execution, plan.device)
        if differs:
            return differs
        way = Stacked(plan) if plan.mode == "stack" else Alone()
        clients = _stackable(self.setting) if plan.mode == "stack" else list(self.setting.few)[:1]
        try:
            with executing(execution):
                got = self._results(way, clients)
        except WorkError as failure:
            return what_happened(failure.__cause__ or failure)
        # Who takes turns shares nothing with others; a stack may mix them, or see its padding.
        mixed = (
            what
            for what, per_client in (got.items() if plan.mode == "stack" else ())
            for client, result in per_client.items()
            if not self._agree(result, self._plain[what][client])
        )
        return next((f"{what} gives other results than one client by itself" for what in mixed), "")

    def _agree(self, a: Any, b: Any) -> bool:
        """Compare two trees, to half the digits that their numbers have."""
        # A network that normalises batches may amplify rounding by orders of magnitude.
        least = AMPLIFIED if self.setting.task.has_batch_statistics else 0.0
        pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
        return all(_close(x, y, least) for x, y in pairs)

    @cached_property
    def _cases(self) -> list[agreement.Case]:
        setting = self.setting
        several = [client for client, shown in setting.few.items() if shown > 1]
        shown = [setting.examples(client, "train") for client in several or setting.few]
        return agreement.cases(setting.task, setting.initial, shown[:2])

    @cached_property
    def _plain(self) -> Results:
        return self._results(Alone(), list(self.setting.few))

    def _results(self, way: Way, clients: Clients) -> Results:
        setting, results, method = self.setting, Results(), self.setting.method
        # Everybody is in the cohort, whoever works: what is sent down may depend on it.
        info = setting.info(0, tuple(sorted(setting.few)))
        asked = info._replace(serving=True)
        with torch.random.fork_rng(devices=[]):  # torch's own generator stays as it was
            with self._refusing("training") as doing:
                down = method.broadcast(self.server, info)
                results[doing] = way.train(setting, down, info, clients)
            with self._refusing("serving") as doing:
                served = method.broadcast(self.server, asked)
                results[doing] = way.serve(setting, served, asked, clients)
        return results

    @contextmanager
    def _refusing(self, doing: str) -> Iterator[str]:
        try:
            yield doing
        except CaptureError:  # a fault of the method, whatever the network and the data
            raise
        except MotetError as error:  # it says itself what to do
            raise WorkError(str(error)) from error
        except Exception as error:
            raise WorkError(
                f"{self.setting.method.name} does not work with this network and these data: "
                f"{doing} fails on every backend ({what_happened(error)}). Change the network, or "
                "choose another method."
            ) from error


def _chosen(setting: RunSpec) -> dict[str, int]:
    """Choose clients that differ in size, and say how many examples each shows.

    An ordinary one; a smaller one, whose batches are padded beside it; and one with a single
    example, a case of its own. All are among the smallest: large ones take time to read.
    """
    federation, sizes = setting.federation, setting.federation.rows.sizes[:, 0]
    most = int(sizes.max(initial=0))
    ordinary = int(np.where(sizes >= ENOUGH, sizes, most + ENOUGH - sizes).argmin())
    shown = {ordinary: ENOUGH}
    others = np.where((sizes > 1) & (np.arange(len(sizes)) != ordinary), sizes, most + 1)
    if others.min(initial=most + 1) <= most:
        # Where a batch is normalised, only batches of one width are stacked.
        shown[int(others.argmin())] = ENOUGH if setting.task.has_batch_statistics else FEWER
    if (sizes == 1).any():
        shown.setdefault(int((sizes == 1).argmax()), 1)
    return {federation.clients[p]: min(int(sizes[p]), limit) for p, limit in shown.items()}


def _stackable(setting: Few) -> list[str]:
    """Say who can be in one stack."""
    ordinary, *others = setting.few
    alike = not setting.task.has_batch_statistics
    return [ordinary, *(c for c in others if alike or setting.few[c] == setting.few[ordinary])]


def _short(plan: Plan) -> Plan:
    """Walk the data once, or for two steps, in small batches."""
    return replace(
        plan,
        epochs=None if plan.epochs is None else min(plan.epochs, 1),
        steps=None if plan.steps is None else min(plan.steps, 2),
        batch_size=None if plan.batch_size is None else min(plan.batch_size, BATCH),
    )


def _inputs(setting: Few, clients: Clients) -> dict[str, Tensor]:
    return {client: setting.examples(client, "train").x for client in clients}


def _close(a: Tensor, b: Tensor, least: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    tolerance = max(least, torch.finfo(a.dtype).eps ** 0.5)
    scale = 1 + float(b.double().abs().nan_to_num().max()) if b.numel() else 1.0
    return torch.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True)
