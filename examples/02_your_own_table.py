"""Your own table, with a column that says which hospital: does federating help each of them?"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import motet

rng = motet.Key(0).numpy()


def write_visits(path: Path) -> None:
    """Three hospitals of different size; at one of them the marker means the opposite."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["hospital", "age", "pressure", "marker", "outcome"])
        for hospital, size, sign in [("north", 400, 1), ("south", 120, 1), ("east", 90, -1)]:
            for _ in range(size):
                age, pressure, marker = rng.normal(size=3)
                risk = age + pressure + sign * marker + 0.5 * rng.normal()
                table.writerow([hospital, age, pressure, marker, "ill" if risk > 0 else "well"])


with tempfile.TemporaryDirectory() as folder:
    visits = Path(folder) / "visits.csv"
    write_visits(visits)
    data = motet.data.from_table(visits, client="hospital", target="outcome")
    task = motet.Task(
        build=lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes)
    )
    alone = motet.run(motet.Local(), task, data, rounds=30).evaluate()
    for method in (motet.FedAvg(), motet.FedAvgFT(), motet.FedPer()):
        together = motet.run(method, task, data, rounds=30).evaluate()
        gains = ", ".join(f"{site} {gain:+.2f}" for site, gain in together.gains(alone).items())
        print(f"{method.name}: test accuracy against training alone: {gains}")
