"""The round loop. It knows nothing about processes, machines or algorithms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from motet import tree
from motet.backends.backend import Backend
from motet.backends.choosing import make_backend
from motet.checks import check_fits
from motet.data.federation import Examples, Federation
from motet.errors import CapabilityError, RequestError, StateError, nearest
from motet.evaluate import Evaluation, Score, metric_of, scores, with_examples
from motet.faults import NO_FAULTS, Faults
from motet.keys import Key
from motet.method import AnyMethod, RoundInfo
from motet.privacy import ledger
from motet.privacy.uploads import finished
from motet.records import score_row, write_scores
from motet.sampling import cohort_size, draw_cohort
from motet.setting import POINTS, Point, Setting, down_for
from motet.store import MemoryStore, Store
from motet.studies import Question
from motet.task import Task

NEW_CLIENT = "(new client)"


@dataclass(frozen=True)
class Round:
    """What one round did. `number` counts from 1."""

    number: int
    cohort: tuple[str, ...]
    server: Any
    bytes_down: int
    bytes_up: int
    gradients: float
    seconds: float
    notes: Mapping[str, Any]  # what the method wants remembered, as values for JSON
    lost: tuple[str, ...]  # who worked, and was not heard
    rejected: Mapping[str, str]  # whose upload was refused, and why
    run: Run = field(repr=False)

    def evaluate(self, split: str = "val", point: Point = "after_adapt") -> Evaluation:
        """Score the state after this round, while it is the current one."""
        if self.run.finished != self.number:
            raise StateError(
                f"round {self.number} has passed: the run is at round {self.run.finished}. "
                "Evaluate inside the loop."
            )
        return self.run.evaluate(split=split, point=point)


@dataclass
class Run:
    """A federation in progress, or finished: the server's state and what clients keep."""

    setting: Setting
    backend: Backend
    cohort: float | int
    server: Any
    finished: int = 0
    warnings: tuple[str, ...] = ()
    notes: list[dict[str, Any]] = field(default_factory=list)  # a round's, where it had any
    present: tuple[str, ...] | None = None  # who can be drawn; everybody if None
    # What else a checkpoint must hold (an accountant's state, say), by whose it is.
    extras: dict[str, tree.State] = field(default_factory=dict)

    def advance(self) -> Round:
        """Run one round."""
        started = time.perf_counter()
        setting = self.setting
        cohort = self._next_cohort()
        info = setting.info(self.finished, cohort)
        method, task = setting.method, setting.task
        down = method.broadcast(self.server, info)
        outcome = self.backend.train(down, info)
        ledger.charge(self.extras, method, cohort)
        notes: Mapping[str, Any] = {}
        if outcome.partial is not None:  # else nobody was heard, and the server stays as it is
            heard = info._replace(cohort=outcome.replied)
            combined = finished(method.reduce, outcome.partial, down, info)
            self.server = method.server_update(self.server, combined, heard, task)
            notes = method.notes(self.server, combined, heard)
        self.finished += 1
        if notes:
            self.notes.append({"round": self.finished, **notes})
        return Round(
            number=self.finished,
            cohort=cohort,
            server=self.server,
            bytes_down=outcome.bytes_down,
            bytes_up=outcome.bytes_up,
            gradients=outcome.gradients,
            seconds=time.perf_counter() - started,
            notes=notes,
            lost=outcome.lost,
            rejected=outcome.rejected,
            run=self,
        )

    def _next_cohort(self) -> tuple[str, ...]:
        setting = self.setting
        present = tuple(sorted(self.present)) if self.present else setting.everybody
        faults = setting.faults
        if faults.unavailable or faults.late:
            present = faults.available(present, self.finished, setting.key)
        cohort = self.cohort
        if isinstance(cohort, int):
            cohort = min(cohort, len(present))
        return draw_cohort(present, cohort, self.finished, setting.key) if present else ()

    @property
    def clients(self) -> Mapping[str, Any]:
        """What each client keeps, by client."""
        return _Kept(self.setting)

    def evaluate(
        self,
        split: str = "test",
        point: Point = "after_adapt",
        clients: list[str] | None = None,
    ) -> Evaluation:
        """Score clients on their own data: all of them, unless some are named."""
        rows = tuple(sorted(self._scores(split, point, clients)))
        return replace(self._unscored(split, point), rows=rows)

    def write_scores(
        self,
        path: str | Path,
        split: str = "test",
        point: Point = "after_adapt",
        clients: Sequence[str] | None = None,
    ) -> int:
        """Score clients as `evaluate` does, into a Parquet file as they come; say how many.

        For more clients than memory holds: rows stand in the order in which they were scored.
        """
        about = self._unscored(split, point)
        rows = (score_row(about, score) for score in self._scores(split, point, clients))
        return write_scores(Path(path), rows)

    def _unscored(self, split: str, point: Point) -> Evaluation:
        """Say what scores will be about."""
        method, task = self.setting.method, self.setting.task
        metric = metric_of(task.criterion)
        return Evaluation(method.name, metric, split, point, self.finished, rows=())

    def _scores(self, split: str, point: Point, clients: Sequence[str] | None) -> Iterator[Score]:
        _check_choice("point", point, POINTS)
        _check_choice("split", split, ("train", "val", "test"))
        federation = self.setting.federation
        wanted = [self._known(c) for c in clients] if clients is not None else federation.clients
        scored = with_examples(wanted, lambda c: federation.size(c, split))
        down, info = self._served(tuple(scored))
        predictions = self.backend.predict(down, info, _Inputs(federation, split, scored), point)
        return scores(
            predictions,
            lambda client: federation.examples(client, split).y,
            self.setting.task.criterion,
            split,
        )

    def predict(self, client: str, x: Any, point: Point = "after_adapt") -> Tensor:
        """Predict with a client's own predictor: probabilities, or values; `x` as in training."""
        down, info = self._served((self._known(client),))
        inputs = {client: self._as_input(x)}
        return next(iter(self.backend.predict(down, info, inputs, point)))[1]

    def personal(self, client: str, point: Point = "after_adapt") -> Any:
        """Return a client's predictor as the tree the method made it."""
        down, info = self._served((self._known(client),))
        return tree.clone(self.backend.predictor(down, info, client, point))

    def ask(
        self, question: Question, clients: Sequence[str], split: Literal["train", "val"] = "train"
    ) -> dict[str, Tensor]:
        """Ask clients' predictors something else than a prediction: which way, how sure, ...

        Args:
            question: `(personal, x, task)` to a tensor with a row per example, as a method writes
                `predict`.
            clients: Whom; those without examples in the split are left out.
            split: Whose inputs `x` are.
        """
        _check_choice("split", split, ("train", "val"))  # test data answer no questions
        federation = self.setting.federation
        asked = with_examples(clients, lambda c: federation.size(c, split))
        down, info = self._served(tuple(asked))
        inputs = _Inputs(federation, split, asked)
        asking = self.serving(question=question).backend
        return dict(sorted(asking.predict(down, info, inputs, "after_adapt")))

    def serving(self, **changes: Any) -> Run:
        """Return a run that serves from the same server, with another setting, in this process."""
        setting = replace(self.setting, **changes, init_clients={})  # they are stored
        name = "serial" if self.backend.name == "serial" else "auto"
        backend = make_backend(name, setting, len(setting.everybody), measure=False)
        return replace(self, setting=setting, backend=backend)

    def model(self, client: str) -> nn.Module:
        """Return a client's personalized network as a plain `nn.Module` in evaluation mode."""
        return self._module(self.personal(client))

    def adapt(self, x: Any, y: Any) -> Predictor:
        """Serve a client never seen before, from examples of its own, by the method's own rule."""
        setting = self.setting
        inputs = self._as_input(x)
        like = setting.federation.examples(setting.federation.clients[0], "train").y
        labels = torch.as_tensor(np.asarray(y) if not isinstance(y, Tensor) else y).to(like.dtype)
        nothing = Examples(inputs[:0], labels[:0])
        examples = {"train": Examples(inputs, labels), "val": nothing}
        down, info = self._served((NEW_CLIENT,))
        data = setting.data_from(
            examples, NEW_CLIENT, setting.serving_plans("after_adapt"), info.number
        )
        fresh = setting.fresh_client(NEW_CLIENT)
        own = down_for(down, NEW_CLIENT)
        personal = setting.predictor(own, fresh, data, point="after_adapt", new=True)
        return Predictor(self, tree.clone(personal))

    def _repr_html_(self) -> str:
        from motet.reprs import run_html

        return run_html(self)

    def _served(self, clients: tuple[str, ...]) -> tuple[Any, RoundInfo]:
        info = self.setting.info(self.finished, clients, serving=True)
        return self.setting.method.broadcast(self.server, info), info

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
        module = self.setting.task.build().eval()
        module.load_state_dict(personal, strict=False)
        return module


