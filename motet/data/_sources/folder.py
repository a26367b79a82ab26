"""Federations from a folder with a subfolder per client.

    root/<client>/<split>.npz           arrays x and y, read into memory when the folder is opened
    root/<client>/<split>/{x,y}.npy     arrays that stay on disk and are mapped while rows are read

A split is train, val or test; only train is required.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from motet._core.real_paths import did_you_mean
from motet.data._chain import UNREADABLE, NpyFile
from motet.data._check import as_numbers
from motet.data._federation import Federation
from motet.data._raw import SPLITS, Normalize
from motet.data._sources.arrays import About, Cell, assemble
from motet.data._split import Split
from motet.errors import DataError, RequestError


def from_folder(
    path: str | Path,
    *,
    split: Split | None = None,
    seed: int = 0,
    classes: int | None = None,
    labels: Sequence[str] | None = None,
    normalize: Normalize | None = None,
    name: str | None = None,
) -> Federation:
    """Make a federation of a folder with a subfolder per client.

    Args:
        path: The folder, with `<client>/<split>.npz` or `<client>/<split>/x.npy` and `y.npy`.
        split: Cuts val and test from each client's training examples, if there is only train.
        seed: Seed of the cut.
        classes: Number of classes; None counts them if targets are integers; floats mean
            regression.
        labels: Class names.
        normalize: Affine map that is applied when examples are read.
        name: Name of the data; by default the name of the folder.

    Returns:
        The federation; arrays in `.npy` files stay on disk.

    Raises:
        RequestError: There is no such folder, or it has no clients.
        DataError: Arrays that cannot be used; the message names the file.

    Example:
        >>> import tempfile, pathlib, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for client in ("a", "b"):
        ...         pathlib.Path(folder, client).mkdir()
        ...         x, y = np.ones((10, 3), np.float32), np.arange(10) % 2
        ...         np.savez(pathlib.Path(folder, client, "train.npz"), x=x, y=y)
        ...     print(len(from_folder(folder, split=Split(val=0.2, test=0.2)).clients))
        2
    """
    root = Path(path)
    if not root.is_dir():
        raise RequestError(
            f"{root} is not a folder. Expected {root}/<client>/train.npz.{did_you_mean(root)}",
            option="folder",
        )
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir())
    about = About(
        name=name or root.name,
        source={"from": "folder"},
        split=split,
        seed=seed,
        classes=classes,
        labels=labels,
        normalize=normalize,
    )
    cells = [cell for folder in folders for cell in client_cells(folder, folder.name)]
    return assemble(cells, [folder.name for folder in folders], about)


def client_cells(folder: Path, client: str) -> Iterator[Cell]:
    """Open the splits in one client's folder."""
    for split in SPLITS:
        packed, pair = folder / f"{split}.npz", folder / split
        if packed.exists() and pair.exists():
            raise DataError(
                f"{packed} and {pair} both hold {split} data of one client. Remove one of them."
            )
        if packed.exists():
            yield _from_npz(client, split, packed)
        elif pair.exists():
            yield _from_npy(client, split, pair)


def _from_npz(client: str, split: str, path: Path) -> Cell:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except UNREADABLE as error:
        # numpy proposes to load the file in a way that would run what is in it.
        said = "it is not an archive of numbers" if "pickle" in str(error) else str(error)
        raise DataError(f"{path} cannot be read as numpy arrays: {said.rstrip('.')}.") from None
    if not {"x", "y"} <= set(arrays):
        raise DataError(f"{path} must hold the arrays x and y; it holds {', '.join(arrays)}.")
    x, y = (as_numbers(arrays[part], f"{part} in {path}") for part in "xy")
    return Cell(client, split, x, y)


def _from_npy(client: str, split: str, folder: Path) -> Cell:
    for part in ("x.npy", "y.npy"):
        if not (folder / part).exists():
            raise DataError(f"{folder} must hold x.npy and y.npy; {part} is missing.")
    x, y = (NpyFile.at(folder / f"{part}.npy") for part in "xy")
    for part, file in (("x", x), ("y", y)):
        as_numbers(np.empty(0, file.dtype), f"{part}.npy in {folder}")
    return Cell(client, split, x, y)
