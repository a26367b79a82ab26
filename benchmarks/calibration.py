"""How often are intervals and tests right? Measured where the truth is known: methods are equal.

Draws scores with noise of three kinds (of the client; of the seed, shared by all clients; of both
together, half as large as that of the client) and counts

    how often a 95% interval covers the truth: of a bootstrap over clients, of a bootstrap over
    clients and seeds, and of `motet.judging.chance.interval`;
    how often a table of five equal methods claims a difference, after Holm's correction: by
    Student's test over clients, by one over clients and seeds with Satterthwaite's degrees of
    freedom, and by that of `motet.judging.chance`. Verdicts claim less: they also ask for sign
    flips.

    python benchmarks/calibration.py
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import stdtr

from motet.judging.chance import (
    LEVEL,
    corrected,
    interval,
    over_seeds,
    redraw_clients,
    student,
    variance,
)
from motet.judging.tables import aligned
from motet.keys import Key

INTERVALS, TABLES = 400, 2000
WORLDS = [  # clients, seeds, noise of seeds in units of that of clients
    (5, 1, 0.0),
    (20, 1, 0.0),
    (20, 3, 0.05),
    (20, 3, 0.2),
    (100, 2, 0.2),
    (100, 3, 0.2),
    (100, 5, 0.2),
    (100, 2, 1.0),
    (100, 3, 1.0),
    (100, 5, 1.0),
]


def drawn(rng: np.random.Generator, clients: int, seeds: int, noise: float) -> np.ndarray:
    """Draw a method's scores."""
    own, shared = rng.normal(size=(clients, 1)), rng.normal(size=(1, seeds))
    return own + noise * shared + 0.5 * rng.normal(size=(clients, seeds))


def redraw_both(values: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Find the 95% interval of the mean over clients and seeds redrawn with replacement."""
    clients, seeds = values.shape
    rows = rng.integers(clients, size=(999, clients, 1))
    columns = rng.integers(seeds, size=(999, 1, seeds))
    low, high = np.quantile(values[rows, columns].mean((1, 2)), [0.025, 0.975])
    return float(low), float(high)


def covered(rng: np.random.Generator, *world: float) -> list[float]:
    hits = np.zeros(3)
    for _ in range(INTERVALS):
        values = drawn(rng, *world) - drawn(rng, *world)
        ends = (redraw_clients(values), redraw_both(values, rng), interval(values))
        hits += [low <= 0 <= high for low, high in ends]
    return (hits / INTERVALS).tolist()


def satterthwaite(values: np.ndarray) -> float:
    """Test the mean gain as `student` does, but with one number of degrees of freedom."""
    found, (clients, seeds) = variance(values), values.shape
    parts = [found.clients**2 / (clients - 1), found.seeds**2 / max(seeds - 1, 1)]
    t = abs(values.mean()) / found.total**0.5
    return float(2 * stdtr(found.total**2 / sum(parts), -t))


def false_alarms(rng: np.random.Generator, *world: float) -> list[float]:
    alarms = np.zeros(3)
    for _ in range(TABLES):
        gains = [a - b for a, b in combinations([drawn(rng, *world) for _ in range(5)], 2)]
        over_clients = [student(over_seeds(values)[:, None]) for values in gains]
        tests = (over_clients, map(satterthwaite, gains), map(student, gains))
        alarms += [min(corrected(list(p_values))) < LEVEL for p_values in tests]
    return (alarms / TABLES).tolist()


def main() -> None:
    header = ["clients", "seeds", "noise", "by clients", "by both", "motet", "t", "satt.", "motet"]
    rows = []
    for number, world in enumerate(WORLDS):
        rng = Key(0).fold("calibration", number).numpy()
        shares = [*covered(rng, *world), *false_alarms(rng, *world)]
        rows.append([*map(str, world), *(f"{100 * share:.1f}%" for share in shares)])
    print(aligned(header, rows))


if __name__ == "__main__":
    main()
