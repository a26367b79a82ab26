"""Replies of sites as values: the only place where what a site sent is checked and read.

Whatever a reply contains, the result is a value within the agreed bounds or a `WireError`. So a
site can lose its own reply, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from motet._core.half_precision import FULL, Precision, packed, unpacked
from motet._core.visible_text import excerpt
from motet._engine.scoring import Score, Scored
from motet.deploy._runtime.parcels import Parcel, check_finite, scalar, unpack
from motet.errors import WireError
from motet.metrics import Metric

MOST_EXAMPLES = 10**9  # that a site may say it has, unless the run config says otherwise
MOST_GRADIENTS = 1e15  # that a site may say it computed in a round
MOST = 1e100  # of a score without a bound of its own, so that sums and squares are finite
SLACK = 1e-6  # of a bounded score, for rounding
NO_REASON = "it gave no reason"


class Uploaded(NamedTuple):
    """A reply to a request to train."""

    up: Any
    weight: float
    gradients: float


@contextmanager
def refusing() -> Iterator[None]:
    """Turn every error about a reply into a refusal: one short line of visible characters."""
    try:
        yield
    except WireError as reason:
        raise WireError(excerpt(str(reason))) from reason
    except Exception as reason:  # whatever it is: the site is named, and the others count
        raise WireError(f"its reply cannot be read ({type(reason).__name__}).") from reason


def read_upload(
    reply: Parcel, number: int, template: Any, most_examples: int, precision: Precision = FULL
) -> Uploaded:
    """Read a site's upload of a round, counted from 0.

    Args:
        reply: The message of the site.
        number: The round that was asked for.
        template: A tree with the names, shapes and types that were agreed on.
        most_examples: The largest weight that a site may claim.
        precision: In which numbers are sent.

    Raises:
        WireError: Something is missing, or not as agreed.
    """
    _check_round(reply, number)
    read_divergence(reply)
    weight = scalar(reply.header, "weight", float)
    if not (1 <= weight <= most_examples and weight == int(weight)):
        raise WireError(
            f"a weight is a number of examples or batches from 1 to {most_examples}; got {weight}."
        )
    gradients = scalar(reply.header, "gradients", float)
    if not 0 <= gradients <= MOST_GRADIENTS:
        raise WireError(f"gradients must be from 0 to {MOST_GRADIENTS:g}; got {gradients}.")
    arrived = unpack(packed(template, precision), reply.arrays)
    up = unpacked(arrived, template, precision)
    check_finite(up)  # bfloat16 travels as whole numbers, which always are
    return Uploaded(up, weight, gradients)


def read_divergence(reply: Parcel) -> str:
    """Read why a site kept its old private state; "" if it did not."""
    if "diverged" not in reply.header:
        return ""
    return excerpt(scalar(reply.header, "diverged", str)).strip() or NO_REASON


def read_scores(
    client: str, reply: Parcel, number: int, metrics: Sequence[Metric], most_examples: int
) -> Scored | None:
    """Read a site's scores, one per metric; None if it has no data or keeps them to itself.

    Raises:
        WireError: Something is missing, or outside of its metric's range.
    """
    _check_round(reply, number)
    if "declined" in reply.header or not scalar(reply.header, "examples", int):
        return None
    return Scored(
        tuple(
            _score(client, reply, f"{place}." if place else "", metric, most_examples)
            for place, metric in enumerate(metrics)
        )
    )


def read_model(reply: Parcel, number: int, template: Any) -> Any:
    """Read the model that a site lends; None if it keeps it to itself."""
    _check_round(reply, number)
    return None if "declined" in reply.header else unpack(template, reply.arrays)


def _check_round(reply: Parcel, number: int) -> None:
    if "refused" in reply.header:
        raise WireError(scalar(reply.header, "refused", str).strip() or f"{NO_REASON}.")
    found = scalar(reply.header, "round", int)
    if found != number:
        raise WireError(f"got a reply of round {found + 1} in round {number + 1}.")


def _score(client: str, reply: Parcel, prefix: str, metric: Metric, most_examples: int) -> Score:
    """Read one score; only one that is marked as diverged or undefined need not be a number."""
    header = reply.header
    examples = scalar(header, f"{prefix}examples", int)
    value, loss = (scalar(header, f"{prefix}{name}", float) for name in ("value", "loss"))
    diverged, undefined = (
        f"{prefix}{name}" in header and scalar(header, f"{prefix}{name}", bool)
        for name in ("diverged", "undefined")
    )
    if not 0 <= examples <= most_examples:
        raise WireError(f"examples must be from 0 to {most_examples}; got {examples}.")
    if not examples and not undefined:
        raise WireError(f"{metric.name} has a value, although there are 0 examples.")
    is_number = not (diverged or undefined)
    if is_number or math.isfinite(value):
        low, high = max(metric.low, -MOST), min(metric.high, MOST)
        if not low - SLACK <= value <= high + SLACK:
            raise WireError(f"{metric.name} must be from {low:g} to {high:g}; got {value}.")
    if (is_number or math.isfinite(loss)) and not abs(loss) <= MOST:
        raise WireError(f"a loss must be a number up to {MOST:g}; got {loss}.")
    return Score(client, examples, value, loss, diverged, undefined)
