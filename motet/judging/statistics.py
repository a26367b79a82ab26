"""Differences between two methods, client by client: how large, and whether more than chance.

Both methods saw the same clients and the same seeds, so what is studied is what each client gains
with each seed. `motet.judging.chance` says how.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from motet.comparing.comparison import Comparison
from motet.judging.chance import LEVEL, corrected, interval, over_seeds, p_value

__all__ = ["Gains", "PairedDifference", "corrected", "difference", "gains", "paired"]


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """How much better one method is than another, over the clients that both served.

    Attributes:
        mean: Mean gain of a client, in the units of the metric; positive where `label` is better.
        low: Lower end of the 95% interval of the mean; NaN where one client has none.
        high: Upper end.
        p_value: How often chance alone would give a mean gain this large, in either direction.
        corrected: The same, after Holm's correction for every comparison made beside this one.
        clients_better: Clients with a gain, averaged over seeds.
        clients_worse: Clients with a loss.
        clients: All that were compared.
        by_seed: Mean gain with each seed that both methods finished.
    """

    label: str
    reference: str
    mean: float
    low: float
    high: float
    p_value: float
    corrected: float
    clients_better: int
    clients_worse: int
    clients: int
    by_seed: tuple[float, ...]

    @property
    def supported(self) -> bool:
        """Whether this is more than chance: the corrected test and the interval both say so."""
        return self.corrected < LEVEL and self._excludes_0

    @property
    def probable(self) -> bool:
        """Whether the interval is without 0, but the corrected test does not support it."""
        return self._excludes_0 and not self.supported

    @property
    def better(self) -> bool:
        """Whether `label` is better, beyond chance."""
        return self.supported and self.mean > 0

    @property
    def worse(self) -> bool:
        """Whether `label` is worse, beyond chance."""
        return self.supported and self.mean < 0

    @property
    def probably_better(self) -> bool:
        """Whether `label` is probably better."""
        return self.probable and self.mean > 0

    @property
    def probably_worse(self) -> bool:
        """Whether `label` is probably worse."""
        return self.probable and self.mean < 0

    @property
    def _excludes_0(self) -> bool:
        return self.low > 0 or self.high < 0

    def reversed(self) -> PairedDifference:
        """Say the same from the other method's side."""
        return replace(
            self,
            label=self.reference,
            reference=self.label,
            mean=-self.mean,
            low=-self.high,
            high=-self.low,
            clients_better=self.clients_worse,
            clients_worse=self.clients_better,
            by_seed=tuple(-gain for gain in self.by_seed),
        )


class Gains(NamedTuple):
    """What each client gains with each seed; positive is better, whatever the metric."""

    clients: tuple[str, ...]
    values: np.ndarray  # [clients, seeds]

    def by_client(self) -> dict[str, float]:
        """Average over seeds; empty where the methods share none."""
        if not self.values.size:
            return {}
        return dict(zip(self.clients, over_seeds(self.values).tolist(), strict=True))


def paired(
    comparison: Comparison, label: str, reference: str, clients: Collection[str] | None = None
) -> PairedDifference:
    """Compare two methods client by client, over the seeds that both have finished.

    Args:
        comparison: What was run.
        label: The method whose gains are asked for.
        reference: The method it is compared with.
        clients: Only these; None means all.
    """
    return difference(label, reference, gains(comparison, label, reference, clients).values)


def gains(
    comparison: Comparison, label: str, reference: str, clients: Collection[str] | None = None
) -> Gains:
    """Gather the gains over a reference, of the clients and seeds that both methods have."""
    theirs = {row.seed: row.evaluation for row in comparison.of(reference)}
    by_seed = [
        row.evaluation.gains(theirs[row.seed])
        for row in sorted(comparison.of(label), key=lambda row: row.seed)
        if row.seed in theirs
    ]
    everywhere = set.intersection(*map(set, by_seed)) if by_seed else set()
    names = sorted(everywhere if clients is None else everywhere.intersection(clients))
    values = [[gained[client] for gained in by_seed] for client in names]
    return Gains(tuple(names), np.array(values, dtype=float).reshape(len(names), len(by_seed)))


def difference(label: str, reference: str, values: np.ndarray) -> PairedDifference:
    """Describe gains [clients, seeds]; if any of them is not finite, nothing is known."""
    known = values.size > 0 and bool(np.isfinite(values).all())
    low, high = interval(values) if known else (math.nan, math.nan)
    p = p_value(values) if known else 1.0
    of_clients = over_seeds(values) if known else np.zeros(0)
    return PairedDifference(
        label=label,
        reference=reference,
        mean=float(values.mean()) if known else math.nan,
        low=low,
        high=high,
        p_value=p,
        corrected=p,
        clients_better=int((of_clients > 0).sum()),
        clients_worse=int((of_clients < 0).sum()),
        clients=len(values),
        by_seed=tuple(values.mean(0).tolist()) if known else (),
    )
