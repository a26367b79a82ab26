"""Execution plans: rules, and a short measurement where it pays.

A plan changes the speed of a run and the last bits of its numbers, nothing else. Rules depend on
the model, the data and the length of the run alone, so that the same run has the same plan
everywhere. Long runs are worth a measurement; its choice is kept on disk, and written into the
config of a run directory.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from torch import nn

from motet._core import tree
from motet._engine.backends.plan.batch_widths import batch_widths, has_separate_rows
from motet._engine.run_spec import RunSpec
from motet._tracing import support
from motet._training.devices import CPU, check_device
from motet._training.execution import Execution, Mode
from motet.task import Task

log = logging.getLogger("motet")
CACHE_BYTES = 16 * 2**20  # of parameters stacked at once: more falls out of the cache
LARGEST_CHUNK = 128  # more gains nothing, and takes memory
CHUNK_ON_LARGE_BASE = 4  # few clients fill a processor with its products; more fill the memory
TRACING = 0.2  # seconds per phase of local work: two programs or so, for full and for ragged stacks
TRACING_EACH = 4e-3  # seconds more for every operation of a forward pass
SAVED_PER_STEP = 1.5e-3  # seconds: calls that a traced step does without
SAVED_PER_MEGABYTE = 0.45e-3  # seconds, and megabytes of parameters that it does not copy
DEEP = 50  # operations of a pass that fills the memory with what it computes on the way
LARGE_IF_DEEP, LARGE = 2.5e6, 1e7  # arithmetic of an operation on one client's batch
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
        untraced: Why steps are never traced with this torch; empty if they could be.
        torch_threads: Threads of torch's own in each worker: more than 1 where there are fewer
            chunks than cores. Splitting a sum over threads changes its rounding.
        cannot_stack: Why clients cannot be stacked; empty if they could be.
        timings: What was measured: ways to carry the run out, and milliseconds per client.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=0, backend="vectorized")
        >>> run.backend.plan.mode
        'stack'
    """

    mode: Mode
    chunk_size: int
    workers: int
    traced: bool
    channels_last: bool
    device: str = CPU
    reason: str = ""
    untraced: str = ""
    torch_threads: int = 1
    cannot_stack: str = ""
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)

    @property
    def way(self) -> str:
        """What is done, in a few words."""
        how = f"stacks of {self.chunk_size}" if self.mode == "stack" else "one after another"
        traced = ", traced" if self.traced else ""
        images = ", channels last" if self.channels_last else ""
        threads = "1 thread" if self.workers == 1 else f"{self.workers} threads"
        return f"{how}{traced}{images}, {threads}"

    def execution(self, setting: RunSpec) -> Execution:
        """Return what `fit` needs to know about the plan.

        Args:
            setting: Method, task and data of the run.
        """
        return Execution(
            mode=self.mode,
            traced=self.traced,
            widths=batch_widths(setting),
            channels_last=self.channels_last,
            separate_rows=has_separate_rows(setting.task),
        )

    def __str__(self) -> str:
        how = "all at once" if self.mode == "stack" else "one after another"
        steps = "traced once and replayed" if self.traced else "as they are written"
        images = ", channels last" if self.channels_last else ""
        where = "" if self.device == CPU else f" on {self.device}"
        off = f"\ntracing is off: {self.untraced}" if self.untraced else ""
        each = f" of {self.torch_threads}" if self.torch_threads > 1 else ""
        return (
            f"chunks of {self.chunk_size} clients, trained {how}{where}{images}; steps {steps}; "
            f"{self.workers} threads{each} ({self.reason}){off}"
        )


