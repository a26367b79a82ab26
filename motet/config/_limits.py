"""Upper limits of a config: a typo gets an error message instead of all of the memory.

Limits are far above what anybody has run, and hold for configs and the command line only: whoever
calls Motet from Python knows what they do.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from motet.errors import MotetError, RequestError, one_line

MOST = 10**9  # of anything that is counted
LIMITS = {  # by the last word of a key: what costs memory or time before anybody sees a result
    **dict.fromkeys(("epochs", "steps", "passes"), 100_000),
    **dict.fromkeys(("hidden", "width", "embedding", "feedforward"), 10_000_000),
    **dict.fromkeys(("trials", "grid", "prototypes"), 10_000),
    "bytes": 10**18,
    **dict.fromkeys(("layers", "heads", "models", "seeds", "workers", "actors"), 1_000),
}


def check_count(value: int, where: str) -> None:
    """Refuse a number that is absurdly large; seeds are not limited.

    >>> check_count(50, "run.rounds")
    >>> check_count(10**30, "compare.seeds[0]")
    """
    name, _, place = where.rpartition(".")[2].partition("[")
    word = name.rpartition("_")[2]
    if word == "seed" or (word == "seeds" and place):
        return
    most = LIMITS.get(word, MOST)
    if abs(value) > most:
        raise RequestError(f"{where} is at most {most:,}; got {_shown(value)}.", option=where)


def check_network(name: str, build: Callable[[], nn.Module]) -> None:
    """Refuse a network that cannot be built, or is larger than this machine, before it is built."""
    try:
        with torch.device("meta"):  # shapes without memory
            network = build()
    except MotetError:
        raise
    except (RuntimeError, ValueError, TypeError, ArithmeticError, AssertionError) as reason:
        raise RequestError(
            f"{name} cannot be built with these options: {one_line(reason)}. Change them in "
            "[model], or leave them out."
        ) from reason
    size, room = sum(leaf.nbytes for leaf in network.state_dict().values()), _memory()
    if size > room:
        raise RequestError(
            f"{name} with these options has {size / 1e9:,.0f} GB of parameters, and this machine "
            f"{room / 1e9:,.0f} GB of memory; make it smaller in [model]."
        )


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _shown(value: int) -> str:
    """Write a number down, unless Python itself refuses to."""
    return f"{value:,}" if value.bit_length() < 200 else f"a number of {value.bit_length()} bits"
