"""The specification of a run: method, task, data and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from motet._core import tree
from motet._core.half_precision import FULL, Precision, check_precision
from motet._core.keys import Key
from motet._core.points import POINTS as POINTS
from motet._core.points import Point as Point
from motet._core.studies import Question
from motet._core.tree import State
from motet._engine.faults import NO_FAULTS, Faults
from motet._engine.stores.memory import MemoryStore, Store
from motet._training.batching import Plan, batches, draw
from motet.data._augment import augmented
from motet.data._federation import Examples, Federation
from motet.data._numbered import in_order
from motet.errors import RequestError, StructureError, nearest
from motet.method import AnyMethod, ClientData, PerClient, RoundInfo
from motet.metrics import Metric
from motet.privacy._ledger import training_plans
from motet.task import Task, as_leaf


@dataclass(frozen=True)
class RunSpec:
    """Everything a backend needs to run a client, and nothing about how.

    Attributes:
        initial: The model everybody starts from: the same for every method with this seed.
        init: Values by name that the caller chose for it; they also go into what clients keep.
        init_clients: Private values by client, then by name; they win over `init`.
        store: What clients keep.
        faults: What goes wrong on the way.
        question: What predictors are asked; None: for their predictions.
        metrics: What clients are scored by, the deciding one first; (): that of the kind of task.
        weigh: What counts equally in means over clients.
        serving_steps: Gradient steps that every method may take when it serves a client; None: as
            many as the method itself says.
        uploads: The precision in which uploads are sent.
    """

    method: AnyMethod
    task: Task
    federation: Federation
    key: Key
    rounds: int
    initial: State
    init: Mapping[str, Any] = field(default_factory=dict)
    init_clients: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store: Store = field(default_factory=MemoryStore)
    faults: Faults = NO_FAULTS
    question: Question | None = None
    metrics: tuple[Metric, ...] = ()
    weigh: Literal["clients", "examples"] = "clients"
    serving_steps: int | None = None
    uploads: Precision = FULL

    def __post_init__(self) -> None:
        check_precision(self.uploads)
        self._check_clients("init_clients=", self.init_clients)
        if isinstance(self.faults.corrupt, tuple):
            self._check_clients("faults.corrupt", self.faults.corrupt)
        self.store.expect(lambda: self.fresh_client(self.federation.clients[0]))
        for client in self.init_clients:
            self.store.put(client, self.fresh_client(client))

    def _check_clients(self, what: str, named: Iterable[str]) -> None:
        known = self.federation.clients
        unknown = [client for client in sorted(named) if client not in known]
        if unknown:
            raise RequestError(
                f'{what} names "{unknown[0]}", which is not a client; {nearest(unknown[0], known)}.'
            )

    def fresh_client(self, client: str) -> Any:
        """Make what a client keeps at first contact."""
        fresh = self.method.init_client(self.task, self.initial, self.key.fold("client", client))
        named = {tree.readable(path): leaf for path, leaf in tree.flatten(fresh)}
        own = self.init_clients.get(client, {})
        unknown = sorted(own.keys() - named.keys())
        if unknown:
            raise StructureError(
                f'init_clients["{client}"] names {unknown[:4]}, which a client of '
                f"{self.method.name} does not keep; it keeps {sorted(named)[:6]}."
            )
        given = {k: v for k, v in self.init.items() if k in named} | dict(own)
        leaves = {k: as_leaf(k, given[k], v) if k in given else v for k, v in named.items()}
        paths = (path for path, _ in tree.flatten(fresh))
        return tree.unflatten(fresh, dict(zip(paths, leaves.values(), strict=True)))

    def client(self, client: str) -> Any:
        """Return what a client keeps now."""
        try:
            return self.store.get(client)
        except KeyError:
            return self.fresh_client(client)

    def client_rows(self, clients: Sequence[str]) -> Any:
        """Return what several clients keep now, as one stack."""
        return self.store.rows(clients, self.fresh_client)

    @cached_property
    def everybody(self) -> Sequence[str]:
        """All clients in the order of their ids; sorted once, there may be a million."""
        return in_order(self.federation.clients)

    @cached_property
    def training_plans(self) -> Mapping[str, Plan]:
        """The phases of local training, in the sampling that a guarantee needs."""
        return training_plans(self.method)

    def info(self, number: int, cohort: tuple[str, ...], *, serving: bool = False) -> RoundInfo:
        """Say what the server knows about a round."""
        key = self.key.fold("server", number)
        return RoundInfo(number, self.rounds, cohort, self.everybody, key, serving)

    def data(self, client: str, plans: Mapping[str, Plan], number: int) -> ClientData:
        """Draw a client's batches for the phases of one round."""
        splits: set[str] = {plan.split for plan in plans.values()}
        examples = {split: self.federation.lent_examples(client, split) for split in splits}
        return self.data_from(examples, client, plans, number)

    def work(self, client: str, number: int) -> ClientData:
        """Draw batches for the local training of one round."""
        data = self.data(client, self.training_plans, number)
        return self.faults.slowed(data, client, number, self.key)

    def data_from(
        self, examples: Mapping[str, Examples], client: str, plans: Mapping[str, Plan], number: int
    ) -> ClientData:
        """Draw batches from examples at hand: also for a client outside the federation."""
        key, parts = self.key.fold("batches", number, client), self.key.fold("client", client)
        rate = self.method.schedule(number, self.rounds)
        varied: dict[str, Tensor] = {}  # by stream: phases that share one see the same images

        def inputs(name: str, plan: Plan, x: Tensor) -> Tensor:
            federation = self.federation
            if not (federation.augment and plan.split == "train" and len(x) and self._varies(name)):
                return x
            if plan.stream not in varied:
                own = key.fold("augment", plan.stream)
                varied[plan.stream] = augmented(x, federation.augment, own, federation.normalize)
            return varied[plan.stream]

        def phase(name: str, plan: Plan) -> Any:
            x, y = examples[plan.split]
            order = draw(plan, len(y), key, parts)
            return batches(inputs(name, plan, x), y, order, rate if plan.scheduled else 1.0)

        return {name: phase(name, plan) for name, plan in plans.items()}

    def _varies(self, phase: str) -> bool:
        """Tell whether a phase takes gradients, on images that may be augmented."""
        return phase in self.training_plans or phase in self.method.tuned_phases

    def answer(self, personal: Any, x: Tensor) -> Tensor:
        """Let one client's predictor answer: pure, so that a backend may stack it."""
        asked = self.question or self.method.predict
        return asked(personal, x, self.task)

    def weight(self, client: str) -> float:
        """Say how much a client counts in the mean."""
        weights, size = self.method.reduce.weights, self.federation.size(client, "train")
        if weights == "uniform":
            return 1.0
        if self.method.weighed_phase is not None:
            size = self.method.plans()[self.method.weighed_phase].examples(size)
        per_batch = self.method.batch_size or size
        return float(size if weights == "examples" else -(-size // per_batch))

    def serving_plans(self, point: Point) -> Mapping[str, Plan]:
        """Name the phases that make a predictor at this point."""
        if point == "after_adapt":
            plans = self._within_budget(self.method.adapt_plans())
            return {name: replace(plan, scheduled=False) for name, plan in plans.items()}
        if point == "after_local":
            return self.training_plans
        return {name: self.training_plans[name] for name in self.method.arrival_phases}

    def _within_budget(self, plans: Mapping[str, Plan]) -> Mapping[str, Plan]:
        """Divide the budget of serving among the phases that spend it, the first ones first."""
        tuned = self.method.tuned_phases
        if self.serving_steps is None or not tuned:
            return plans
        each, more = divmod(self.serving_steps, len(tuned))
        steps = {name: each + (place < more) for place, name in enumerate(tuned)}
        return {
            name: replace(plan, epochs=None, steps=steps[name]) if name in steps else plan
            for name, plan in plans.items()
        }

    def predictor(
        self, down: Any, client: Any, data: ClientData, *, point: Point, new: bool
    ) -> Any:
        """Make one client's predictor: pure, so that a backend may stack it."""
        method, task = self.method, self.task
        if point == "after_broadcast":
            return method.after_broadcast(down, method.arrive(down, client, data, task), task)
        if point == "after_local":
            up, trained = method.client_update(down, client, data, task)
            return method.after_local(down, up, trained, task)
        kept = method.adapt(down, client, data, task) if new else client
        return method.personalize(down, kept, data, task)


def down_for(down: Any, client: str) -> Any:
    """Pick a client's own broadcast."""
    return down[client] if isinstance(down, PerClient) else down
