"""What the counts of many kinds of worlds say together: a line per number of sites and seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = (
    "| sites | seeds | worlds | false | probably false | right | without probably "
    "| false about a site | sites right |"
)


def print_table(files: Sequence[Path]) -> None:
    """Print shares over all worlds, and in brackets that of the worst kind."""
    cells: dict[tuple[int, int], dict[str, dict[str, int]]] = defaultdict(dict)
    for file in files:
        for line in file.read_text().splitlines():
            counts: dict[str, Any] = json.loads(line)
            kind, (sites, seeds) = counts.pop("kind"), counts.pop("cell")
            cell = (sites, seeds)
            known = cells[cell].setdefault(kind, dict.fromkeys(counts, 0))
            cells[cell][kind] = {name: known[name] + counts[name] for name in counts}
    print(HEAD)
    print("|---" * 9 + "|")
    for (sites, seeds), kinds in sorted(cells.items()):
        rows = list(kinds.values())
        equal = [counts for kind, counts in kinds.items() if kind.startswith("equal")]
        texts = [
            _share(rows, "wrong", "worlds", max),
            _share(equal, "probably_wrong", "worlds", max),
            _share(rows, "right", "visible", min),
            _share(rows, "surely_right", "visible", min),
            _share(rows, "worlds_with_wrong_sites", "worlds", max),
            _share(rows, "right_sites", "visible_sites", min),
        ]
        worlds = sum(counts["worlds"] for counts in rows)
        print(f"| {sites} | {seeds} | {worlds:,} | {' | '.join(texts)} |")


def _share(rows: Sequence[dict[str, int]], count: str, of: str, worst: Any) -> str:
    rows = [counts for counts in rows if counts[of]]
    if not rows:
        return "-"
    share = sum(counts[count] for counts in rows) / sum(counts[of] for counts in rows)
    return f"{share:.1%} ({worst(counts[count] / counts[of] for counts in rows):.0%})"
