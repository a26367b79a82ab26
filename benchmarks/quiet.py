"""Everything that docs/speed.md says about workloads outside the race, within a time limit.

    python benchmarks/quiet.py                          # 18 minutes on a machine with nothing else
    python benchmarks/quiet.py --only named/W1,drawn --minutes 8    # a piece; adds to the others
    python benchmarks/quiet.py --write docs/speed.md    # writes the tables of the last measurement

Lines with a name, the races' workloads beside the loop, draws of the sweep, costs of methods, the
first round, and many clients. What would not end in time is left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEPT = Path(".benchmarks/quiet.json")
NAMED = ("transformer", "logistic", "adam", "sensor", "ditto", "ditto-short", "cnn", "mobilenet")
RACE = ("W1", "W4", "W2", "W3")
DRAWS, SECONDS = 12, 4.0
GOALS = {"FedFomo (M=5)": 1.5, "APFL": 2.2, "pFedMe (K=5)": 5.6}
Results = dict[str, Any]


def jobs(folder: Path) -> Iterator[tuple[str, list[str], float]]:
    """Name each measurement, its command, and the seconds that it takes about."""
    sweep = [str(HERE / "sweep"), "--worst", "0", "--out", str(folder / "part.json")]
    for name in NAMED:
        yield f"named/{name}", [*sweep, "--named", name], 60
    draw = [*sweep, "--draws", "1", "--seed", "2", "--seconds", str(SECONDS)]
    for number in range(DRAWS):
        yield f"drawn/{number}", [*draw, "--first", str(number)], 20
    for name in RACE:
        yield f"named/{name}", [*sweep, "--named", name], 60
    yield "costs", [str(HERE / "speed/ours.py"), "costs", "first"], 200
    many = [str(HERE / "scale.py"), "--rounds", "20", "--out", str(folder / "part.json")]
    yield "independent", [*many, "--heads", "independent", "--sizes", "1000", "1000000"], 60
    yield "named/resnet", [*sweep, "--named", "resnet"], 110
    more = range(DRAWS, 3 * DRAWS)
    yield from ((f"drawn/{n}", [*draw, "--first", str(n)], 20) for n in more)


def measure(minutes: float, out: Path, only: tuple[str, ...] = ()) -> Results:
    """Run what fits, one after another; keep results after each of them."""
    started, found = time.monotonic(), Results()
    out.parent.mkdir(parents=True, exist_ok=True)
    if only and out.exists():
        found = json.loads(out.read_text())
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SPEED_REPETITIONS": "3"}
    for name, command, seconds in jobs(out.parent):
        if only and (not name.startswith(only) or (name in found and name not in only)):
            continue  # of several with one beginning, those that have no result yet
        left = 60 * minutes - (time.monotonic() - started)
        if seconds > left:
            continue
        began = time.monotonic()
        if not _ends_well([sys.executable, *command], left, environment):
            print(f"{name} is left out", file=sys.stderr)
            continue
        part = Path(".benchmarks/ours.json") if name == "costs" else out.parent / "part.json"
        found[name] = json.loads(part.read_text())
        found["load"] = [*found.get("load", []), os.getloadavg()[0]]
        out.write_text(json.dumps(found, indent=1))
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    return found


def _ends_well(command: list[str], seconds: float, environment: dict[str, str]) -> bool:
    """Run a command; if it takes too long, end it with all processes that it has started."""
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tables(found: Results) -> dict[str, str]:
    """Make the tables, by the name of their place in the page."""
    made = {"lines": _lines(found), "draws": _draws(found)}
    if "costs" in found:
        made["costs"] = _costs(found)
    return made


def _lines(found: Results) -> str:
    rows = [
        "| workload | ratio (rounds) | whole run | processor | samples/s, Motet and loop | plan |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*NAMED, "resnet", *RACE):
        (one,) = found.get(f"named/{name}", [None])
        if one is None:
            rows.append(f"| {name} | not measured | | | | |")
            continue
        low, high = one["spread"]
        missed = "" if one["ratio"] >= 1.2 else ", **below 1.2**"
        rows.append(
            f"| {name}: {_workload(one)} | {one['ratio']:.2f} ({low:.2f} - {high:.2f}){missed} | "
            f"{one['whole']:.2f} | {one['cpu']:.2f} | {one['ours']:,.0f} / {one['loop']:,.0f} | "
            f"{one['plan'].split(' (')[0]} |"
        )
    return "\n".join([_conditions(found), "", *rows])


def _draws(found: Results) -> str:
    drawn = [found[name][0] for name in found if name.startswith("drawn/")]
    rows = [f"{len(drawn)} draws (seed 2, about {SECONDS:.0f} s of the loop each).", ""]
    rows += ["| | median | 10th percentile | worst | best | below 1 |", "|---|---|---|---|---|---|"]
    for what, title in (("ratio", "steady rounds"), ("whole", "whole run"), ("cpu", "processor")):
        ratios = sorted(one[what] for one in drawn)
        if ratios:
            tenth = ratios[max(0, round(0.1 * len(ratios)) - 1)]
            below = sum(ratio < 1 for ratio in ratios)
            rows.append(
                f"| {title} | {statistics.median(ratios):.2f} | {tenth:.2f} | {ratios[0]:.2f} | "
                f"{ratios[-1]:.2f} | {below} of {len(ratios)} |"
            )
    rows += ["", "The five slowest, by steady rounds:", "", "| ratio | whole | workload | plan |"]
    rows.append("|---|---|---|---|")
    for one in sorted(drawn, key=lambda one: one["ratio"])[:5]:
        plan = one["plan"].split(" (")[0]
        rows.append(f"| {one['ratio']:.2f} | {one['whole']:.2f} | {_workload(one)} | {plan} |")
    return "\n".join(rows)


def _costs(found: Results) -> str:
    costs = found["costs"]["costs"]
    rows = ["Measured together with the lines above, medians of 3 interleaved rounds:", ""]
    rows += ["| | FedAvg rounds | goal |", "|---|---|---|"]
    for name, ratio in costs.items():
        goal = GOALS.get(name)
        missed = ", missed" if goal and ratio > goal else ""
        rows.append(f"| {name} | {ratio:.2f} | {goal or ''}{missed} |")
    first = found["costs"]["first"]["seconds"]
    rows.append(f"\n`motet run` on W1, to the end of one round and its scores: {first:.1f} s.")
    if "independent" in found:
        few, many = (row["round, ms"] for row in found["independent"])
        rows.append(
            f"Independent heads, processor time per round: {few:.0f} ms with 1,000 clients, "
            f"{many:.0f} ms with 1,000,000 ({many / few:.2f}x, goal 1.2x)."
        )
    return "\n".join(rows)


def _workload(one: Results) -> str:
    sys.path.insert(0, str(HERE / "sweep"))
    from workloads import Workload

    return str(Workload(**one["workload"]))


def _conditions(found: Results) -> str:
    load = found.get("load", [0.0])
    different = sum(not one[0]["same"] for name, one in found.items() if "/" in name)
    equal = "all models equal" if not different else f"{different} models differ"
    return f"Load of the machine meanwhile: {min(load):.1f} to {max(load):.1f}; {equal}."


def write(page: Path, made: dict[str, str]) -> None:
    """Put tables between `<!-- name -->` and `<!-- end of name -->`."""
    text = page.read_text()
    for name, table in made.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{page} has no place for {name}: it expects {begin} and {end}")
        text = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    page.write_text(text)


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--only", default="", help="names or beginnings, such as named/W1,drawn")
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--write", type=Path, help="a page; nothing is measured then")
    asked = parser.parse_args()
    if asked.write:
        write(asked.write, tables(json.loads(asked.out.read_text())))
        return
    only = tuple(asked.only.split(",")) if asked.only else ()
    for name, table in tables(measure(asked.minutes, asked.out, only)).items():
        print(f"\n{name}\n{table}")


if __name__ == "__main__":
    main()
