"""From noisy steps to epsilon, by Google's dp-accounting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from motet.errors import CapabilityError


class Charge(NamedTuple):
    """Noisy steps on Poisson samples."""

    rate: float  # the chance of every example to be in a step
    steps: int


def require_accountant() -> None:
    """Refuse now what could not be accounted for later."""
    if find_spec("dp_accounting") is None:
        raise CapabilityError(
            "a private run needs an accountant, the package dp-accounting, which is not installed; "
            'use `pip install "motet[dp]"`.'
        )


def epsilon(charges: Sequence[Charge], *, noise: float, delta: float) -> float:
    """Return the least epsilon that Rényi accounting proves for all charges together."""
    spent = tuple(charge for charge in charges if charge.rate and charge.steps)
    return _epsilon(spent, noise, delta) if spent else 0.0


@cache  # clients with equally many examples have spent the same
def _epsilon(charges: tuple[Charge, ...], noise: float, delta: float) -> float:
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for charge in charges:
        step = dp.PoissonSampledDpEvent(charge.rate, dp.GaussianDpEvent(noise))
        accountant.compose(dp.SelfComposedDpEvent(step, charge.steps))
    return float(accountant.get_epsilon(delta))
