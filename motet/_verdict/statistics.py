"""Paired differences between two methods: how large they are, and how certain.

Both methods use the same clients and seeds, so the tests are about each client's gain with each
seed. `motet._verdict.judging` has the tests themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from motet._engine.results import Row
from motet._verdict.chance import PROBABLE, SURE, over_seeds
from motet._verdict.judging import Judgement
from motet._verdict.results import Results


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """How much better one method is than another, over the clients that both served.

    Attributes:
        mean: Mean gain of a client, in the units of the metric; positive where `label` is better.
        low: Lower end of the 95% interval of the mean; NaN with a single client.
        high: Upper end.
        p_value: Probability of a mean gain this large, in either direction, if there were none,
            with other clients and other seeds. 1 with one seed.
        corrected: The p-value, corrected for all pairs of methods.
        cautious: The same, trusting less in what other pairs tell about the luck of seeds.
        corrected_in_runs: The same for these very runs, whatever other seeds may do.
        clients_better: Clients with a gain, averaged over seeds.
        clients_worse: Clients with a loss.
        clients: Number of clients compared.
        by_seed: Mean gain with each seed that both methods finished.
    """

    label: str
    reference: str
    mean: float
    low: float
    high: float
    p_value: float
    corrected: float
    cautious: float
    corrected_in_runs: float
    clients_better: int
    clients_worse: int
    clients: int
    by_seed: tuple[float, ...]

    @property
    def supported(self) -> bool:
        """Whether the methods differ, with other clients and other seeds."""
        return self.cautious < SURE

    @property
    def probable(self) -> bool:
        """Whether they probably differ."""
        return not self.supported and self.corrected < PROBABLE

    @property
    def in_runs(self) -> bool:
        """Whether they differ in these runs, while seeds are too few to say more."""
        decided = self.supported or self.probable
        return not decided and self.corrected_in_runs < SURE

    @property
    def apart(self) -> bool:
        """Whether they differ, with any of the three grades."""
        return self.supported or self.probable or self.in_runs

    @property
    def better(self) -> bool:
        """Whether `label` is better."""
        return self.supported and self.mean > 0

    @property
    def worse(self) -> bool:
        """Whether `label` is worse."""
        return self.supported and self.mean < 0

    @property
    def probably_better(self) -> bool:
        """Whether `label` is probably better."""
        return self.probable and self.mean > 0

    @property
    def probably_worse(self) -> bool:
        """Whether `label` is probably worse."""
        return self.probable and self.mean < 0

    def reversed(self) -> PairedDifference:
        """Return the same difference with label and reference swapped."""
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
    """Each client's gain with each seed; positive is better for every metric."""

    clients: tuple[str, ...]
    values: np.ndarray  # [clients, seeds]
    seeds: tuple[int, ...] = ()
    weights: np.ndarray | None = None  # of clients, where examples count equally

    def counted(self) -> np.ndarray:
        """Return gains whose plain mean over clients is the mean that was asked for.

        A weighted mean is that of `m + w (g - m)`, with weights `w` that are 1 on average: these
        values have the mean's error, too.
        """
        if self.weights is None or not self.values.size:
            return self.values
        share = (self.weights / self.weights.mean())[:, None]
        means = (share * self.values).mean(0)
        return np.asarray(means + share * (self.values - means))

    def by_client(self) -> dict[str, float]:
        """Average over seeds; empty if the methods have no seed in common."""
        if not self.values.size:
            return {}
        return dict(zip(self.clients, over_seeds(self.values).tolist(), strict=True))


def gains(
    comparison: Results, label: str, reference: str, clients: Collection[str] | None = None
) -> Gains:
    """Return the gains over a reference, for the clients and seeds that both methods have."""
    theirs = {row.seed: row.evaluation for row in comparison.of(reference)}
    common = [row for row in comparison.of(label) if row.seed in theirs]
    common.sort(key=lambda row: row.seed)
    by_seed = [row.evaluation.gains(theirs[row.seed]) for row in common]
    everywhere = set.intersection(*map(set, by_seed)) if by_seed else set()
    names = sorted(everywhere if clients is None else everywhere.intersection(clients))
    values = [[gained[client] for gained in by_seed] for client in names]
    table = np.array(values, dtype=float).reshape(len(names), len(by_seed))
    return Gains(tuple(names), table, tuple(row.seed for row in common), _weights(common, names))


def _weights(rows: Sequence[Row], clients: Sequence[str]) -> np.ndarray | None:
    if not rows or not clients or rows[0].evaluation.weigh != "examples":
        return None
    examples = {score.client: score.examples for score in rows[0].evaluation.rows}
    return np.array([float(max(examples[client], 1)) for client in clients])


def difference(label: str, reference: str, gained: Gains, found: Judgement) -> PairedDifference:
    """Summarize gains and what is known about them."""
    values = gained.values
    known = values.size > 0 and bool(np.isfinite(values).all())
    of_clients = over_seeds(values) if known else np.zeros(0)
    return PairedDifference(
        label=label,
        reference=reference,
        mean=found.mean.mean,
        low=found.mean.low,
        high=found.mean.high,
        p_value=found.mean.p_value,
        corrected=found.corrected,
        cautious=found.cautious,
        corrected_in_runs=found.corrected_in_runs,
        clients_better=int((of_clients > 0).sum()),
        clients_worse=int((of_clients < 0).sum()),
        clients=len(values),
        by_seed=tuple(gained.counted().mean(0).tolist()) if known else (),
    )
