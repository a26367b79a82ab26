"""Runs: a federation in progress, its rounds, and predictions from its state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from motet._core import tree
from motet._core.half_precision import FULL, Precision
from motet._core.keys import Key
from motet._core.sampling import cohort_size, draw_cohort
from motet._core.studies import Question
from motet._core.text import plural
from motet._engine import evaluating
from motet._engine.backends.backend import Backend
from motet._engine.backends.factory import make_backend
from motet._engine.backends.plan.planning import ExecutionPlan as ExecutionPlan
from motet._engine.divergence import Divergence
from motet._engine.evaluation import Evaluation, Weigh
from motet._engine.faults import NO_FAULTS, Faults
from motet._engine.notebook import run_html
from motet._engine.predictor import Predictor
from motet._engine.preflight import (
    check_choice,
    check_finite,
    check_fits,
    check_method,
    check_settings,
    first_server,
)
from motet._engine.records import write_scores
from motet._engine.round_result import Round as Round
from motet._engine.run_spec import POINTS, Point, RunSpec, down_for
from motet._engine.scorability import check_metrics
from motet._engine.scoring import Scored, with_examples
from motet._engine.settling import settle
from motet._engine.stores.memory import MemoryStore, Store
from motet._engine.views import Inputs, PrivateStates
from motet._engine.weights import Weights, initial_values
from motet.data._federation import Examples, Federation
from motet.data._remarks import remarks
from motet.errors import CapabilityError, RequestError, nearest
from motet.method import AnyMethod, RoundInfo
from motet.metrics import Metric
from motet.privacy import _ledger as ledger
from motet.task import Task

NEW_CLIENT = "(new client)"


@dataclass
class Run:
    """A federation in progress, or finished: the server's state and what clients keep.

    Attributes:
        setting: Method, task, data and seed.
        backend: What trains and serves clients.
        cohort: Clients per round: a fraction or a count.
        server: The server's state.
        rounds_done: Number of rounds so far.
        warnings: What was noticed before the first round.
        notes: What the method recorded in a round, where it recorded anything.
        present: Clients that can be drawn; None means all.
        extras: What else a checkpoint must hold, by owner: an accountant's state, for example.
        divergence: Clients and rounds whose numbers were not finite.

    Shared arguments:
        client: Id of a client.
        clients: Ids of clients; None means all.
        split: "train", "val" or "test".
        point: Where in a round; None: as the method's authors report it (`Method.reported`).
        x: Inputs as in training: an array or a tensor, one row per example.
        y: Targets of the inputs.
        path: The file to write.
        changes: Fields of `setting` and their new values.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedPer(), world.task, world.data, rounds=1, backend="serial")
        >>> run.rounds_done, sorted(run.personal("few"))
        (1, ['body.0.bias', 'body.0.weight', 'head.bias', 'head.weight'])
        >>> 0 <= run.evaluate("test").mean <= 1
        True
    """

    setting: RunSpec
    backend: Backend
    cohort: float | int
    server: Any
    rounds_done: int = 0
    warnings: tuple[str, ...] = ()
    notes: list[dict[str, Any]] = field(default_factory=list)  # a round's, where it had any
    present: tuple[str, ...] | None = None
    extras: dict[str, tree.State] = field(default_factory=dict)
    divergence: Divergence = field(default_factory=Divergence)

    def advance(self) -> Round:
        """Run one round. A server state that would not be finite is not adopted.

        Returns:
            What the round did.
        """
        started, setting = time.perf_counter(), self.setting
        cohort = self._next_cohort()
        info = setting.info(self.rounds_done, cohort)
        down = setting.method.broadcast(self.server, info)
        outcome = self.backend.train(down, info)
        ledger.charge(self.extras, setting.method, cohort)  # also where the round fails: it was run
        (self.server, notes, failed), outcome = settle(setting, self.server, outcome, down, info)
        self.rounds_done += 1
        if notes:
            self.notes.append({"round": self.rounds_done, **notes})
        faults = {n: getattr(outcome, n) for n in ("lost", "rejected", "diverged")}
        self.divergence.add(self.rounds_done, cohort, **faults, failed=failed)
        return Round(
            number=self.rounds_done,
            cohort=cohort,
            server=self.server,
            bytes_down=outcome.bytes_down,
            bytes_up=outcome.bytes_up,
            gradients=outcome.gradients,
            seconds=time.perf_counter() - started,
            notes=notes,
            replied=outcome.replied,
            **faults,
            failed=failed,
            run=self,
        )

    def _next_cohort(self) -> tuple[str, ...]:
        setting = self.setting
        present = tuple(sorted(self.present)) if self.present else setting.everybody
        faults = setting.faults
        if faults.unavailable or faults.late:
            present = faults.available(present, self.rounds_done, setting.key)
        cohort = self.cohort
        if isinstance(cohort, int):
            cohort = min(cohort, len(present))
        return draw_cohort(present, cohort, self.rounds_done, setting.key) if present else ()

    @property
    def reported(self) -> Point:
        """The point at which clients are scored and served, unless another is asked for."""
        return self.setting.method.reported

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What clients are scored by, the deciding one first."""
        return evaluating.metrics_of(self.setting)

    @property
    def clients(self) -> Mapping[str, Any]:
        """What each client keeps, by client."""
        return PrivateStates(self.setting)

    def evaluate(
        self,
        split: str = "test",
        point: Point | None = None,
        clients: list[str] | None = None,
        *,
        examples: bool | int = False,
    ) -> Evaluation:
        """Score clients on their own data: all of them, unless some are named.

        Args:
            split: The examples to score: "train", "val" or "test".
            point: Where in a round; None: as the method's authors report it (`Method.reported`).
            clients: Clients to score; None means all.
            examples: Whether to return predictions and targets of single examples, too; a number
                is that of the runs that share the limit on how many are kept.

        Returns:
            A row per client that has examples in the split, and the means over them.

        Raises:
            RequestError: There is no such client, split or point.
        """
        point = point or self.reported
        keep = evaluating.keeper(self, split, self._wanted(clients), examples)
        found = self._scored(split, point, clients, keep)
        return evaluating.evaluation_of(self, split, point, found)

    def write_scores(
        self,
        path: str | Path,
        split: str = "test",
        point: Point | None = None,
        clients: Sequence[str] | None = None,
    ) -> int:
        """Score clients as `evaluate` does, into a Parquet file; return the number of rows.

        For more clients than fit into memory: rows are in the order in which they were scored.
        """
        point = point or self.reported
        empty = evaluating.unscored(self, split, point)
        rows = evaluating.rows_of(empty, self._scored(split, point, clients))
        return write_scores(Path(path), rows)

    def _wanted(self, clients: Sequence[str] | None) -> Sequence[str]:
        everybody = self.setting.federation.clients
        return everybody if clients is None else [self._known(client) for client in clients]

    def _scored(
        self, split: str, point: Point, clients: Sequence[str] | None, keep: Any = None
    ) -> Iterator[Scored]:
        check_choice("point", point, POINTS)
        check_choice("split", split, ("train", "val", "test"))
        return evaluating.scored(self, split, point, self._wanted(clients), keep)

    def predict(self, client: str, x: Any, point: Point | None = None) -> Tensor:
        """Predict with a client's own predictor.

        Returns:
            Class probabilities or, for a regression, values; one row per example.

        Raises:
            RequestError: There is no such client, or the inputs have another shape than in
                training.
        """
        down, info = self._served((self._known(client),))
        inputs = {client: self._as_input(x)}
        return next(iter(self.backend.predict(down, info, inputs, point or self.reported)))[1]

    def personal(self, client: str, point: Point | None = None) -> Any:
        """Return a client's predictor in the form the method uses: usually tensors by name."""
        down, info = self._served((self._known(client),))
        return tree.clone(self.backend.predictor(down, info, client, point or self.reported))

    def ask(
        self, question: Question, clients: Sequence[str], split: Literal["train", "val"] = "train"
    ) -> dict[str, Tensor]:
        """Ask clients' predictors for something other than predictions: routes, confidences, ...

        Args:
            question: `(personal, x, task)` to a tensor with a row per example, as a method writes
                `predict`.
            clients: Clients to ask; those without examples in the split are left out.
            split: The split whose inputs are `x`.

        Returns:
            The answers by client.
        """
        check_choice("split", split, ("train", "val"))  # test data answer no questions
        federation = self.setting.federation
        asked = with_examples(clients, lambda c: federation.size(c, split))
        down, info = self._served(tuple(asked))
        inputs = Inputs(federation, split, asked)
        asking = self.serving(question=question).backend
        return dict(sorted(asking.predict(down, info, inputs, self.reported)))

    def serving(self, **changes: Any) -> Run:
        """Return a run that serves from the same server state, with other values in `setting`."""
        setting = replace(self.setting, **changes, init_clients={})  # they are stored
        name = "serial" if self.backend.name == "serial" else "auto"
        backend = make_backend(name, setting, len(setting.everybody), measure=False)
        return replace(self, setting=setting, backend=backend)

    def model(self, client: str) -> nn.Module:
        """Return a client's personalized network as a plain `nn.Module` in evaluation mode.

        Raises:
            CapabilityError: The predictor is more than one network, as with kNN-Per; use `predict`.
        """
        return self._module(self.personal(client))

    def adapt(self, x: Any, y: Any) -> Predictor:
        """Serve a client that was never seen before, from its own examples.

        Returns:
            A predictor, made as the method serves new clients.

        Raises:
            RequestError: The inputs have another shape than in training.
        """
        setting, inputs = self.setting, self._as_input(x)
        like = setting.federation.examples(setting.federation.clients[0], "train").y
        labels = torch.as_tensor(np.asarray(y) if not isinstance(y, Tensor) else y).to(like.dtype)
        nothing = Examples(inputs[:0], labels[:0])
        examples = {"train": Examples(inputs, labels), "val": nothing}
        down, info = self._served((NEW_CLIENT,))
        data = setting.data_from(
            examples, NEW_CLIENT, setting.serving_plans("after_adapt"), info.number
        )
        fresh, own = setting.fresh_client(NEW_CLIENT), down_for(down, NEW_CLIENT)
        personal = setting.predictor(own, fresh, data, point="after_adapt", new=True)
        return Predictor(self, tree.clone(personal))

    def __repr__(self) -> str:
        method, data = self.setting.method.name, self.setting.federation
        rounds = plural(self.rounds_done, "round")
        return f"<Run of {method} on {data.name}: {rounds}, {len(data.clients)} clients>"

    def _repr_html_(self) -> str:
        return run_html(self)

    def _served(self, clients: tuple[str, ...]) -> tuple[Any, RoundInfo]:
        info = self.setting.info(self.rounds_done, clients, serving=True)
        return self.setting.method.broadcast(self.server, info), info

    def require(self, client: str) -> None:
        """Raise an error that names similar clients unless there is such a client."""
        self._known(client)

    def _known(self, client: str) -> str:
        known = self.setting.federation.clients
        if client not in known:
            raise RequestError(f'no client is called "{client}"; {nearest(client, known)}.')
        return client

    def _as_input(self, x: Any) -> Tensor:
        federation = self.setting.federation
        like = federation.examples(federation.clients[0], "train").x
        value = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
        if tuple(value.shape[1:]) != tuple(like.shape[1:]):
            raise RequestError(
                f"x must have shape [examples, {', '.join(map(str, like.shape[1:]))}]; got "
                f"{tuple(value.shape)}."
            )
        return value.to(like.dtype)

    def _module(self, personal: Any) -> nn.Module:
        if not self.setting.method.one_network:
            raise CapabilityError(
                f"the predictor of {self.setting.method.name} is more than one network; use "
                "run.predict."
            )
        return self.setting.task.network(personal)


