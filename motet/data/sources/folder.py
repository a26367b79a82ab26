"""Federations from a folder with a subfolder per client.

    root/<client>/<split>.npz           arrays x and y; read into memory when the federation is
    opened root/<client>/<split>/{x,y}.npy     stay on disk, and are mapped while rows are read

A split is train, val or test; only train must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from motet.data.chain import UNREADABLE, NpyFile
from motet.data.check import as_numbers
from motet.data.federation import Federation
from motet.data.raw import SPLITS, Normalize
from motet.data.sources.arrays import About, Cell, assemble
from motet.data.split import Split
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
        path: The folder; see the module for its layout.
        split: Cut val and test from each client's training examples, where there is nothing but
            train.
        seed: Names the cut.
        classes: Number of classes; None counts them where targets are integers, floats mean
            regression.
        labels: Class names.
        normalize: Affine map that is applied when examples are read.
        name: What to call the data; the folder's name if left out.
    """
    root = Path(path)
    if not root.is_dir():
        raise RequestError(f"{root} is not a folder. Expected {root}/<client>/train.npz.")
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
    """Open the splits that one client's folder holds."""
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
        raise DataError(f"{path} cannot be read as numpy arrays: {error}") from None
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
