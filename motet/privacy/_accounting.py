"""From noisy steps to epsilon, by Google's dp-accounting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from motet.errors import CapabilityError

# Rényi orders, of which the best is taken. Below 2 the accountant's series need not converge.
ORDERS = (*(tenths / 10 for tenths in range(20, 110)), *range(11, 65), 80, 96, 128, 256, 512, 1024)


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


@cache
def client_epsilon(clients: int, cohort: int, rounds: int, *, noise: float, delta: float) -> float:
    """Return epsilon of noisy means over cohorts of one size, where a client may be another one."""
    if not rounds:
        return 0.0
    import dp_accounting as dp

    # If one client is replaced by another, the sum of changes moves by 2 C, not by C.
    event: dp.DpEvent = dp.GaussianDpEvent(noise / 2)
    if cohort < clients:
        event = dp.SampledWithoutReplacementDpEvent(clients, cohort, event)
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SelfComposedDpEvent(event, rounds))
    return float(accountant.get_epsilon(delta))


@cache  # clients with equally many examples have spent the same
def _epsilon(charges: tuple[Charge, ...], noise: float, delta: float) -> float:
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for charge in charges:
        step = dp.PoissonSampledDpEvent(charge.rate, dp.GaussianDpEvent(noise))
        accountant.compose(dp.SelfComposedDpEvent(step, charge.steps))
    return float(accountant.get_epsilon(delta))
