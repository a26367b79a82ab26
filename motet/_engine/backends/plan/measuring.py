"""Measurement of the fastest plan, on real clients of the run, in all of its threads.

Measured once for a machine, a network and a method, and kept on disk: the same run gets the same
plan again. Nothing of what is trained meanwhile is kept, so that a run whose plan was measured and
one whose plan was remembered are the same to the last bit; traced steps are kept
(docs/decisions/0040-plans-are-measured.md).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from motet._core import tree
from motet._engine.backends.plan import plan_cache as keeping
from motet._engine.backends.plan.planning import (
    CACHE_BYTES,
    ExecutionPlan,
    default_chunk,
    even_chunk,
    has_convolutions,
    has_images,
    is_recurrent,
    is_traceable,
    traced_if_possible,
)
from motet._engine.backends.vectorized import Vectorized
from motet._engine.faults import NO_FAULTS
from motet._engine.run_spec import RunSpec
from motet._engine.stores.memory import MemoryStore
from motet._tracing import support
from motet._training.batching import Plan
from motet.method import ClientData

WORTH_MEASURING = 4.0  # seconds of a run on two cores, by the arithmetic below
ARITHMETIC = 6e10  # floating-point operations a second
CALL = 5e-6  # seconds per tensor operation
STEPS = 6  # of a phase of local work, at most
SLOW = 0.5  # seconds: a pass that takes so long is not repeated
PASS = 0.15  # seconds of a pass over some clients, about: so many steps are timed
LONG_ENOUGH = 0.15  # seconds of passes that are not chance
LONGEST = 0.6  # seconds of a pass over a stack, about
FEWEST = 4  # clients of a stack that is tried out: their steps are slow if no more are affordable
SHARE = 0.06  # of the run's estimated time that measuring may take
LEAST = 0.3  # seconds that it may take anyway
CLEARLY = 1.06  # how much faster than the rule's plan another one has to be
FEWER_THREADS = 1.3  # the same for one with fewer threads: a disturbed clock shows them too fast
BUSY = 2.0  # tasks per core: on a machine that others use as well, a clock tells little
SLOWER = 1.5  # times as slow as the fastest in its first pass: there is no second one
HOPELESS = 4.0  # times as slow as the fastest: no variant of it is tried


def worth_measuring(setting: RunSpec, cohort: int) -> bool:
    """Tell whether a run is long enough: by its arithmetic, so the same everywhere."""
    return _estimated_seconds(setting, cohort) >= WORTH_MEASURING


def fastest(
    setting: RunSpec,
    cohort: int,
    rule: ExecutionPlan,
    works: Callable[[ExecutionPlan], bool] = lambda _: True,
    *,
    traced: bool | None = None,
) -> ExecutionPlan:
    """Return the fastest plan among some, remembered or measured now.

    Args:
        setting: What is run.
        cohort: Clients per round.
        rule: The plan by rule.
        works: Says whether a plan gives right results.
        traced: Whether steps are traced, if the caller has decided it.
    """
    name = keeping.name_of(setting, rule, cohort, traced=traced)
    known = keeping.recall(name)
    if known is not None:
        before = replace(rule, **known, reason="measured before on this machine")
        return traced_if_possible(before)
    with torch.random.fork_rng(devices=[]):  # torch's own generator stays as it was
        timed = measure(setting, cohort, rule, works, traced=traced)
    if not timed:
        return rule
    best = min(timed, key=lambda plan: timed[plan] * _handicap(plan, rule))
    gain = timed[rule] / timed[best] if rule in timed else 1.0
    told = f"fastest of {len(timed)} ways measured, {gain:.2f}x the rule's"
    timings = tuple((plan.way, 1000 * seconds) for plan, seconds in timed.items())
    chosen = replace(best, reason=told, timings=timings)
    keeping.keep(name, chosen)
    return chosen


def measure(
    setting: RunSpec,
    cohort: int,
    rule: ExecutionPlan,
    works: Callable[[ExecutionPlan], bool] = lambda _: True,
    *,
    traced: bool | None = None,
) -> dict[ExecutionPlan, float]:
    """Time some steps of local work under several plans: seconds per client."""
    timed: dict[ExecutionPlan, float] = {}
    started = time.perf_counter()
    step = _seconds_per_step(setting, rule)
    short = _long_enough(setting, rule, step)
    clients = rule.workers * _clients_per_thread(rule)
    known = {replace(rule, traced=False): step} if PASS < step * clients < math.inf else {}
    most = max(FEWEST, int(LONGEST / (step * short.steps)))  # clients of a stack
    for plan in _candidates(setting, cohort, rule, timed, most, traced=traced):
        both = len({measured.mode for measured in timed}) > 1  # turns and stacks are always tried
        if timed and (both or plan.mode == rule.mode):
            allowed = max(LEAST, SHARE * _whole_run(short, cohort, timed))
            expected = 2 * plan.workers * _clients_per_thread(plan) * min(timed.values())
            if time.perf_counter() - started + expected > allowed:
                continue
        if plan in timed or (_is_untried(plan, rule) and not works(plan)):
            continue
        try:
            bound = SLOWER * min(timed.values(), default=math.inf)
            timed[plan] = known.get(plan) or _seconds_per_client(replace(short, bound=bound), plan)
        except Exception:  # whatever it is: this way does not suit the network
            continue
    return timed


def _candidates(
    setting: RunSpec,
    cohort: int,
    rule: ExecutionPlan,
    timed: Mapping[ExecutionPlan, float],
    most: int,
    *,
    traced: bool | None,
) -> Iterator[ExecutionPlan]:
    """Propose plans: coarse differences first, then variants of what was fastest so far."""
    yield rule
    as_written = replace(rule, traced=bool(traced))
    other = _other_mode(setting, cohort, as_written, most)
    if other is not None:
        yield other
    yield as_written
    if not timed:
        return
    if traced is None and not rule.untraced and is_traceable(setting.task):
        for plan in sorted(timed, key=timed.__getitem__):
            if timed[plan] < HOPELESS * min(timed.values()):
                yield replace(plan, traced=True)
    if has_images(setting) and (best := _best(timed)).mode == "loop":
        yield replace(best, channels_last=not best.channels_last)
    if tree.count_bytes(setting.task.frozen) <= CACHE_BYTES:  # else more clients fill the memory
        yield from _other_sizes(_best(timed), cohort)
    if (
        best := _best(timed)
    ).workers > 1 and not _is_busy():  # threads that wait for Python's lock hinder each other
        yield replace(best, workers=1)


def _handicap(plan: ExecutionPlan, rule: ExecutionPlan) -> float:
    """Say how much faster than the rule's a plan has to be, as a factor on its time.

    Two threads are disturbed by whatever else runs on the machine; one is hardly. A wrong choice of
    fewer threads costs as much time as there are cores.
    """
    if plan.workers < rule.workers:
        return FEWER_THREADS
    return 1.0 if plan == rule else CLEARLY


def _is_untried(plan: ExecutionPlan, rule: ExecutionPlan) -> bool:
    """Tell whether a plan does something that was not tried out for the rule's."""
    return plan.mode != rule.mode or (plan.channels_last and not rule.channels_last)


