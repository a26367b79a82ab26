"""Replace runs and comparisons, with `kill -9` before every change that this makes on disk.

    python overwriting.py FOLDER CHANGES [all]    # how many of the changes, from the first on

Where the store is not on disk every second change is tried, unless `all` are asked for.

After each kill the same command is given again, every second time without `--overwrite` where that
is no longer needed. Beside what it ends with, `FOLDER/KIND/whole` is
the same in a directory that held nothing before, and `FOLDER/KIND/old` is what was replaced.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from fuses import Fuse
from killing import finished
from worlds import world

from motet._compare.compare import run_comparison
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.config import ComparisonPlan, plan_from_dict
from motet._engine.observers import Watcher
from motet._runs.recorded_run import begin
from motet.config import Experiment

CHANGES = 14  # those that replace a run, and the first of the new one


def run(path: Path, experiment: Experiment, *, overwrite: bool) -> None:
    """Run to the end, as `motet run` does."""
    session = begin(experiment, path, overwrite=overwrite)
    with session.directory:
        for _ in session.rounds():
            pass
        session.conclude()


def compare(path: Path, plan: ComparisonPlan, *, overwrite: bool) -> None:
    """Compare to the end, as `motet compare` does."""
    directory = ComparisonDirectory.claim(path, overwrite=overwrite)
    with directory:
        federation = plan.federation()
        spec = plan.spec(federation)
        directory.start(plan.resolved(federation).to_dict(), federation)
        directory.conclude(run_comparison(spec, directory, Watcher()))


def comparison(seed: int) -> ComparisonPlan:
    """Make a comparison of three methods."""
    data = {"name": "digits", "partition": {"name": "pathological", "clients": 4, "classes": 2}}
    settings = {"rounds": 1, "seed": seed, "workers": 1, "backend": "serial"}
    return plan_from_dict(
        {
            "data": data,
            "model": {"name": "logistic"},
            "run": settings,
            "compare": {"methods": ["local"], "seeds": 1},
        }
    )


def kinds() -> Iterator[tuple[str, Callable[..., None], Any, Any]]:
    """Name everything that can be replaced: how it is made, what was there, what comes."""
    for store in ("memory", "disk"):
        new = world("fedper", store, rounds=1)
        new = replace(new, run=replace(new.run, backend="serial"))  # which starts faster
        old = replace(new, run=replace(new.run, seed=7))
        yield f"run-{store}", run, old, new
    yield "compare", compare, comparison(7), comparison(0)


def sweep(
    root: Path, make: Callable[..., None], old: Any, new: Any, changes: int, step: int
) -> int:
    """Kill a replacement before each of its first changes, and give the command again."""
    make(root / "old", old, overwrite=False)  # here: children inherit what is loaded on the way
    finished(root / "whole", new, work=partial(make, overwrite=False))
    for number in count(step=step):
        path = shutil.copytree(root / "old", root / f"broken-{number}")
        first = partial(make, overwrite=True)
        if number >= changes or finished(path, new, fuse=Fuse(number), work=first):
            shutil.rmtree(path)
            return number // step
        overwrite = number // step % 2 == 0 or (path / "config.toml").exists()
        finished(path, new, work=partial(make, overwrite=overwrite))
    raise AssertionError("numbers do not end")


def main(folder: str, changes: str, which: str = "") -> None:
    """Replace everything that can be replaced."""
    for name, make, old, new in kinds():
        step = 1 if which == "all" or name == "run-disk" else 2
        kills = sweep(Path(folder, name), make, old, new, int(changes), step)
        sys.stdout.write(f"{name}: {kills} kills\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
