"""The `[run]` section of a config: rounds, cohort, backend and evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from motet._core.half_precision import FULL, Precision
from motet._core.option_table import describes
from motet._core.points import Point
from motet._engine.evaluation import Weigh
from motet._engine.faults import NO_FAULTS, Faults
from motet._engine.looks import interval
from motet._training.execution import Mode
from motet.errors import RequestError
from motet.method import AnyMethod

DEFAULT_ROUNDS = 50


@describes("run")
@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """`[run]`: rounds, cohort, backend and evaluation.

    Example:
        >>> RunChoice(rounds=50, cohort=0.1).cohort
        0.1
        >>> RunChoice(workers=0)
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: run.workers must be 1 or more; got 0.
    """

    rounds: int = DEFAULT_ROUNDS
    cohort: float | int = 1.0
    seed: int = 0
    backend: str = "auto"
    chunk_size: int | None = None
    mode: Mode | None = None
    traced: bool | None = None
    channels_last: bool | None = None
    device: str | None = None
    workers: int | None = None
    address: str | None = None
    actors: int | None = None
    state_dir: str | None = None
    store: Literal["memory", "disk"] = "memory"
    evaluate_every: int | None = None
    checkpoint_every: int = 10
    points: tuple[Point, ...] | None = None
    metrics: tuple[str, ...] | None = None
    weigh: Weigh = "clients"
    serving_steps: int | None = None
    uploads: Precision = FULL
    faults: Faults = NO_FAULTS
    modules: str | None = None

    def __post_init__(self) -> None:
        for name in ("evaluate_every", "checkpoint_every", "chunk_size", "workers", "actors"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"run.{name} must be 1 or more; got {value}.", option=name)
        if self.seed < 0:
            raise RequestError(f"run.seed must be 0 or more; got {self.seed}.", option="seed")
        if self.points is not None and not self.points:
            raise RequestError('run.points is empty; name at least one, such as "after_adapt".')

    def resolved(self, method: AnyMethod) -> RunChoice:
        """Write out how often validation data are evaluated, and which points are scored.

        Args:
            method: The method.
        """
        return replace(
            self,
            evaluate_every=self.evaluate_every or interval(self.rounds),
            points=self.scored(method),
        )

    def scored(self, method: AnyMethod) -> tuple[Point, ...]:
        """Return the points at which clients are scored, the headline first.

        Args:
            method: The method.
        """
        return self.points or (method.reported,)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of `motet.run` that these choices stand for."""
        plan = ("chunk_size", "mode", "traced", "channels_last", "device", "workers")
        ray = ("address", "actors", "state_dir")
        backend = {name: getattr(self, name) for name in (*plan, *ray)}
        return {
            "rounds": self.rounds,
            "cohort": self.cohort,
            "seed": self.seed,
            "backend": self.backend,
            "faults": self.faults,
            "metrics": self.metrics,
            "weigh": self.weigh,
            "serving_steps": self.serving_steps,
            "uploads": self.uploads,
            **{name: value for name, value in backend.items() if value is not None},
        }
