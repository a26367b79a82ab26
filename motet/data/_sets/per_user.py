"""The two formats in which federated data sets are published: LEAF's JSON and TFF's HDF5.

LEAF: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}, in any
number of files. TFF: a group `examples/<client>` per client, with an array per field.

S. Caldas et al. "LEAF: a benchmark for federated settings." arXiv:1812.01097, 2018.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.visible_text import visible
from motet.data._sets.files import Held
from motet.errors import CapabilityError, DataError, one_line

# What h5py raises for damaged files, and Python for a dataset in the place of a group.
HDF5_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError)


class User(NamedTuple):
    """What one client has: values by field, all of one length."""

    name: str
    fields: dict[str, Any]


def leaf_users(held: Held, name: str) -> Iterator[User]:
    """Read the users of one of LEAF's JSON files."""
    path = held.paths[name]
    try:
        contents = json.loads(held.read(name))
        data = contents["user_data"]
        for user in _names(contents["users"]):
            fields = {"x": data[user]["x"], "y": data[user]["y"]}
            yield _even(path, User(user, fields), held.where)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        said = f"{reason} is missing" if isinstance(reason, KeyError) else one_line(reason)
        raise DataError(
            f'{path} should be a JSON file of LEAF, with "users" and "user_data" '
            f"({visible(said)[:120]}). Get it again: {held.where}"
        ) from None


def _even(path: Path, user: User, where: str) -> User:
    """Refuse fields of different lengths, and names that nobody could read."""
    if not _is_name(user.name):
        raise DataError(
            f'{path}: a user should have a name in Unicode; found "{visible(user.name)}". Rename '
            f"it, or get the file again: {where}"
        )
    sizes = {field: len(values) for field, values in user.fields.items()}
    if len(set(sizes.values())) != 1:
        told = ", ".join(f"{size} of {field}" for field, size in sizes.items())
        raise DataError(
            f'{path}: "{user.name}" should have one value of each field per example; found {told}. '
            f"The file is damaged. Get it again: {where}"
        )
    return user


def _names(users: Any) -> list[str]:
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise TypeError('"users" is not a list of names')
    return users


def _is_name(text: str) -> bool:
    """Tell whether arrays and files keep a name as it is: not empty, no NUL, no half character."""
    whole = text.encode("utf-8", "ignore").decode()
    return bool(text.strip()) and "\0" not in text and whole == text


def leaf_split(held: Held, split: str) -> Iterator[User]:
    """Read the users of the JSON files in the folder of this name, each once."""
    seen: dict[str, Path] = {}
    for name in sorted(held.paths):
        path = held.paths[name]
        for user in leaf_users(held, name) if path.parent.name == split else ():
            if user.name in seen:
                raise DataError(
                    f'"{visible(user.name)}" is in {seen[user.name]} and again in {path}; LEAF '
                    f"lists a user once. Remove the copy, or get the files again: {held.where}"
                )
            seen[user.name] = path
            yield user


def tff_users(
    path: Path, fields: Sequence[str], where: str, names: Sequence[str] | None = None
) -> Iterator[User]:
    """Read clients of one of TFF's HDF5 files: all of them, or those with the given names."""
    h5py = hdf5_library(path)
    try:
        with h5py.File(path, "r") as file:
            groups = file["examples"]
            for name in groups if names is None else names:
                values = {field: np.asarray(groups[name][field][()]) for field in fields}
                yield _even(path, User(str(name), values), where)
    except DataError:
        raise
    except HDF5_ERRORS as reason:
        raise _not_hdf5(path, fields, where, reason) from None


def tff_sizes(path: Path, field: str, where: str) -> dict[str, int]:
    """Count the examples of every client without reading them."""
    h5py = hdf5_library(path)
    try:
        with h5py.File(path, "r") as file:
            return {str(name): len(group[field]) for name, group in file["examples"].items()}
    except HDF5_ERRORS as reason:
        raise _not_hdf5(path, (field,), where, reason) from None


def _not_hdf5(path: Path, fields: Sequence[str], where: str, reason: Exception) -> DataError:
    return DataError(
        f"{path} should be an HDF5 file with groups examples/<client> of {', '.join(fields)} "
        f"({one_line(reason)[:120]}). Get it again: {where}"
    )


def hdf5_library(path: Path) -> Any:
    """Import h5py, or say how to get it; a packed file must be unpacked first."""
    if path.suffix == ".gz":
        raise DataError(f"{path} is packed, and HDF5 files are read in place: gunzip {path.name}.")
    try:
        import h5py
    except ImportError:
        raise CapabilityError(
            f'{path.name} is an HDF5 file, which needs h5py: pip install "motet[readers]".'
        ) from None
    return h5py


def as_numbers(values: Any, shape: tuple[int, ...], what: str, where: str) -> NDArray[np.float32]:
    """Turn lists of numbers into an array [rows, *shape], or say what is wrong with them."""
    try:
        numbers = np.asarray(values, np.float32).reshape(-1, *shape)
    except (ValueError, TypeError):
        numbers = None
    if numbers is None or len(numbers) != len(values) or not np.isfinite(numbers).all():
        size = "x".join(map(str, shape)) or "1"
        raise DataError(
            f"{what} should have {size} numbers in every row. The file is damaged or a different "
            f"one. Get it again: {where}"
        )
    return numbers
