"""The sections of a config, each a frozen dataclass whose fields are its keys."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_type_hints

from torch import nn

from motet import catalog, models
from motet.config.hints import NONE
from motet.config.limits import check_network
from motet.config.values import from_plain
from motet.data import Federation, Partition, Split, from_folder, from_table, load
from motet.data.partition import partition_named
from motet.data.sources.columns import Kind
from motet.data.sources.fill import Missing
from motet.errors import RequestError, nearest, one_line
from motet.execution.choice import Mode
from motet.faults import NO_FAULTS, Faults
from motet.setting import Point
from motet.task import Task

DEFAULT_ROUNDS = 50
DEFAULT_DATA = "digits"


@dataclass(frozen=True, kw_only=True)
class NamedData:
    """`[data]`: a data set by name.

    Attributes:
        name: One of `motet data`.
        partition: Who gets which rows; None: natural clients, or the set's usual partition.
        seed: Names the split.
        val: Share of a client's rows for validation.
        test: Share for test, or "official"; None: official where there is a test set, else 0.2.
    """

    name: str = DEFAULT_DATA
    partition: Partition | None = None
    seed: int = 0
    val: float = 0.2
    test: float | Literal["official"] | None = None

    def federation(self) -> Federation:
        """Load the data and divide them among clients."""
        return load(self.name, self.partition, seed=self.seed, val=self.val, test=self.test)

    def resolved(self, federation: Federation) -> NamedData:
        """Write out what the defaults came to."""
        recipe = dict(federation.recipe["partition"])
        partition = self.partition or partition_named(recipe.pop("name"), **recipe)
        return replace(self, partition=partition, test=federation.recipe["split"]["test"])


@dataclass(frozen=True, kw_only=True)
class TableData:
    """`[data]`: a CSV or Parquet file with a column that names each row's client.

    Attributes:
        table: The file.
        client: Column that names the client.
        target: Column to predict.
        features: Input columns; None takes all others.
        categorical: Input columns to one-hot encode.
        split: Column that says train, val or test; None cuts by `val` and `test`.
        val: Share of a client's rows for validation.
        test: Share for test.
        kind: What the target is: "classes", "regression", or "auto".
        missing: What to do with missing numbers: "error", "median", "client-median".
        standardize: Bring input columns to mean 0 and deviation 1 over all training rows.
        seed: Names the cut.
    """

    table: str
    client: str
    target: str
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    split: str | None = None
    val: float = 0.2
    test: float = 0.2
    kind: Kind = "auto"
    missing: Missing = "error"
    standardize: bool = False
    seed: int = 0

    def federation(self) -> Federation:
        """Read the table."""
        return from_table(
            self.table,
            client=self.client,
            target=self.target,
            features=self.features,
            categorical=self.categorical,
            split=self.split or Split(self.val, self.test),
            kind=self.kind,
            missing=self.missing,
            standardize=self.standardize,
            seed=self.seed,
        )

    def resolved(self, federation: Federation) -> TableData:
        """Write out where the file is, whatever directory the config will be in."""
        return replace(self, table=str(Path(self.table).resolve()))


@dataclass(frozen=True, kw_only=True)
class FolderData:
    """`[data]`: a folder with a subfolder of arrays per client.

    Attributes:
        folder: The folder; each client has train.npz, or train/x.npy and train/y.npy, and so on.
        val: Share to cut from the training examples, where there are no others; None cuts nothing.
        test: Likewise.
        classes: Number of classes; None counts them.
        seed: Names the cut.
    """

    folder: str
    val: float | None = None
    test: float | None = None
    classes: int | None = None
    seed: int = 0

    def federation(self) -> Federation:
        """Open the folder."""
        no_cut = self.val is None and self.test is None
        split = None if no_cut else Split(self.val or 0.0, self.test or 0.0)
        return from_folder(self.folder, split=split, seed=self.seed, classes=self.classes)

    def resolved(self, federation: Federation) -> FolderData:
        """Write out where the folder is, whatever directory the config will be in."""
        return replace(self, folder=str(Path(self.folder).resolve()))


DataChoice: TypeAlias = NamedData | TableData | FolderData


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """`[model]`: the network and its loss.

    Attributes:
        name: A reference network, or your own as "package.module:function", called with `shape`,
            `classes` and the options; None: the usual one for the data.
        loss: By name; None: cross_entropy for classes, mse for values.
        options: The network's own keywords; in a config they stand beside `name`.
    """

    name: str | None = None
    loss: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self, federation: Federation, data: DataChoice) -> ModelChoice:
        """Write out the network, all its options, and the loss."""
        set_name = data.name if isinstance(data, NamedData) else None
        name = self.name or models.default_for(set_name, shape=federation.shape)
        loss = self.loss or ("mse" if federation.classes is None else "cross_entropy")
        plain = ModelChoice(name=name, loss=loss).task(federation).skeleton
        return ModelChoice(name=name, loss=loss, options=_complete(name, plain, self.options))

    def task(self, federation: Federation) -> Task:
        """Make the task for these data."""
        return self.task_for(federation.shape, federation.classes)

    def task_for(self, shape: tuple[int, ...], classes: int | None) -> Task:
        """Make the task for inputs of a shape, and so many classes (None: a regression)."""
        name, options = self.name, dict(self.options)
        assert name is not None
        assert self.loss is not None
        if ":" in name:
            make = catalog.imported(name, what="model", known=models.names())
            return Task(
                lambda: _own(name, make, shape=shape, classes=classes, **options), self.loss
            )

        def build() -> nn.Module:
            return models.build(name, shape=shape, classes=classes, **options)

        check_network(name, build)
        return Task(build, self.loss)


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """`[run]`: how long, with whom, and what is looked at on the way.

    Attributes:
        rounds: How many.
        cohort: Clients per round: a fraction (0.2) or a count (4).
        seed: Names every stream of randomness of the run.
        backend: "auto", "serial", "vectorized" or "ray".
        chunk_size: Clients that are stacked at once; None: chosen from the size of the model.
        mode: How a stack is trained, "stack" or "loop"; None: chosen from the kind of the model.
        traced: Whether steps are traced and replayed; None: if the run is long enough to pay.
        channels_last: Whether "loop" lays images out with channels last; None: it does.
        device: Where clients are trained, such as "cuda"; None: on the processor.
        workers: Threads; never changes a result. None: one per core (on Ray: one per actor).
        address: Where Ray is; None: it is started on this machine.
        actors: Processes on Ray; None: 2.
        state_dir: Where each machine of a Ray cluster keeps private states; None: a temporary one.
        store: Where private states live, "memory" or "disk"; never changes a result.
        evaluate_every: Rounds between two looks at the validation data; None: a tenth of all.
        checkpoint_every: Rounds between two checkpoints.
        points: What is scored on the test data at the end; the first is the headline.
        faults: `[run.faults]`: what goes wrong on the way, in simulation.
    """

    rounds: int = DEFAULT_ROUNDS
    cohort: float | int = 1.0
    seed: int = 0
    backend: str = "auto"
    chunk_size: int | None = None
    mode: Mode | None = None
    traced: bool | None = None
    channels_last: bool | None = None
    device: str | None = None
    workers: int | None = None
    address: str | None = None
    actors: int | None = None
    state_dir: str | None = None
    store: Literal["memory", "disk"] = "memory"
    evaluate_every: int | None = None
    checkpoint_every: int = 10
    points: tuple[Point, ...] = ("after_adapt",)
    faults: Faults = NO_FAULTS

    def __post_init__(self) -> None:
        for name in ("evaluate_every", "checkpoint_every", "chunk_size", "workers", "actors"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"run.{name} counts, so it is 1 or more; got {value}.")
        if not self.points:
            raise RequestError('run.points is empty; name at least one, such as "after_adapt".')

    def resolved(self) -> RunChoice:
        """Write out how often the validation data are looked at."""
        return replace(self, evaluate_every=self.evaluate_every or max(1, self.rounds // 10))

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of `motet.run` that these choices stand for."""
        plan = ("chunk_size", "mode", "traced", "channels_last", "device", "workers")
        ray = ("address", "actors", "state_dir")
        backend = {name: getattr(self, name) for name in (*plan, *ray)}
        return {
            "rounds": self.rounds,
            "cohort": self.cohort,
            "seed": self.seed,
            "backend": self.backend,
            "faults": self.faults,
            **{name: value for name, value in backend.items() if value is not None},
        }


def _own(name: str, make: Any, **options: Any) -> nn.Module:
    """Call somebody's own function for a network."""
    try:
        network = make(**options)
    except TypeError as reason:
        raise RequestError(
            f'"{name}" cannot be called for a model: {one_line(reason)}.'
        ) from reason
    if not isinstance(network, nn.Module):
        raise RequestError(f'"{name}" makes a {type(network).__name__}; an nn.Module was expected.')
    return network


def _complete(name: str, network: nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check options against the network's keywords, and fill in the rest."""
    if ":" in name:
        return {key: None if value == NONE else value for key, value in given.items()}
    parameters = inspect.signature(type(network)).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    hints = get_type_hints(type(network).__init__)
    for key in given:
        if key not in known:
            others = nearest(key, [*known, "name", "loss"])
            raise RequestError(f'[model] has no key "{key}" for {name}; {others}.')
    return known | {k: from_plain(hints[k], v, f"model.{k}") for k, v in given.items()}
