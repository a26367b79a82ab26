"""The schedule of validation scores (looks), and their cost.

A look serves every client, and many methods adapt a model to each of them for that. There are about
20 looks per run, and fewer if they would cost more than half of the training, counted in
single-example gradients, which are the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from motet._core.points import Point
from motet._core.sampling import cohort_size
from motet._engine.federation import Run
from motet._engine.run_spec import RunSpec, down_for
from motet._tracing import support
from motet._training.batching import Plan

LOOKS = 20  # per run, at most, and the last round
SHARE = 0.5  # of the gradients of training, at most


class LookCost(NamedTuple):
    """Expected gradients: of a round, of a look, and of a look's clients that never trained."""

    training: float
    served: float
    unseen: float  # if no client had trained
    taking_part: float  # share of the clients in a round

    def of_looks(self, rounds: int, every: int) -> float:
        """Add up the looks of a run."""
        return sum(
            self.served + self.unseen * (1 - self.taking_part) ** number
            for number in looked_at(rounds, every)
        )


def looked_at(rounds: int, every: int) -> Iterator[int]:
    """Yield the rounds after which to look: the multiples of `every`, and the last."""
    yield from range(every, rounds, every)
    if rounds > 0:
        yield rounds


def is_due(number: int, every: int, rounds: int) -> bool:
    """Return whether something is due after a round: every few rounds, and after the last.

    >>> [number for number in range(1, 6) if is_due(number, every=2, rounds=5)]
    [2, 4, 5]
    """
    return number % every == 0 or number == rounds


def interval(rounds: int, cost: LookCost | None = None, looks: int = LOOKS) -> int:
    """Choose the rounds between two looks.

    >>> [interval(rounds) for rounds in (1, 20, 30, 1000)]
    [1, 1, 2, 50]
    >>> fine_tuning = LookCost(training=100, served=500, unseen=0, taking_part=1.0)
    >>> interval(50, fine_tuning), interval(4, fine_tuning)
    (10, 4)
    """
    usual = max(1, math.ceil(rounds / looks))
    if cost is None:
        return usual
    shortest = (math.ceil(rounds / number) for number in range(looks, 0, -1))
    affordable = (
        every
        for every in shortest
        if every >= usual and cost.of_looks(rounds, every) <= SHARE * cost.training * rounds
    )
    return next(affordable, max(usual, rounds))


@dataclass(frozen=True)
class Looks:
    """The looks of one run at its validation data: how often, and at what cost."""

    run: Run
    point: Point | None = None  # where clients are scored; None: as the method's authors report it

    def interval(self) -> int:
        """Choose the rounds between two looks."""
        return interval(self.run.setting.rounds, self.expected())

    def expected(self) -> LookCost:
        """Compute the expected cost of rounds and looks."""
        setting = self.run.setting
        clients = len(setting.federation.clients)
        share = cohort_size(self.run.cohort, clients) / clients
        served, unseen = (sum(costs.values()) for costs in self._by_client)
        if not served and not unseen:
            return LookCost(0.0, 0.0, 0.0, share)  # whatever a round costs
        plans = setting.training_plans
        each = (_gradients(setting, plans, frozenset(plans), c) for c in setting.everybody)
        return LookCost(share * sum(each), served, unseen, share)

    def gradients(self) -> float:
        """Count the gradients of a look at the state that the run is in."""
        served, unseen = self._by_client
        trained = set(self.run.setting.store) if unseen else set()
        new = sum(more for client, more in unseen.items() if client not in trained)
        return sum(served.values()) + new

    @cached_property
    def _by_client(self) -> tuple[dict[str, float], dict[str, float]]:
        """What a look costs by client, and what more if the client has never trained."""
        setting, point = self.run.setting, self.point or self.run.reported
        plans = setting.serving_plans(point)
        walked = _walked(self.run, point, new=False)
        more = _walked(self.run, point, new=True) - walked
        scored = [c for c in setting.federation.clients if setting.federation.size(c, "val")]

        def counted(phases: frozenset[str]) -> dict[str, float]:
            found = {client: _gradients(setting, plans, phases, client) for client in scored}
            return found if any(found.values()) else {}

        return counted(walked), counted(more)


def _gradients(
    setting: RunSpec, plans: Mapping[str, Plan], walked: frozenset[str], client: str
) -> float:
    method, size = setting.method, setting.federation.size
    return sum(
        method.gradients.get(name, 1.0) * _examples(plans[name], size(client, plans[name].split))
        for name in walked
        if name not in method.forward_only
    )


def _examples(plan: Plan, size: int) -> float:
    """Count how many examples a phase sees, each as often as it sees it."""
    if plan.steps is None:
        return plan.examples(size) * (1 if plan.epochs is None else plan.epochs)
    per_epoch = math.ceil(plan.examples(size) / max(plan.width(size), 1))
    return plan.steps * plan.examples(size) / max(per_epoch, 1)


def _walked(run: Run, point: Point, *, new: bool) -> frozenset[str]:
    """Find the phases that making a predictor walks: it is made once, of a step each, to see."""
    setting = run.setting
    plans = setting.serving_plans(point)
    if not plans or point == "after_local":
        return frozenset(plans)
    one_step = {name: replace(plan, epochs=None, steps=1) for name, plan in plans.items()}
    client = min(setting.everybody, key=lambda one: (_most(setting, one), one))
    info = setting.info(run.rounds_done, (client,), serving=True)
    down = down_for(setting.method.broadcast(run.server, info), client)
    data = setting.data(client, one_step, run.rounds_done)
    fresh = setting.fresh_client(client)
    read = support.memory_read(lambda: setting.predictor(down, fresh, data, point=point, new=new))
    if read is None:  # which phases are walked cannot be seen, so all of them count
        return frozenset(data)
    # A method may take a phase and have nothing to train on it: what counts is what is read.
    return frozenset(name for name, phase in data.items() if support.memory_of(phase.rows) in read)


def _most(setting: RunSpec, client: str) -> float:
    """Order clients by size, those without examples last: they show nothing."""
    return setting.federation.size(client, "train") or math.inf
