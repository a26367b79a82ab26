"""The plan that is fastest here, by a short measurement of the run's own work.

Measured once for a machine, a network and a method, and kept on disk: the same run gets the same
plan again. Nothing of what is trained meanwhile is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from motet.backends.vectorized import Vectorized
from motet.errors import MotetError
from motet.execution import keeping
from motet.execution.planning import ExecutionPlan
from motet.execution.watching import Counting
from motet.setting import Setting
from motet.store import MemoryStore

WORTH_MEASURING = 4e12  # floating-point operations of a run: some 20 s of two cores
STEPS = 4  # of local work, for each way that is tried
PATIENCE = 15.0  # seconds, after which no further way is tried


def worth_measuring(setting: Setting, cohort: int) -> bool:
    """Tell whether a run is long enough: by its arithmetic, so the same everywhere."""
    sizes = setting.federation.rows.sizes[:, 0]
    phases = setting.method.plans().values()
    examples = sum(
        phase.length(int(sizes.mean())) * phase.width(int(sizes.mean())) for phase in phases
    )
    forward = _operations_per_example(setting)
    return 3 * forward * examples * cohort * setting.rounds >= WORTH_MEASURING


def fastest(setting: Setting, cohort: int, rule: ExecutionPlan) -> ExecutionPlan:
    """Return the fastest plan among some, remembered or measured now."""
    name = keeping.name_of(setting, rule)
    known = keeping.recall(name)
    if known is not None:
        return replace(rule, **known, reason="measured before on this machine")
    timed = measure(setting, cohort, rule)
    if not timed:
        return rule
    best = min(timed, key=lambda plan: timed[plan])
    keeping.keep(name, best)
    gain = timed[rule] / timed[best] if rule in timed else 1.0
    return replace(best, reason=f"fastest of {len(timed)} ways measured, {gain:.2f}x the rule's")


def measure(setting: Setting, cohort: int, rule: ExecutionPlan) -> dict[ExecutionPlan, float]:
    """Time some steps of local work under several plans: seconds per client."""
    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as alone:
        return alone.submit(_measure, setting, cohort, rule).result()


def _measure(setting: Setting, cohort: int, rule: ExecutionPlan) -> dict[ExecutionPlan, float]:
    started, timed = time.perf_counter(), {}
    for plan in _candidates(rule, cohort):
        if time.perf_counter() - started > PATIENCE:
            break
        try:
            timed[plan] = _seconds_per_client(_few_steps(setting), plan)
        except (MotetError, RuntimeError):  # this way does not suit the network: it is no choice
            continue
    return timed


def _candidates(rule: ExecutionPlan, cohort: int) -> Iterator[ExecutionPlan]:
    yield rule
    if rule.mode == "loop":
        yield replace(rule, channels_last=not rule.channels_last)
        return
    sizes = {max(1, rule.chunk_size // 2), min(cohort, 2 * rule.chunk_size)} - {rule.chunk_size}
    for size in sorted(sizes):
        yield replace(rule, chunk_size=size)
    yield replace(rule, mode="loop", channels_last=False)


def _few_steps(setting: Setting) -> Setting:
    method = replace(setting.method, epochs=None, steps=STEPS)
    return replace(setting, method=method, init_clients={}, store=MemoryStore())


def _seconds_per_client(setting: Setting, plan: ExecutionPlan) -> float:
    """Time one chunk, after a first pass that traces and touches memory."""
    backend = Vectorized(setting, plan)
    chunk = tuple(setting.everybody[: plan.chunk_size if plan.mode == "stack" else 1])
    info = setting.info(0, chunk)
    server = setting.method.init_server(
        setting.task, setting.initial, setting.everybody, setting.key.fold("server")
    )
    down = setting.method.broadcast(server, info)
    spent = []
    for _ in range(3):
        started = time.perf_counter()
        backend.train_chunk(down, list(chunk), info)
        spent.append(time.perf_counter() - started)
    return min(spent[1:]) / len(chunk)


def _operations_per_example(setting: Setting) -> int:
    example = setting.task.example
    assert example is not None
    counting = Counting()
    with torch.no_grad(), counting:
        setting.task.outputs(setting.initial, example)
    return counting.arithmetic
