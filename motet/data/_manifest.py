"""`rebuild`: makes a federation again from its manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet._core.corrupt_files import reading
from motet.data._federation import Federation
from motet.data._fingerprint import FORMAT
from motet.data._partition import PARTITIONS, Partition, partition_named
from motet.data._partition.embedding import Trained
from motet.data._registry import load
from motet.errors import StateError


def rebuild(
    manifest: str | Path | Mapping[str, Any], *, partition: Partition | None = None
) -> Federation:
    """Make the federation of a manifest again; raise an error unless every row is the same.

    Args:
        manifest: A manifest, or the path of its JSON file.
        partition: The partition, if it cannot be stored as JSON (an `embed` function, a partition
            of your own).

    Returns:
        The federation.

    Raises:
        StateError: The manifest cannot be read, or the data have changed since it was written.

    Example:
        >>> import motet
        >>> data = motet.data.load("digits", motet.data.IID(clients=3))
        >>> motet.data.rebuild(data.manifest()).hash == data.hash
        True
    """
    if isinstance(manifest, Mapping):
        return _rebuilt(manifest, partition)
    with reading(manifest, "manifest"):
        return _rebuilt(_read(Path(manifest)), partition)


def _rebuilt(wanted: Mapping[str, Any], partition: Partition | None) -> Federation:
    if wanted.get("format") != FORMAT:
        raise StateError(
            f"this version reads manifests of format {FORMAT}, got {wanted.get('format')!r}."
        )
    if wanted["source"].get("from") != "registry":
        raise StateError(
            f'"{wanted["name"]}" cannot be loaded by name. Open your data as you did before, '
            "then call `federation.verify(manifest)`."
        )
    federation = load(
        wanted["name"],
        partition or _partition(wanted["partition"]),
        seed=wanted["seed"],
        **wanted["split"],
        **wanted.get("subset", {}),
    )
    for step in wanted.get("steps", []):
        federation = _repeat(federation, step)
    return federation.verify(wanted)


def _read(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"there is no manifest at {path}.") from None
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is not a manifest: {error}.") from None
    if not isinstance(manifest, dict):
        raise StateError(f"{path} is not a manifest: expected a JSON object.")
    return manifest


def _partition(recipe: Mapping[str, Any]) -> Partition:
    name, fields = recipe["name"], {k: v for k, v in recipe.items() if k != "name"}
    if isinstance(fields.get("embed"), Mapping):
        fields["embed"] = Trained(**fields["embed"])
    elif fields.get("embed") is not None and ":" not in fields["embed"]:
        name = f"{name} with an embedding"
    if name not in PARTITIONS:
        raise StateError(
            f'the partition "{name}" of the manifest contains code, which JSON cannot store. '
            "Pass it: rebuild(manifest, partition=...)."
        )
    return partition_named(name, **fields)


def _repeat(federation: Federation, step: Mapping[str, Any]) -> Federation:
    if "select" in step:
        return federation.select(step["select"])
    if "retarget" in step:
        return federation.retarget(**step["retarget"])
    if "share" in step:
        return federation.share(**step["share"])
    if "augment" in step:
        return federation.augmented(*step["augment"])
    raise StateError(
        f"the manifest has an unknown step {sorted(step)}; known: augment, retarget, select, share."
    )