@dataclass(frozen=True)
class Predictor:
    """The predictor of a client that was not part of the federation."""

    run: Run
    personal: Any

    def predict(self, x: Any) -> Tensor:
        """Return class probabilities, or values."""
        setting = self.run.setting
        return setting.method.predict(self.personal, self.run._as_input(x), setting.task)

    def model(self) -> nn.Module:
        """Return the predictor as a plain `nn.Module`, where it is one network."""
        return self.run._module(self.personal)


def start(
    method: AnyMethod,
    task: Task,
    data: Federation,
    *,
    rounds: int,
    cohort: float | int = 1.0,
    seed: int = 0,
    backend: str = "auto",
    init: Mapping[str, Any] | None = None,
    init_clients: Mapping[str, Mapping[str, Any]] | None = None,
    store: Store | None = None,
    faults: Faults = NO_FAULTS,
    **options: Any,
) -> Run:
    """Check what can be checked before the first round, and make a run that is ready for it."""
    if rounds < 0:
        raise RequestError(f"rounds must be 0 or more; got {rounds}.")
    if backend == "ray" and store is not None:
        raise RequestError(
            'backend="ray" keeps private states in its shards, below state_dir=; leave store= out.'
        )
    size = cohort_size(cohort, len(data.clients))
    data = method.prepare(data)
    check_fits(task, data)
    task = task.seeing(data.examples(data.clients[0], "train").x)
    warnings = (*method.check(task, data.clients), *ledger.check(method, task))
    key = Key(seed)
    initial = task.merge(task.init(key.fold("init")), init)
    setting = Setting(
        method,
        task,
        data,
        key,
        rounds,
        initial,
        init=init or {},
        init_clients=init_clients or {},
        store=MemoryStore() if store is None else store,
        faults=faults,
    )
    server = method.init_server(task, initial, setting.everybody, key.fold("server"))
    chosen = make_backend(backend, setting, size, **options)
    # The backend's setting: it may keep private states elsewhere.
    return Run(chosen.setting, chosen, cohort, tree.clone(server), warnings=warnings)


