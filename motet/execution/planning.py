"""Which way of training suits a run: rules, and a short measurement where it pays.

A plan changes the speed of a run and the last bits of its numbers, nothing else. Rules depend on
the model, the data and the length of the run alone, so that the same run has the same plan
everywhere. Long runs are worth a measurement; its choice is kept on disk, and written into the
config of a run directory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from motet import tree
from motet.execution.choice import Execution, Mode
from motet.execution.devices import CPU, check_device
from motet.execution.watching import Counting
from motet.setting import Setting
from motet.task import Task

CACHE_BYTES = 16 * 2**20  # of parameters stacked at once: more falls out of the cache
LARGEST_CHUNK = 32
TRACING = 0.6  # seconds per phase of local work: two programs or so, for full and for ragged stacks
SAVED_PER_STEP = 1.5e-3  # seconds: calls that a traced step does without
SAVED_PER_MEGABYTE = 0.45e-3  # seconds, and megabytes of parameters that it does not copy
MOST_OPERATIONS = 400  # of a forward pass: tracing one that loops over time takes too long


@dataclass(frozen=True, kw_only=True)
class ExecutionPlan:
    """How the vectorized backend trains and serves.

    Attributes:
        mode: "stack" steps all clients of a chunk at once, "loop" one after another.
        chunk_size: Clients per chunk.
        workers: Threads that work on chunks; never changes a bit of the result.
        traced: Whether steps are traced once and replayed.
        channels_last: Whether "loop" lays images out with their channels last.
        device: Where stacks are trained: "cpu", "cuda", ...; it changes the last bits of a result.
        reason: Why this plan, in a sentence.
    """

    mode: Mode
    chunk_size: int
    workers: int
    traced: bool
    channels_last: bool
    device: str = CPU
    reason: str = ""

    def execution(self, setting: Setting) -> Execution:
        """Say what `fit` has to know of the plan."""
        method = setting.method
        plans = [*method.plans().values(), *method.adapt_plans().values()]
        return Execution(
            mode=self.mode,
            traced=self.traced,
            widths=frozenset(plan.batch_size for plan in plans if plan.batch_size is not None),
            channels_last=self.channels_last,
        )

    def __str__(self) -> str:
        how = "all at once" if self.mode == "stack" else "one after another"
        steps = "traced once and replayed" if self.traced else "as they are written"
        images = ", channels last" if self.channels_last else ""
        where = "" if self.device == CPU else f" on {self.device}"
        return (
            f"chunks of {self.chunk_size} clients, trained {how}{where}{images}; steps {steps}; "
            f"{self.workers} threads ({self.reason})"
        )


def plan_for(
    setting: Setting, cohort: int, *, wishes: Mapping[str, Any] | None = None
) -> ExecutionPlan:
    """Choose a plan by rule; what the caller wishes stays as it is."""
    given = {name: value for name, value in (wishes or {}).items() if value is not None}
    task, device = setting.task, given.get("device", CPU)
    check_device(device)
    recurrent = _is_recurrent(task)
    looped = recurrent or (device == CPU and _has_convolutions(task))
    mode: Mode = "loop" if looped else "stack"
    operations = count_operations(task)
    rule = ExecutionPlan(
        mode=mode,
        chunk_size=default_chunk(task, cohort, mode)
        if device == CPU
        else min(cohort, LARGEST_CHUNK),
        workers=(os.cpu_count() or 1) if device == CPU else 1,
        traced=False,
        channels_last=mode == "loop",
        reason="by rule: " + _why(mode, operations, recurrent=recurrent),
    )
    traceable = operations <= MOST_OPERATIONS and not recurrent
    long_enough = traceable and _pays(setting, cohort, rule)
    return replace(rule, **{"traced": long_enough, **given})


def default_chunk(task: Task, cohort: int, mode: Mode = "stack") -> int:
    """Choose how many clients to stack: as many as stay in the cache, in chunks of equal size."""
    size = tree.count_bytes(dict(task.skeleton.named_parameters()))
    most = max(1, min(LARGEST_CHUNK, CACHE_BYTES // max(size, 1)))
    if mode == "loop":  # nothing is gained by a large one, and threads share many small ones better
        most = max(1, min(most, cohort // 8))
    chunks = math.ceil(cohort / most)
    return math.ceil(cohort / chunks)


def count_operations(task: Task) -> int:
    """Count the tensor operations of a forward pass: the same on every machine."""
    if task.example is None:
        return 0
    counting = Counting()
    with torch.no_grad(), counting:
        task.skeleton.eval()(task.example)
    return counting.operations


def _pays(setting: Setting, cohort: int, plan: ExecutionPlan) -> bool:
    """Tell whether tracing saves more than it costs: by rough arithmetic, the same everywhere."""
    sizes = setting.federation.rows.sizes[:, 0]
    mean = math.ceil(float(sizes.mean())) if len(sizes) else 0
    phases = setting.method.plans().values()
    at_once = min(plan.chunk_size, cohort) if plan.mode == "stack" else 1
    chunks = math.ceil(cohort / at_once)
    steps = setting.rounds * chunks * sum(phase.length(mean) for phase in phases)
    megabytes = at_once * tree.count_bytes(setting.initial) / 2**20
    saved = steps * (SAVED_PER_STEP + SAVED_PER_MEGABYTE * megabytes)
    return saved > TRACING * len(phases)


def _has_convolutions(task: Task) -> bool:
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(isinstance(module, kinds) for module in task.skeleton.modules())


def _is_recurrent(task: Task) -> bool:
    """Tell whether a layer loops over time: torch's own kernel for it knows no stacks."""
    modules = task.skeleton.modules()
    return any(isinstance(m, nn.RNNBase) or getattr(m, "loops_over_time", False) for m in modules)


def _why(mode: Mode, operations: int, *, recurrent: bool) -> str:
    if recurrent:
        return "one client at a time can use torch's own recurrent kernel"
    if mode == "loop":
        return "stacked convolutions are slower on a CPU"
    if operations > MOST_OPERATIONS:
        return f"a pass of {operations} operations takes too long to trace"
    return "small models are fastest in stacks that fit the cache"
