"""Numbers and lists as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-9  # a loss this small is none


def share(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.0f}%"


def number(value: float) -> str:
    """Write a score in few columns.

    >>> number(0.98765), number(12.3456), number(1234.56), number(1e9)
    ('0.988', '12.3', '1235', '1.00e9')
    """
    for below, form in ((9.9995, ".3f"), (99.95, ".1f"), (99999.5, ".0f")):
        if abs(value) < below:
            return format(value, form)
    mantissa, _, power = format(value, ".2e").partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def gain(value: float, metric: str) -> str:
    """Write a gain with its sign, shares of right answers in points: hundredths.

    >>> gain(0.0321, "accuracy"), gain(-0.0321, "rmse"), gain(-0.00001, "accuracy")
    ('+3.2', '-0.032', '-0.0')
    """
    if in_points(metric):
        value = 100 * value
        written = f"{abs(value):.1f}" if abs(value) < 999.95 else number(abs(value))
    else:
        written = number(abs(value))
    return ("-" if value < -ROUNDING else "+") + written


def unit(metric: str) -> str:
    """Say what a gain is measured in."""
    return "points" if in_points(metric) else metric


def title_of(metric: str) -> str:
    """Write the name of a metric at the start of a sentence.

    >>> title_of("accuracy"), title_of("auroc"), title_of("log_loss"), title_of("c_index")
    ('Accuracy', 'AUROC', 'Log loss', 'C-index')
    """
    if ":" in metric:
        return metric
    known = {"c_index": "C-index"} | {
        name: name.upper() for name in ("auroc", "auprc", "ece", "mae", "rmse")
    }
    return known.get(metric, metric.replace("_", " ").capitalize())


def in_points(metric: str) -> bool:
    """Tell whether gains in a metric are told in hundredths: shares of examples that are right."""
    if ":" in metric:  # an own one may have any range
        return False
    return "accuracy" in metric or metric.startswith(("recall_", "top_")) or metric == "exact_match"


def size(count: float) -> str:
    """Write a number of bytes for people.

    >>> size(0), size(999), size(1_234_567)
    ('0 B', '999 B', '1.2 MB')
    """
    if math.isnan(count):  # the directory of a run does not say what its clients keep
        return "an unknown amount"
    for name in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if name == "B" else f"{count:.1f} {name}"
        count /= 1000
    return f"{count:.1f} TB"


def amount(count: float) -> str:
    """Write a large number in a few digits.

    >>> amount(54), amount(54_321), amount(2_500_000)
    ('54', '54.3k', '2.5M')
    """
    for name in ("", "k", "M", "G"):
        if count < 999.5:
            return f"{count:.0f}" if not name else f"{count:.1f}{name}"
        count /= 1000
    return f"{count:.1f}T"


def plural(count: int, what: str) -> str:
    """Count things: "1 seed", "2 seeds"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def listed(parts: Sequence[str], word: str = "and", most: int = 6) -> str:
    """Join parts as in a sentence; of very many, say how many are left out.

    >>> listed(["a"]), listed(["a", "b", "c"], "or"), listed(list("abcdef"), most=3)
    ('a', 'a, b or c', 'a, b and 4 others')
    """
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} others"]
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def sentence(text: str) -> str:
    """Make a message a sentence: a capital at the start, a full stop at the end.

    >>> sentence("the loss is NaN")
    'The loss is NaN.'
    """
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
