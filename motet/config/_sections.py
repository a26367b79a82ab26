"""The sections of a config, each a frozen dataclass whose fields are its keys."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_type_hints

from torch import nn

from motet import models
from motet._core.criteria import HAZARD, DiscreteHazard, criterion
from motet._core.option_table import describes
from motet._core.real_paths import real_path
from motet._engine.weights import Weights
from motet.config._hints import NONE
from motet.config._limits import check_network
from motet.config._values import from_plain
from motet.data import Federation, Partition, Split, from_folder, from_table, load
from motet.data._partition import partition_named
from motet.data._tables.options import Kind, Missing, Standardize
from motet.errors import RequestError, nearest, one_line, under
from motet.methods import _catalog as catalog
from motet.task import Task

DEFAULT_DATA = "digits"
PADDING_SEEN = 20  # clients whose targets are looked at for padding, where no loss is named


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """What may be changed about the data of any source."""

    augment: tuple[str, ...] | str = ()
    retarget: bool | Literal["any"] | dict[str, str] = False
    seed: int = 0

    def changed(self, federation: Federation) -> Federation:
        """Apply the changes.

        Args:
            federation: The data.

        Returns:
            The changed data.
        """
        if isinstance(self.retarget, dict):
            federation = federation.retarget(pairs=self.retarget)
        elif self.retarget:
            anyhow = self.retarget == "any"
            federation = federation.retarget(seed=self.seed, fixed_points=anyhow)
        names = (self.augment,) if isinstance(self.augment, str) else self.augment
        return federation.augmented(*names) if names else federation


@describes("data")
@dataclass(frozen=True, kw_only=True)
class NamedData(_Changes):
    """`[data]`: a dataset by name.

    Example:
        >>> from motet.data import Dirichlet
        >>> skewed = Dirichlet(clients=5, alpha=0.3)
        >>> NamedData(name="digits", limit=200, partition=skewed).federation()
        <Federation digits: 5 clients, 118 train / 41 val / 41 test, x (1, 8, 8), 10 classes>
    """

    name: str = DEFAULT_DATA
    partition: Partition | None = None
    val: float = 0.2
    test: float | Literal["official"] | None = None
    limit: int | None = None
    classes: int | tuple[int | str, ...] | None = None
    size: int | None = None
    backbone: str | None = None

    @under("data")
    def federation(self) -> Federation:
        """Load the data and divide them among clients."""
        loaded = load(
            self.name,
            self.partition,
            seed=self.seed,
            val=self.val,
            test=self.test,
            limit=self.limit,
            classes=self.classes,
            size=self.size,
            backbone=self.backbone,
        )
        return self.changed(loaded)

    def resolved(self, federation: Federation) -> NamedData:
        """Write out every default.

        Args:
            federation: The data.
        """
        recipe = dict(federation.recipe["partition"])
        partition = self.partition or partition_named(recipe.pop("name"), **recipe)
        return replace(self, partition=partition, test=federation.recipe["split"]["test"])


@describes("data")
@dataclass(frozen=True, kw_only=True)
class TableData(_Changes):
    r"""`[data]`: a table with a column that names each row's client, or one file per client.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> rows = "hospital,age,ill\n" + "basel,40,no\nbasel,71,yes\nlyon,55,no\nlyon,63,yes\n" * 5
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "patients.csv"
        ...     _ = path.write_text(rows)
        ...     TableData(table=str(path), client="hospital", target="ill").federation().features
        ('age',)
    """

    table: str
    client: str | None = None
    target: str | tuple[str, ...]
    event: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    ordinal: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    dates: tuple[str, ...] | dict[str, str] = ()
    labels: tuple[str, ...] | dict[str, str] = ()
    units: tuple[str, ...] | dict[str, str] = ()
    split: str | None = None
    val: float = 0.2
    test: float = 0.2
    kind: Kind = "auto"
    missing: Missing | float = "error"
    indicators: bool = False
    standardize: bool | Standardize = False
    rare: float = 0.0
    merge_spellings: bool = True
    drop_missing_target: bool = False
    drop_missing_client: bool = False
    na: tuple[str | float, ...] = ()
    date_format: str | None = None
    reference_date: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    skip_rows: int = 0
    columns: tuple[str, ...] | None = None
    bad_rows: Literal["error", "skip"] = "error"
    few_test_rows: int = 10

    @under("data")
    def federation(self) -> Federation:
        """Read the table."""
        return self.changed(from_table(self.table, **self.options()))

    def options(self) -> dict[str, Any]:
        """Return the arguments of `from_table`."""
        kept = ("table", "augment", "retarget", "val", "test")
        own = {name: value for name, value in vars(self).items() if name not in kept}
        return {**own, "split": self.split or Split(self.val, self.test)}

    def resolved(self, federation: Federation) -> TableData:
        """Write out where the file is, whatever directory the config will be in.

        Args:
            federation: The data.
        """
        return replace(self, table=str(real_path(self.table)))


@describes("data")
@dataclass(frozen=True, kw_only=True)
class FolderData(_Changes):
    """`[data]`: a folder with a subfolder of arrays per client.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for client in ("basel", "lyon"):
        ...         (Path(folder) / client).mkdir()
        ...         np.savez(f"{folder}/{client}/train.npz", x=np.eye(4), y=np.array([0, 1, 0, 1]))
        ...     FolderData(folder=folder).federation().clients
        ('basel', 'lyon')
    """

    folder: str
    val: float | None = None
    test: float | None = None
    classes: int | None = None

    @under("data")
    def federation(self) -> Federation:
        """Open the folder."""
        cut = None if self.val is None is self.test else Split(self.val or 0.0, self.test or 0.0)
        opened = from_folder(self.folder, split=cut, seed=self.seed, classes=self.classes)
        return self.changed(opened)

    def resolved(self, federation: Federation) -> FolderData:
        """Write out where the folder is, whatever directory the config will be in.

        Args:
            federation: The data.
        """
        return replace(self, folder=str(real_path(self.folder)))


DataChoice: TypeAlias = NamedData | TableData | FolderData


@describes("model")
@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """`[model]`: the network and its loss.

    Example:
        >>> ModelChoice(name="mlp", options={"hidden": [64]}).settings()
        {}
        >>> ModelChoice(init="runs/first").weights()
        Weights(path='runs/first', rename={}, sha256=None)
    """

    name: str | None = None
    loss: str | None = None
    times: tuple[float, ...] | None = None
    bins: int | None = None
    init: str | None = None
    rename: dict[str, str] = field(default_factory=dict)
    init_sha256: str | None = None
    base: str | None = None
    frozen: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("rename", "init_sha256"):
            if getattr(self, key) and self.init is None:
                raise RequestError(
                    f"model.{key} is about the weights of model.init, and there is no model.init; "
                    "name a run, a checkpoint or a .safetensors file there (--init)."
                )

    def weights(self) -> Weights | None:
        """Return where the initial weights are; None if they are drawn."""
        return None if self.init is None else Weights(self.init, self.rename, self.init_sha256)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of `motet.run` that these choices stand for."""
        weights = self.weights()
        return {} if weights is None else {"init": weights}

    @under("model")
    def resolved(self, federation: Federation, data: DataChoice) -> ModelChoice:
        """Write out the network, all its options, and the loss.

        Args:
            federation: The data.
            data: The `[data]` section.
        """
        # Features of a backbone are another kind of inputs.
        set_name = data.name if isinstance(data, NamedData) and data.backbone is None else None
        name = self.name or models.default_for(set_name, shape=federation.shape)
        loss = self.loss or _usual_loss(federation)
        times = self._times(loss, federation)
        options = self.options
        if ":" not in name:
            plain = ModelChoice(name=name, loss=loss, times=times).task(federation).skeleton
            options = _complete(name, plain, options)
            if "predict" in options and "predict" not in self.options and not federation.y.shape:
                options = {**options, "predict": "last"}  # sequences with one target each
        else:  # its own function knows its options
            options = {k: None if value == NONE else value for k, value in options.items()}
        return replace(
            self, name=name, loss=loss, times=times, bins=None, options=options, **self._origin()
        )

    def _origin(self) -> dict[str, Any]:
        """Write out where the weights are and which they are, so that no others are taken."""
        base = {} if self.base is None else {"base": str(real_path(self.base))}
        if self.init is None:
            return base
        path = str(real_path(self.init))
        found = self.init_sha256 or Weights(path, self.rename).hash()
        return {**base, "init": path, "init_sha256": found}

    def _times(self, loss: str, federation: Federation) -> tuple[float, ...] | None:
        if loss != HAZARD:
            if self.times is not None or self.bins is not None:
                key = "times" if self.times is not None else "bins"
                raise RequestError(
                    f"model.{key} is about time bins, which {loss} does not have; remove it, or "
                    f'set model.loss = "{HAZARD}".'
                )
            return None
        return self.times or time_bins(federation, self.bins or 10)

    def task(self, federation: Federation) -> Task:
        """Make the task for these data.

        Args:
            federation: The data.
        """
        return self.task_for(federation.shape, federation.classes, federation.y.shape)

    def task_for(
        self, shape: tuple[int, ...], classes: int | None, target: tuple[int, ...] = ()
    ) -> Task:
        """Make the task for given shapes.

        Args:
            shape: Shape of one input.
            classes: Number of classes; None for a regression.
            target: Shape of one target.
        """
        name, options = self.name, dict(self.options)
        assert name is not None
        assert self.loss is not None
        scored = criterion(self.loss, None, self.times)
        width = scored.outputs(classes, math.prod(target))
        classes = None if scored.kind == "values" and width == 1 else width
        if ":" in name:
            make = catalog.imported(name, what="model", known=models.names())
            return self._task(lambda: _own(name, make, shape=shape, classes=classes, **options))

        def build() -> nn.Module:
            return models.build(name, shape=shape, classes=classes, **options)

        check_network(name, build)
        return self._task(build)

    def _task(self, build: Callable[[], nn.Module]) -> Task:
        assert self.loss is not None
        task = Task(build, self.loss, times=self.times, base=self.base)
        if self.frozen is not None:
            task.require_frozen(self.frozen)
        return task