def start(
    method: AnyMethod,
    task: Task,
    data: Federation,
    *,
    rounds: int,
    cohort: float | int = 1.0,
    seed: int = 0,
    backend: str = "auto",
    init: Mapping[str, Any] | Weights | str | Path | None = None,
    init_clients: Mapping[str, Mapping[str, Any]] | None = None,
    store: Store | None = None,
    faults: Faults = NO_FAULTS,
    trial: bool = True,
    plan: ExecutionPlan | None = None,
    metrics: Sequence[Any] | None = None,
    weigh: Weigh = "clients",
    serving_steps: int | None = None,
    uploads: Precision = FULL,
    **options: Any,
) -> Run:
    """Check what can be checked before the first round, and make a run that is ready for it."""
    check_settings(rounds, backend, serving_steps, has_store=store is not None)
    size = cohort_size(cohort, len(data.clients))
    about_data = remarks(data)
    data = method.prepare(data)
    check_fits(task, data)
    scored_by = check_metrics(task, data, metrics, weigh)
    key, given = Key(seed), initial_values(init, task)
    task = task.holding(given.values).seeing(data.examples(data.clients[0], "train").x)
    found = (*check_method(method, task, data.clients), *ledger.check(method, task), *about_data)
    initial = task.merge(task.init(key.fold("init")), given.values)
    check_finite("the initial model", initial)
    setting = RunSpec(
        method,
        task,
        data,
        key,
        rounds,
        initial,
        init=given.values,
        init_clients=init_clients or {},
        store=MemoryStore() if store is None else store,
        faults=faults,
        metrics=scored_by,
        weigh=weigh,
        serving_steps=serving_steps,
        uploads=uploads,
    )
    server = first_server(setting)
    check_finite(f"the first server state of {method.name}", server)
    tried = server if trial and rounds else None
    chosen = make_backend(backend, setting, size, server=tried, plan=plan, **options)
    # The backend's setting: it may keep private states elsewhere.
    return Run(
        chosen.setting, chosen, cohort, tree.clone(server), warnings=(*found, *given.remarks)
    )
