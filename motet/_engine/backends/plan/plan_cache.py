"""Cache of measured plans: a small JSON file in the user's cache directory."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from pathlib import Path
from typing import Any

import torch

from motet._core.atomic import write_atomically
from motet._engine.backends.plan.planning import LARGEST_CHUNK, ExecutionPlan
from motet._engine.run_spec import RunSpec

VERSION = 2  # of how plans are chosen: those that were chosen otherwise are measured again
FIELDS = ("mode", "chunk_size", "traced", "channels_last", "workers")
log = logging.getLogger("motet")


def name_of(setting: RunSpec, rule: ExecutionPlan, cohort: int, *, traced: bool | None) -> str:
    """Name what a measurement depends on: machine, network, method, batches, about the cohort."""
    network = {name: list(leaf.shape) for name, leaf in setting.initial.items()}
    layers = [type(module).__name__ for module in setting.task.skeleton.modules()]
    batches = [plan.batch_size for plan in setting.method.plans().values()]
    optimizer = type(setting.method.optimizer).__name__
    cohorts = min(cohort, LARGEST_CHUNK * 8).bit_length()  # larger ones are all alike
    given = [rule.chunk_size, rule.mode, rule.traced, traced, rule.cannot_stack, rule.workers]
    about = [_machine(), network, layers, setting.method.name, optimizer, batches, cohorts, given]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:24]


def recall(name: str) -> dict[str, Any] | None:
    """Read a plan that was kept; None if there is none, or none that can be read."""
    kept = _read().get(name)
    if kept is None or not _is_plan(kept):
        return None
    timings = tuple((str(way), float(spent)) for way, spent in kept["timings"])
    return {**{field: kept[field] for field in FIELDS}, "timings": timings}


def keep(name: str, plan: ExecutionPlan) -> None:
    """Keep a plan; a cache that cannot be written is no reason to stop."""
    chosen = {field: getattr(plan, field) for field in (*FIELDS, "timings")}
    others = {other: known for other, known in _read().items() if _is_plan(known)}
    kept = {**others, name: {"version": VERSION, **chosen}}
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_path(), json.dumps(kept, indent=1).encode())
    except OSError as reason:
        log.warning("the measured plan cannot be kept in %s: %s", _path(), reason)


def _path() -> Path:
    home = os.environ.get("MOTET_CACHE")
    if home:
        return Path(home) / "plans.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "motet" / "plans.json"


def _read() -> dict[str, Any]:
    try:
        kept = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _is_plan(kept: Any) -> bool:
    return (
        isinstance(kept, dict)
        and kept.get("version") == VERSION
        and kept.get("mode") in ("stack", "loop")
        and isinstance(kept.get("chunk_size"), int)
        and kept["chunk_size"] >= 1
        and isinstance(kept.get("traced"), bool)
        and isinstance(kept.get("channels_last"), bool)
        and isinstance(kept.get("workers"), int)
        and kept["workers"] >= 1
        and _are_timings(kept.get("timings"))
    )


def _are_timings(kept: Any) -> bool:
    return isinstance(kept, list) and all(
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], int | float)
        for one in kept
    )


def _machine() -> list[Any]:
    return [torch.__version__, platform.machine(), _processor(), os.cpu_count()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
