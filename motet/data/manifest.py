"""The same split again, from the file that describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.data.federation import Federation
from motet.data.fingerprint import FORMAT
from motet.data.partition import PARTITIONS, Partition, partition_named
from motet.data.registry import load
from motet.errors import StateError
from motet.malformed import reading


def rebuild(
    manifest: str | Path | Mapping[str, Any], *, partition: Partition | None = None
) -> Federation:
    """Make the federation of a manifest again, and refuse it if it is not the same to the row.

    Args:
        manifest: A manifest, or the JSON file that holds one.
        partition: The partition, where JSON cannot hold it (an `embed` function, a partition of
            your own).
    """
    if isinstance(manifest, Mapping):
        return _rebuilt(manifest, partition)
    with reading(manifest, "manifest"):
        return _rebuilt(_read(Path(manifest)), partition)


def _rebuilt(wanted: Mapping[str, Any], partition: Partition | None) -> Federation:
    if wanted.get("format") != FORMAT:
        raise StateError(
            f"this version reads manifests of format {FORMAT}; {wanted.get('format')!r} came."
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
        raise StateError(f"{path} is not a manifest: a JSON object was expected.")
    return manifest


def _partition(recipe: Mapping[str, Any]) -> Partition:
    name, fields = recipe["name"], {k: v for k, v in recipe.items() if k != "name"}
    if name not in PARTITIONS or fields.get("embed") is not None:
        raise StateError(
            f'the manifest\'s partition "{name}" holds code that JSON cannot carry. '
            "Hand it over: rebuild(manifest, partition=...)."
        )
    return partition_named(name, **fields)


def _repeat(federation: Federation, step: Mapping[str, Any]) -> Federation:
    if "select" in step:
        return federation.select(step["select"])
    if "retarget" in step:
        return federation.retarget(**step["retarget"])
    if "share" in step:
        return federation.share(**step["share"])
    raise StateError(
        f"the manifest has an unknown step {sorted(step)}; known: retarget, select, share."
    )