def _usual_loss(federation: Federation) -> str:
    if federation.survival:
        return HAZARD
    if federation.schema is not None and federation.schema.target.kind == "labels":
        return "multi_label"
    if federation.classes is None:
        return "mse"
    return "masked_cross_entropy" if _is_padded(federation) else "cross_entropy"


def _is_padded(federation: Federation) -> bool:
    """Tell whether sequences of targets have places without one, which are negative."""
    some = federation.clients[:PADDING_SEEN]
    return bool(federation.y.shape) and any(
        bool((federation.lent_examples(client, "train").y < 0).any()) for client in some
    )


def time_bins(federation: Federation, bins: int) -> tuple[float, ...]:
    """Choose time bins with about equally many events, over the training rows of all clients."""
    if federation.y.shape != (2,):
        raise RequestError(
            f'the loss "{HAZARD}" expects targets (time, event), but those of "{federation.name}" '
            f"have shape {list(federation.y.shape)}."
        )
    rows = federation.rows.clients_of(0)[1]
    if not len(rows):
        raise RequestError(
            f'the loss "{HAZARD}" needs its time bins where no data are at hand; write their ends '
            "to model.times."
        )
    y = federation.y.take(rows)
    return DiscreteHazard.of(y[:, 0], y[:, 1], bins).times


def _own(name: str, make: Any, **options: Any) -> nn.Module:
    """Call a user's own function for a network."""
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
    parameters = inspect.signature(type(network)).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    hints = get_type_hints(type(network).__init__)
    for key in given.keys() - known:
        others = nearest(key, [*known, "name", "loss"])
        raise RequestError(f'[model] has no key "{key}" for {name}; {others}.')
    return known | {k: from_plain(hints[k], v, f"model.{k}") for k, v in given.items()}