def plan_for(
    setting: RunSpec,
    cohort: int,
    *,
    wishes: Mapping[str, Any] | None = None,
    cannot_stack: str = "",
) -> ExecutionPlan:
    """Choose a plan by rule; what the caller wishes stays as it is.

    Args:
        setting: What is run.
        cohort: Clients per round.
        wishes: Fields of the plan that the caller has chosen.
        cannot_stack: Why clients cannot be stacked, if they cannot.
    """
    given = {name: value for name, value in (wishes or {}).items() if value is not None}
    task, device = setting.task, given.get("device", CPU)
    check_device(device)
    recurrent = is_recurrent(task)
    unsuited = _has_large_operations(setting) or bool(given.get("channels_last"))
    looped = bool(cannot_stack) or recurrent or (device == CPU and unsuited)
    mode: Mode = given.get("mode", "loop" if looped else "stack")
    operations = count_operations(task)
    rule = ExecutionPlan(
        mode=mode,
        chunk_size=default_chunk(setting, cohort, mode)
        if device == CPU
        else min(cohort, LARGEST_CHUNK),
        workers=(os.cpu_count() or 1) if device == CPU else 1,
        traced=False,
        channels_last=mode == "loop" and not task.frozen,
        reason=f"clients cannot be stacked: {cannot_stack}"
        if cannot_stack
        else "by rule: " + _why(mode, operations, recurrent=recurrent),
        cannot_stack=cannot_stack,
    )
    long_enough = is_traceable(task) and _pays(setting, cohort, rule)
    rule = replace(rule, **{"traced": long_enough, **given})
    if device == CPU:
        spare = _threads_to_spare(math.ceil(cohort / rule.chunk_size))
        workers = given.get("workers", max(1, rule.workers // spare))
        rule = replace(rule, torch_threads=spare, workers=workers)
    plan = traced_if_possible(rule)
    if given.get("traced") and plan.untraced:
        log.warning("traced=true has no effect: %s; steps run as they are written.", plan.untraced)
    return plan


def is_traceable(task: Task) -> bool:
    """Tell whether a step has few enough operations to be traced in a moment."""
    return count_operations(task) <= MOST_OPERATIONS and not is_recurrent(task)


def traced_if_possible(plan: ExecutionPlan) -> ExecutionPlan:
    """Leave tracing out of a plan, and note why, if this torch does not support it."""
    why = support.why_untraced(self_test=plan.traced)  # which takes a moment, so only if needed
    return plan if why is None else replace(plan, traced=False, untraced=why)


def default_chunk(
    setting: RunSpec, cohort: int, mode: Mode = "stack", cores: int | None = None
) -> int:
    """Choose how many clients to stack: as many as stay in the cache, in chunks of equal size.

    There is a chunk for every core, and another one for every core, and so on, as long as there are
    clients: a thread without a chunk would idle. By cores, not by `workers`: how many threads are
    asked for changes no bit of a result.
    """
    most = max(1, min(LARGEST_CHUNK, CACHE_BYTES // max(_bytes_of_client(setting), 1)))
    if tree.count_bytes(setting.task.frozen) > CACHE_BYTES:
        most = min(most, CHUNK_ON_LARGE_BASE)
    if mode == "loop":  # nothing is gained by a large one, and threads share many small ones better
        most = max(1, min(most, cohort // 8))
    return even_chunk(cohort, most, cores or os.cpu_count() or 1)


def even_chunk(cohort: int, most: int, threads: int) -> int:
    """Choose a size up to `most` such that all threads get as many chunks, or about as many.

    >>> [even_chunk(30, most, threads=2) for most in (100, 12, 4)]
    [15, 8, 4]
    """
    chunks = min(cohort, threads * math.ceil(math.ceil(cohort / most) / threads))
    return math.ceil(cohort / max(chunks, 1))


def _threads_to_spare(chunks: int, cores: int | None = None) -> int:
    """Say how many threads torch may use for a chunk, so that few chunks leave no core idle.

    >>> [_threads_to_spare(chunks, cores=8) for chunks in (1, 3, 4, 5, 8, 100)]
    [8, 2, 2, 1, 1, 1]
    """
    return max(1, (cores or os.cpu_count() or 1) // max(chunks, 1))


def _bytes_of_client(setting: RunSpec) -> int:
    """Count what a step of one client changes: its parameters, and a part of its moments.

    An optimizer walks over its moments once or twice a step; the parameters are read all the time.
    """
    params = setting.task.trainable(setting.initial)
    moments = setting.method.optimizer.init(params)
    return tree.count_bytes(params) + tree.count_bytes(moments) // 4


def count_operations(task: Task) -> int:
    """Count the tensor operations of a forward pass: the same on every machine."""
    if task.example is None:
        return 0
    network, example = task.skeleton.eval(), task.example
    try:
        return support.count(lambda: network(example)).operations
    except Exception:  # a network may refuse a batch of one; then the count is unknown
        return MOST_OPERATIONS + 1


def _has_large_operations(setting: RunSpec) -> bool:
    """Tell whether one client's batch keeps a processor busy for longer than calls take.

    A deep network in stacks also fills the memory with what it computes on the way. Products of
    matrices are as fast in stacks, convolutions are not.
    """
    task, operations, size = setting.task, count_operations(setting.task), _mean_size(setting)
    rows = max((plan.width(size) for plan in setting.method.plans().values()), default=0)
    images, deep, example = has_convolutions(task), operations >= DEEP, task.example
    if images and (task.has_batch_statistics or example is None):
        return True
    if operations > MOST_OPERATIONS or example is None or not (images or deep):
        return images
    arithmetic = support.count(lambda: task.outputs(setting.initial, example)).arithmetic
    return rows * arithmetic / operations >= (LARGE_IF_DEEP if deep else LARGE)


def _mean_size(setting: RunSpec) -> int:
    """Return how many examples a client has for training, on average."""
    sizes = setting.federation.rows.sizes[:, 0]
    return math.ceil(float(sizes.mean())) if len(sizes) else 0


def _pays(setting: RunSpec, cohort: int, plan: ExecutionPlan) -> bool:
    """Tell whether tracing saves more than it costs: by rough arithmetic, the same everywhere."""
    mean, phases = _mean_size(setting), setting.method.plans().values()
    at_once = min(plan.chunk_size, cohort) if plan.mode == "stack" else 1
    chunks = math.ceil(cohort / at_once)
    steps = setting.rounds * chunks * sum(phase.length(mean) for phase in phases)
    megabytes = at_once * tree.count_bytes(setting.initial) / 2**20
    saved = steps * (SAVED_PER_STEP + SAVED_PER_MEGABYTE * megabytes)
    return saved > (TRACING + TRACING_EACH * count_operations(setting.task)) * len(phases)


def has_images(setting: RunSpec) -> bool:
    """Tell whether anything could be laid out with channels last.

    Not with frozen weights: they stay as they are, and torch's gradient through a normalisation
    layer with frozen weights crashes for images that are laid out so.
    """
    if setting.task.frozen:
        return False
    example = setting.task.example
    leaves = [*setting.initial.values(), *([] if example is None else [example])]
    return any(leaf.ndim == 4 for leaf in leaves)


def has_convolutions(task: Task) -> bool:
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(isinstance(module, kinds) for module in task.skeleton.modules())


@runtime_checkable
class LoopsOverTime(Protocol):
    """A layer of ours that uses torch's recurrent kernel where it is not stacked."""

    loops_over_time: bool


def is_recurrent(task: Task) -> bool:
    """Return whether a layer loops over time: torch's own kernel for it cannot be stacked."""
    modules = task.skeleton.modules()
    return any(
        isinstance(module, nn.RNNBase)
        or (isinstance(module, LoopsOverTime) and module.loops_over_time)
        for module in modules
    )


def _why(mode: Mode, operations: int, *, recurrent: bool) -> str:
    if recurrent:
        return "one client at a time can use torch's own recurrent kernel"
    if mode == "loop":
        return "stacks of operations as large as this network's are slower on a CPU"
    if operations > MOST_OPERATIONS:
        return f"a pass of {operations} operations takes too long to trace"
    return "small models are fastest in stacks that fit the cache"
