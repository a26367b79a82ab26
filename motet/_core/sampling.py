"""Sampling of the clients that take part in a round."""

from __future__ import annotations

from collections.abc import Sequence

from motet._core.keys import Key
from motet.errors import CohortError


def cohort_size(cohort: float | int, clients: int) -> int:
    """Turn a fraction (float) or a count (int) into a number of clients.

    >>> cohort_size(0.2, 20), cohort_size(5, 20), cohort_size(1.0, 20), cohort_size(1, 20)
    (4, 5, 20, 1)
    """
    if isinstance(cohort, bool) or not isinstance(cohort, int | float):
        raise CohortError(f"cohort is a fraction or a count; got {cohort!r}.", option="cohort")
    if isinstance(cohort, int):
        if not 1 <= cohort <= clients:
            raise CohortError(
                f"cohort={cohort} is a count, and there are {clients} clients; use 1 to "
                f"{clients}, or a fraction.",
                option="cohort",
            )
        return cohort
    if not 0 < cohort <= 1:
        raise CohortError(
            f"cohort={cohort} is a fraction, which must be above 0 and at most 1.0. Write a count "
            "as a whole number.",
            option="cohort",
        )
    return max(1, round(cohort * clients))


def draw_cohort(
    clients: Sequence[str], cohort: float | int, number: int, key: Key
) -> tuple[str, ...]:
    """Draw the cohort of a round, the same for every method, from clients in order of their ids."""
    size = cohort_size(cohort, len(clients))
    rng = key.fold("cohort", number).numpy()
    # Sample positions, not ids: ids may be anything, and large integers do not survive float64.
    positions = rng.choice(len(clients), size, replace=False)
    return tuple(clients[i] for i in sorted(positions))
