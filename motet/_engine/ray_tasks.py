"""Independent pieces of work as Ray tasks, on one machine or several.

A task keeps nothing: if its process or its machine dies, Ray repeats it somewhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from motet._engine.backends.ray_actors import CLAIM, LOCAL, RETRIES, _connection
from motet._engine.backends.ray_actors import plain as plain
from motet.errors import StateError

Job = TypeVar("Job")


def in_tasks(
    work: Callable[[Any, Any], Any],
    shared: Any,
    jobs: Sequence[Job],
    *,
    address: str = LOCAL,
    at_once: int = 2,
) -> Iterator[tuple[Job, Any]]:
    """Do independent work in other processes; yield each job with its result when it is there.

    Args:
        work: A function of `shared` and a job; one that any process can import.
        shared: What all jobs need: it travels once to each machine.
        jobs: The pieces of work, largest first.
        address: Where Ray is; "local" starts it here.
        at_once: How many tasks may be under way at the same time.
    """
    _connection.join(address)
    waiting, running = list(jobs)[::-1], dict[Any, Job]()
    try:
        kept = ray.put(shared)
        task = ray.remote(num_cpus=CLAIM, max_retries=RETRIES, scheduling_strategy="SPREAD")(_do)
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop()
                running[task.remote(work, [kept], job, sys.path)] = job
            (done, *_), _ = ray.wait(list(running))
            yield running.pop(done), _answer(done)
    finally:
        if ray.is_initialized():  # a caller that stops early leaves nothing at work
            for unfinished in running:
                ray.cancel(unfinished, force=True)
        _connection.leave()


def _do(work: Callable[[Any, Any], Any], shared: list[Any], job: Any, modules: list[str]) -> Any:
    """Do one piece of work, in a task."""
    sys.path.extend(place for place in modules if place not in sys.path)
    torch.set_num_threads(1)  # a sum split over threads would be rounded differently
    return work(ray.get(shared[0]), job)


def _answer(done: Any) -> Any:
    try:
        return ray.get(done)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise StateError(
            f"a task on Ray died {RETRIES + 1} times; why is in its log, under /tmp/ray on its "
            "machine. Finished results are kept: run the same comparison again to continue."
        ) from error
