"""Creation of backends by name, with their plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from motet._engine.backends.backend import Backend
from motet._engine.backends.plan.measuring import fastest, worth_measuring
from motet._engine.backends.plan.planning import ExecutionPlan, has_images, plan_for
from motet._engine.backends.plan.probing import Trial
from motet._engine.backends.serial import Serial
from motet._engine.backends.vectorized import Vectorized
from motet._engine.run_spec import RunSpec
from motet.errors import CapabilityError, RequestError, nearest

BACKENDS = ("serial", "vectorized", "ray")
OPTIONS = ("chunk_size", "mode", "workers", "traced", "channels_last", "device", "measure")
RAY_OPTIONS = ("address", "actors", "state_dir")
RUN = ("backend", "cohort", "init", "init_clients", "rounds", "seed", "store", "faults", "trial")
SETTINGS = (*RUN, *OPTIONS, *RAY_OPTIONS)  # of `motet.run`


def make_backend(
    name: str,
    setting: RunSpec,
    cohort: int,
    *,
    server: Any = None,
    plan: ExecutionPlan | None = None,
    **options: Any,
) -> Backend:
    """Make the backend called `name`; "auto" stacks clients whenever the method allows it.

    Args:
        name: One of `BACKENDS`, or "auto".
        setting: What is run.
        cohort: Clients per round.
        server: The state before the first round, for a try-out; None: nothing is tried out.
        plan: The plan of an equal run; None: it is made.
        **options: Of the plan, and of Ray.
    """
    if name == "auto":
        name = "vectorized" if setting.method.vectorizable else "serial"
    if name not in BACKENDS:
        raise RequestError(
            f'no backend is called "{name}"; {nearest(name, [*BACKENDS, "auto"])}.',
            option="backend",
        )
    unknown = sorted(options.keys() - {*OPTIONS, *RAY_OPTIONS})
    if unknown:
        raise RequestError(f'a run has no setting "{unknown[0]}"; {nearest(unknown[0], SETTINGS)}.')
    if name != "ray":
        for option in options.keys() & set(RAY_OPTIONS):
            raise RequestError(f'{option}= is for backend="ray"; this is backend="{name}".')
    trial = None if server is None else Trial.of(setting, server)
    if trial is not None:
        trial.check_work()
    if name == "ray":
        return _on_ray(setting, cohort, trial, **options)
    if name == "serial":  # chunks and workers mean nothing here, and must not change a result
        return Serial(setting)
    return Vectorized(setting, plan or make_plan(setting, cohort, trial, **options))


def _on_ray(
    setting: RunSpec, cohort: int, trial: Trial | None, *, actors: int = 2, **options: Any
) -> Backend:
    try:
        from motet._engine.backends.ray_actors import ray_backend
    except ModuleNotFoundError as missing:
        raise CapabilityError(
            'backend="ray" needs Ray, which is not installed: pip install "motet[ray]".'
        ) from missing
    where = {name: options.pop(name) for name in RAY_OPTIONS if name in options}
    plan = None
    if setting.method.vectorizable:  # an actor is one core's process unless more are asked for
        share = -(-cohort // max(actors, 1))
        plan = make_plan(setting, share, trial, **{"workers": 1, **options})
        plan = replace(plan, torch_threads=1)
    return ray_backend(setting, plan, actors=actors, **where)


def make_plan(
    setting: RunSpec,
    cohort: int,
    trial: Trial | None = None,
    *,
    measure: bool | None = None,
    **wishes: Any,
) -> ExecutionPlan:
    """Plan the execution of a run: by rule, or by measurement where it pays (or is asked for).

    A plan that does not work in the trial gives way to one that does.
    """
    rule = plan_for(setting, cohort, wishes=wishes)
    if trial is not None:
        rule = _workable(setting, cohort, trial, rule, wishes)
    chosen = ("chunk_size", "mode", "channels_last", "device")
    free = all(wishes.get(name) is None for name in chosen)
    if measure is None:
        measure = free and worth_measuring(setting, cohort)
    if not measure:
        return rule

    def works(plan: ExecutionPlan) -> bool:
        return trial is None or not trial.why_not(plan)

    return _as_wished(fastest(setting, cohort, rule, works, traced=wishes.get("traced")), wishes)


def _as_wished(plan: ExecutionPlan, wishes: Mapping[str, Any]) -> ExecutionPlan:
    """Use as many threads as the caller wishes: their number changes no result."""
    workers = wishes.get("workers")
    return plan if workers is None else replace(plan, workers=workers)


def _workable(
    setting: RunSpec, cohort: int, trial: Trial, rule: ExecutionPlan, wishes: Mapping[str, Any]
) -> ExecutionPlan:
    """Keep a plan that works; else let clients take turns, and leave images as they are."""
    if rule.mode == "stack":
        why = trial.why_not(rule)
        if not why:
            return rule
        _refuse_wish(setting, wishes, mode="stack", why=why)
        rule = plan_for(setting, cohort, wishes=wishes, cannot_stack=why)
    why = trial.why_not(rule) if rule.channels_last and has_images(setting) else ""
    if why:
        _refuse_wish(setting, wishes, channels_last=True, why=why)
        rule = replace(rule, channels_last=False, reason=f"{rule.reason}; channels last: {why}")
    return rule


def _refuse_wish(setting: RunSpec, wishes: Mapping[str, Any], *, why: str, **wish: Any) -> None:
    ((name, value),) = wish.items()
    if wishes.get(name) == value:
        shown = f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
        raise RequestError(
            f"{shown} does not work for {setting.method.name} with this network ({why}). Leave "
            f"{name}= out."
        )
