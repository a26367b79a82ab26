"""The `Comparison` that `motet.compare` returns: results with a verdict, a table and a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet import report
from motet._core.notebook_html import box, count, faint, line, strong, table, title
from motet._core.points import explained
from motet._verdict.results import Results
from motet._verdict.tables import comparison_text
from motet._verdict.verdict import Verdict, verdict


@dataclass(frozen=True, kw_only=True)
class Comparison(Results):
    """The results of several methods, one row per method and seed. Returned by `motet.compare`.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> found = motet.compare([motet.FedPer()], world.task, world.data, rounds=1, seeds=1)
        >>> found.labels
        ('local', 'fedavg', 'fedavg-ft', 'fedper')
        >>> [row.label for row in found.rows if row.seed == 0][-1]
        'fedper'
    """

    def verdict(self) -> Verdict:
        """Return what the results do and do not support, in sentences."""
        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, including every client's score and the verdict."""
        return {**super().to_dict(), "verdict": self.verdict().to_dict()}

    def report(self, path: str | Path) -> None:
        """Write the report as one self-contained HTML page.

        Args:
            path: The file to write.
        """
        report.write(self, path)

    def table(self) -> str:
        """Return the comparison as plain text, at most 80 columns wide."""
        return comparison_text(self)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Show one row per method, averaged over seeds, with the best mean in bold."""
        found = [self.summary(label) for label in self.labels]
        higher = bool(self.rows) and self.rows[0].evaluation.higher_is_better
        best = (max if higher else min)((row["mean"] for row in found), default=None)
        rows = [
            [
                strong(row["label"]) if row["mean"] == best else row["label"],
                *(f"{row[name]:.4f}" for name in ("mean", "std", "decile", "worst")),
                "" if row["harmed_vs_local"] is None else f"{row['harmed_vs_local']:.0%}",
            ]
            for row in found
        ]
        head = ["method", "mean", "std", "decile", "worst", "harmed versus local"]
        metric = self.rows[0].evaluation.metric if self.rows else "no result"
        scored = [faint(explained(self.points))] if self.rows else []
        about = f"{metric}, {count(len(self.seeds), 'seed')}, {count(self.rounds, 'round')}"
        failed = [faint(f"failed: {f.label}, seed {f.seed}: {f.reason}") for f in self.failures]
        diverged = [
            line(f"{row['label']}: training diverged in part") for row in found if row["diverged"]
        ]
        return box(title(self.data, about), table(head, rows), *scored, *diverged, *failed)
