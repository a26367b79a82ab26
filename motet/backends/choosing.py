"""Which backend a run gets, and which plan."""

from __future__ import annotations

from typing import Any

from motet.backends.backend import Backend
from motet.backends.measuring import fastest, worth_measuring
from motet.backends.serial import Serial
from motet.backends.vectorized import Vectorized
from motet.errors import CapabilityError, RequestError, nearest
from motet.execution.planning import ExecutionPlan, plan_for
from motet.setting import Setting

BACKENDS = ("serial", "vectorized", "ray")
OPTIONS = ("chunk_size", "mode", "workers", "traced", "channels_last", "device", "measure")
RAY_OPTIONS = ("address", "actors", "state_dir")
RUN = ("backend", "cohort", "init", "init_clients", "rounds", "seed", "store", "faults")
SETTINGS = (*RUN, *OPTIONS, *RAY_OPTIONS)  # of `motet.run`


def make_backend(name: str, setting: Setting, cohort: int, **options: Any) -> Backend:
    """Make the backend called `name`; "auto" stacks clients whenever the method allows it."""
    if name == "auto":
        name = "vectorized" if setting.method.vectorizable else "serial"
    if name not in BACKENDS:
        raise RequestError(f'no backend is called "{name}"; {nearest(name, [*BACKENDS, "auto"])}.')
    unknown = sorted(options.keys() - {*OPTIONS, *RAY_OPTIONS})
    if unknown:
        raise RequestError(f'a run has no setting "{unknown[0]}"; {nearest(unknown[0], SETTINGS)}.')
    if name == "ray":
        return _on_ray(setting, cohort, **options)
    for option in options.keys() & set(RAY_OPTIONS):
        raise RequestError(f'{option}= is for backend="ray"; this is backend="{name}".')
    if name == "serial":  # chunks and workers mean nothing here, and must not change a result
        return Serial(setting)
    return Vectorized(setting, make_plan(setting, cohort, **options))


def _on_ray(setting: Setting, cohort: int, *, actors: int = 2, **options: Any) -> Backend:
    try:
        from motet.backends.ray_actors import ray_backend
    except ModuleNotFoundError as missing:
        raise CapabilityError(
            'backend="ray" needs Ray, which is not installed: pip install "motet[ray]".'
        ) from missing
    where = {name: options.pop(name) for name in RAY_OPTIONS if name in options}
    plan = None
    if setting.method.vectorizable:  # an actor is one core's process unless more are asked for
        plan = make_plan(setting, -(-cohort // max(actors, 1)), **{"workers": 1, **options})
    return ray_backend(setting, plan, actors=actors, **where)


def make_plan(
    setting: Setting, cohort: int, *, measure: bool | None = None, **wishes: Any
) -> ExecutionPlan:
    """Plan the execution of a run: by rule, or by measurement where it pays (or is asked for)."""
    rule = plan_for(setting, cohort, wishes=wishes)
    chosen = ("chunk_size", "mode", "channels_last", "device")
    free = all(wishes.get(name) is None for name in chosen)
    if measure is None:
        measure = free and worth_measuring(setting, cohort)
    return fastest(setting, cohort, rule) if measure else rule
