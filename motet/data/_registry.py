"""Data sets by name: the table of loaders, and `load`, which makes a federation of one.

The table holds strings, so that a data set's module is imported only when the data set is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from shlex import quote
from typing import Any, Literal

from motet._core.keys import Key
from motet._core.real_paths import looks_like_a_table
from motet.data._divide import divide
from motet.data._federation import Federation
from motet.data._partition import Natural, Partition, recipe_of
from motet.data._raw import Normalize, Raw
from motet.data._sources.table import from_table
from motet.data._split import Split
from motet.data._subset import Classes, Subset
from motet.errors import RequestError, nearest

__all__ = ["Dataset", "Normalize", "Raw", "dataset", "load", "names"]

_TABLE = {
    "digits": "motet.data._sets.digits:DIGITS",
    "cifar10": "motet.data._sets.cifar:CIFAR10",
    "cifar100": "motet.data._sets.cifar:CIFAR100",
    "mnist": "motet.data._sets.mnist:MNIST",
    "mnist-by-writer": "motet.data._sets.mnist_by_writer:MNIST_BY_WRITER",
    "fashion-mnist": "motet.data._sets.mnist:FASHION_MNIST",
    "femnist": "motet.data._sets.femnist:FEMNIST",
    "shakespeare": "motet.data._sets.shakespeare:SHAKESPEARE",
    "shakespeare-next": "motet.data._sets.shakespeare:SHAKESPEARE_NEXT",
    "stackoverflow": "motet.data._sets.words:STACKOVERFLOW",
    "reddit": "motet.data._sets.words:REDDIT",
    "gldv2": "motet.data._sets.photographs:GLDV2",
    "flickr-aes": "motet.data._sets.photographs:FLICKR_AES",
    "librispeech": "motet.data._sets.librispeech:LIBRISPEECH",
    "har": "motet.data._sets.har:HAR",
    "heart-disease": "motet.data._sets.heart_disease:HEART_DISEASE",
    "medpar": "motet.data._sets.tables:MEDPAR",
    "rand-hie": "motet.data._sets.tables:RAND_HIE",
    "parkinsons": "motet.data._sets.tables:PARKINSONS",
    "tcga-brca": "motet.data._sets.tcga_brca:TCGA_BRCA",
}


TableSource = Callable[[], tuple[Any, dict[str, Any]]]


@dataclass(frozen=True)
class Dataset:
    """A named data set.

    Attributes:
        name: The name that users write.
        summary: One line for `motet data`.
        load: Reads the arrays.
        natural: Whether the data have natural clients.
        default_partition: Makes the partition to use if none is given; None for natural clients.
        where: Where to get the files, for the error message if they are missing.
        table: Reads a table and the arguments of `from_table`, instead of `load`.
        package: Python package that holds the data.

    Example:
        >>> import motet
        >>> motet.data.dataset("digits").natural
        False
        >>> motet.data.dataset("heart-disease").natural
        True
    """

    name: str
    summary: str
    load: Callable[[], Raw]
    natural: bool
    default_partition: Callable[..., Partition] | None
    where: str
    table: TableSource | None = None
    package: str | None = None


def names() -> tuple[str, ...]:
    """List every registered data set.

    Returns:
        Names for `motet.data.load`.

    Example:
        >>> "digits" in names()
        True
    """
    return tuple(_TABLE)


def dataset(name: str) -> Dataset:
    """Import the data set called `name`.

    Args:
        name: One of `motet.data.names()`.

    Returns:
        What is known about it; nothing is loaded.

    Raises:
        RequestError: There is no such data set.

    Example:
        >>> dataset("digits").natural
        False
    """
    if name not in _TABLE:
        if looks_like_a_table(name):
            raise RequestError(
                f'no data set is called "{name}"; if it is a table, use `--table {quote(name)}` '
                "(motet.data.from_table)."
            )
        raise RequestError(
            f'no data set is called "{name}"; {nearest(name, _TABLE)}.', option="name"
        )
    module, attribute = _TABLE[name].split(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Dataset)
    return found


def load(
    name: str,
    partition: Partition | None = None,
    *,
    seed: int = 0,
    val: float = 0.2,
    test: float | Literal["official"] | None = None,
    limit: int | None = None,
    classes: Classes | None = None,
    size: int | None = None,
    backbone: str | None = None,
) -> Federation:
    """Load a data set by name and divide it among clients.

    Args:
        name: One of `motet.data.names()`.
        partition: How rows are divided among clients; None uses the data's natural clients, or the
            data set's default partition.
        seed: Seed of the division; the same seed gives the same division on every machine.
        val: Share of a client's rows for validation, unless the data have validation rows.
        test: Share of a client's rows for test, after pooling all the data; "official" keeps the
            official test set and divides it in each client's own class mix. None: official where
            there is such a test set, else 0.2.
        limit: Number of rows to keep, over training and test set in their own proportion.
        classes: Number of classes to keep, or a list of them by name or number.
        size: Height and width that images are resized to.
        backbone: "efficientnet-lite0" replaces images by its features, computed once at `size` (96
            if None) and kept on disk.

    Returns:
        The federation.

    Raises:
        RequestError: There is no such data set, or an option does not fit it.
        DataError: Its files are missing; the message says where to get them.

    Example:
        >>> import motet
        >>> data = load("digits", motet.data.Dirichlet(clients=5, alpha=0.5), seed=0)
        >>> len(data.clients), data.classes
        (5, 10)
    """
    found = dataset(name)
    subset = Subset(limit=limit, classes=classes, size=size, backbone=backbone)
    if found.table is not None:
        _refuse_subset(found, subset)
        return _load_table(found, partition, seed=seed, val=val, test=test)
    raw = subset.of(found.load(), Key(seed).fold("subset"))
    if partition is None:
        partition = Natural() if found.default_partition is None else found.default_partition()
    if test is None:
        test = "official" if raw.has_test else 0.2
    elif test == "official" and not raw.has_test:
        raise RequestError(
            f'"{name}" has no official test set; give `test` as a share, such as 0.2.'
        )
    return divide(
        raw,
        partition,
        Split(val, test),
        name=name,
        seed=seed,
        source={"from": "registry"},
        subset=subset.recipe(),
    )


def _refuse_subset(found: Dataset, subset: Subset) -> None:
    for name in subset.recipe():
        raise RequestError(
            f'"{found.name}" is a table, and data.{name} is for arrays of images, signals or text. '
            f"Leave data.{name} out."
        )


def _load_table(
    found: Dataset,
    partition: Partition | None,
    *,
    seed: int,
    val: float,
    test: float | Literal["official"] | None,
) -> Federation:
    """Open a data set that is a table; its clients are the natural ones."""
    if partition not in (None, Natural()):
        raise RequestError(
            f'"{found.name}" is a table with natural clients, and is not divided otherwise. Leave '
            "the partition out."
        )
    assert found.table is not None
    table, options = found.table()
    own = "split" in options
    if test == "official" and not own:
        raise RequestError(
            f'"{found.name}" has no official test set; give `test` as a share, such as 0.2.'
        )
    wanted = test if test is not None else "official" if own else 0.2
    cut = options["split"] if wanted == "official" else Split(val, wanted)
    drop = [options["split"], *options.get("drop", ())] if own and cut != options["split"] else None
    options |= {"split": cut} | ({"drop": drop} if drop else {})
    opened = from_table(table, **options, seed=seed, name=found.name)
    recipe = {
        "source": {"from": "registry"},
        "seed": seed,
        "partition": recipe_of(Natural()),
        "split": Split(val, wanted).recipe(),
    }
    return replace(opened, recipe=recipe)