def _best(timed: Mapping[ExecutionPlan, float]) -> ExecutionPlan:
    return min(timed, key=timed.__getitem__)


def _other_mode(
    setting: RunSpec, cohort: int, plan: ExecutionPlan, most: int
) -> ExecutionPlan | None:
    task = setting.task
    if plan.mode == "stack":
        size = default_chunk(setting, cohort, "loop")
        return replace(plan, mode="loop", chunk_size=size, channels_last=False)
    size = default_chunk(setting, cohort, "stack")
    unsuited = is_recurrent(task) or (has_convolutions(task) and task.has_batch_statistics)
    if size < 2 or unsuited or plan.cannot_stack:
        return None
    size = even_chunk(cohort, min(size, most), plan.workers)
    return replace(plan, mode="stack", chunk_size=size, channels_last=False)


def _other_sizes(best: ExecutionPlan, cohort: int) -> Iterator[ExecutionPlan]:
    if best.mode == "loop":
        return
    for most in (best.chunk_size * 4, best.chunk_size // 2):
        size = even_chunk(cohort, max(most, 1), best.workers)  # no thread without work
        if size != best.chunk_size:
            yield replace(best, chunk_size=size)


@dataclass(frozen=True)
class Short(RunSpec):
    """A setting in which clients take a few steps of every phase, and keep nothing.

    Attributes:
        steps: How many.
        bound: Seconds per client; what takes longer is not timed again.
    """

    steps: int = STEPS
    bound: float = math.inf

    @classmethod
    def of(cls, setting: RunSpec, steps: int) -> Short:
        """Shorten a setting."""
        same = {part.name: getattr(setting, part.name) for part in fields(RunSpec)}
        same |= {"store": MemoryStore(), "init_clients": {}, "faults": NO_FAULTS}
        return cls(**same, steps=steps)

    def data(self, client: str, plans: Mapping[str, Plan], number: int) -> ClientData:
        """Draw the first batches of each phase."""
        size = self.federation.size
        few = {
            name: plan
            if plan.length(size(client, plan.split)) <= self.steps
            else replace(plan, epochs=None, steps=self.steps)
            for name, plan in plans.items()
        }
        return super().data(client, few, number)

    def usual_clients(self, count: int) -> tuple[str, ...]:
        """Choose clients that have about as many examples as most."""
        sizes = self.federation.rows.sizes[:, 0]
        away = np.abs(sizes - np.median(sizes))
        nearest = np.argsort(away, kind="stable")[:count]
        return tuple(sorted(self.federation.clients[place] for place in nearest.tolist()))


def _seconds_per_step(setting: RunSpec, rule: ExecutionPlan) -> float:
    """Time one step of every phase as it is written, per client and in all threads."""
    try:
        return _seconds_per_client(Short.of(setting, 1), replace(rule, traced=False))
    except Exception:  # the same will happen to the rule's plan, which is then no choice
        return math.inf


def _long_enough(setting: RunSpec, rule: ExecutionPlan, step: float) -> Short:
    """Choose how many steps to time: one where steps are slow, else some more."""
    clients = rule.workers * _clients_per_thread(rule)
    return Short.of(setting, max(1, min(STEPS, int(PASS / (step * clients)))))


def _clients_per_thread(plan: ExecutionPlan) -> int:
    return plan.chunk_size if plan.mode == "stack" else min(plan.chunk_size, 2)


def _seconds_per_client(short: Short, plan: ExecutionPlan) -> float:
    """Time as many chunks as there are threads, after a pass that traces and touches memory."""
    clients = short.usual_clients(plan.workers * _clients_per_thread(plan))
    trying = replace(plan, chunk_size=min(plan.chunk_size, -(-len(clients) // plan.workers)))
    backend = Vectorized(short, trying)
    info = short.info(0, clients)
    server = short.method.init_server(
        short.task, short.initial, short.everybody, short.key.fold("server")
    )
    down = short.method.broadcast(server, info)
    spent: list[float] = []
    busy, threads = _is_busy(), plan.workers * plan.torch_threads
    for _ in range(4):
        started, worked = time.perf_counter(), time.process_time()
        backend.train(down, info)
        worked, passed = time.process_time() - worked, time.perf_counter() - started
        spent.append(worked / threads if busy else passed)
        if backend.failures:
            raise backend.failures[0]
        slow = spent[0] > min(SLOW, short.bound * len(clients))
        if slow and not plan.traced:  # nothing else happens in a first pass
            break
        if sum(spent[1:]) > LONG_ENOUGH:
            break
    return min(spent[1:] or spent) / len(clients)


def _is_busy() -> bool:
    """Tell whether others use this machine: then processor time is compared, not the clock's."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load > BUSY * (os.cpu_count() or 1)


def _whole_run(short: Short, cohort: int, timed: Mapping[ExecutionPlan, float]) -> float:
    """Estimate the seconds of the whole run from the fastest way so far."""
    sizes = short.federation.rows.sizes[:, 0]
    size = int(sizes.mean()) if len(sizes) else 0
    lengths = [phase.length(size) for phase in short.method.plans().values()]
    cut = sum(lengths) / max(1, sum(min(length, short.steps) for length in lengths))
    return min(timed.values()) * cut * cohort * short.rounds


def _estimated_seconds(setting: RunSpec, cohort: int) -> float:
    """Estimate the seconds of a run by counting."""
    sizes = setting.federation.rows.sizes[:, 0]
    size = int(sizes.mean()) if len(sizes) else 0
    phases = setting.method.plans().values()
    steps = sum(phase.length(size) for phase in phases)
    examples = sum(phase.length(size) * phase.width(size) for phase in phases)
    example = setting.task.example
    assert example is not None
    once = support.count(lambda: setting.task.outputs(setting.initial, example))
    per_client = 3 * (once.arithmetic * examples / ARITHMETIC + once.operations * steps * CALL)
    return per_client * cohort * setting.rounds