def rounds(
    method: AnyMethod, task: Task, data: Federation, *, rounds: int, **settings: Any
) -> Iterator[Round]:
    """Yield after every round. Evaluation, checkpoints and early stopping belong to the caller."""
    run = start(method, task, data, rounds=rounds, **settings)
    for _ in range(rounds):
        done = run.advance()
        run.setting.store.commit()
        yield done


def run(method: AnyMethod, task: Task, data: Federation, *, rounds: int, **settings: Any) -> Run:
    """Run a federation to its end.

    Args:
        method: What to run.
        task: The network and its loss.
        data: The federation.
        rounds: How many; 0 returns the initial state.
        **settings: `cohort` (fraction or count, default all), `seed`, `backend` ("auto", "serial",
            "vectorized", "ray"), `init` (initial values by name), `init_clients` (private values by
            client), `store` (where private states live, default memory; a `motet.stores.DiskStore`
            for more than memory holds), `faults` (what goes wrong on the way), and the backend's
            own options (`chunk_size`, `workers`, ...; for Ray `address`, `actors`, `state_dir`).
    """
    federated = start(method, task, data, rounds=rounds, **settings)
    for _ in range(rounds):
        federated.advance()
        federated.setting.store.commit()
    return federated


class _Kept(Mapping[str, Any]):
    """Copies of private states; clients that never trained have fresh ones."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __getitem__(self, client: str) -> Any:
        if client not in self.setting.federation.clients:
            raise KeyError(client)
        return tree.clone(self.setting.client(client))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.setting.federation.clients))

    def __len__(self) -> int:
        return len(self.setting.federation.clients)


class _Inputs(Mapping[str, Tensor]):
    """The inputs of a split, materialised client by client."""

    def __init__(self, federation: Federation, split: str, clients: list[str]) -> None:
        self.federation, self.split, self.order = federation, split, clients

    def __getitem__(self, client: str) -> Tensor:
        return self.federation.examples(client, self.split).x

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def _check_choice(what: str, came: str, known: tuple[str, ...]) -> None:
    if came not in known:
        raise RequestError(f'no {what} is called "{came}"; {nearest(came, known)}.')
