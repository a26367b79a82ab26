"""Print how often verdicts are confidently wrong, and how often right, on planted worlds.

python benchmarks/verdicts                 # all kinds, about ten minutes
python benchmarks/verdicts --worlds 20     # a rough picture
python benchmarks/verdicts --fresh         # kinds of worlds that nothing was chosen on, first;
                                           # then those that were fresh when first published
python benchmarks/verdicts --all --out counts.jsonl    # every kind; counts are added to the file
python benchmarks/verdicts --table counts.jsonl        # what they say, a line per sites and seeds
python benchmarks/verdicts --drawn         # whole verdicts on worlds whose every property is drawn
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from counting import print_drawn
from kinds import SEEDS, SITES, fresh_kinds, kinds, second_kinds
from planted import World
from pooled import print_table
from rates import Rates, measure, reachable

from motet._verdict.chance import PROBABLE, SURE

HEAD = (
    "| world | sites | seeds | wrong | probably wrong | right | reachable | sure | reachable "
    "| site wrong | right |"
)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--worlds", type=int, default=100, help="worlds of each kind")
    parser.add_argument("--sites", type=int, nargs="*", default=SITES)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--kind", default="", help="only kinds whose name contains this")
    parser.add_argument("--key", type=int, default=0, help="draw other worlds")
    parser.add_argument("--fresh", action="store_true", help="kinds that nothing was chosen on")
    parser.add_argument("--means", action="store_true", help="judge means only, which is faster")
    parser.add_argument("--all", action="store_true", help="these and the others")
    parser.add_argument("--out", type=Path, help="add the counts of every kind to a file")
    parser.add_argument("--table", type=Path, nargs="*", help="print what such files say")
    parser.add_argument("--drawn", action="store_true", help="draw every property of a world")
    parser.add_argument("--groups", choices=("none", "unknown", "known"), default="none")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time for --drawn")
    asked = parser.parse_args()
    if asked.drawn:
        print_drawn(
            asked.worlds,
            key=asked.key,
            seeds=tuple(asked.seeds),
            seconds=asked.seconds,
            groups=asked.groups,
        )
        return
    if asked.table:
        print_table(asked.table)
        return
    print(HEAD)
    print("|---" * 11 + "|")
    for sites in asked.sites:
        # Sites are many in large worlds: fewer of them tell as much about a site.
        worlds = max(1, asked.worlds if sites < 500 else asked.worlds // 10)
        for seeds in asked.seeds:
            for name, world in _asked(asked, sites, seeds):
                rates = measure(world, worlds, key=asked.key, means=asked.means)
                row(name, world, rates)
                if asked.out:
                    line = {"kind": name, "cell": (sites, seeds), **asdict(rates)}
                    with asked.out.open("a") as file:
                        file.write(json.dumps(line, default=int) + "\n")


def _asked(asked: argparse.Namespace, sites: int, seeds: int) -> Iterator[tuple[str, World]]:
    """Yield the kinds of worlds that were asked for."""
    fresh, first = asked.fresh or asked.all, asked.all or not asked.fresh
    for kind in [fresh_kinds, second_kinds] * fresh + [kinds] * first:
        yield from ((name, world) for name, world in kind(sites, seeds) if asked.kind in name)


def row(name: str, world: World, rates: Rates) -> None:
    """Print one line of the table."""

    def ceiling(risk: float) -> float:
        return reachable(world, risk) if rates.visible and world.seed_count > 1 else math.nan

    cells = [
        rates.share("wrong", "worlds"),
        rates.share("probably_wrong", "worlds"),
        rates.share("right", "visible"),
        ceiling(PROBABLE),
        rates.share("surely_right", "visible"),
        ceiling(SURE),
        rates.share("worlds_with_wrong_sites", "worlds"),
        rates.share("right_sites", "visible_sites"),
    ]
    texts = ["-" if math.isnan(cell) else f"{cell:.1%}" for cell in cells]
    print(f"| {name} | {world.sites} | {world.seed_count} | {' | '.join(texts)} |", flush=True)


main()
