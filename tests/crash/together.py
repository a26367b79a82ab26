"""Start commands together on one directory; each is a process of its own.

    python together.py FOLDER SEED TIMES      # how often every combination is tried

For every pair of commands, some triples, and everything that the directory may hold before, the
processes begin at the same instant or some milliseconds apart; in every third race one of them is
killed on its way. How each of them ended goes to FOLDER/races.json; the directories stay.
`FOLDER/clean-COMMAND` is what a command makes in a directory of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path

import killing  # noqa: F401  (loads what a run loads)
import numpy as np

from motet._cli.main import call
from motet._core.keys import Key

COMMON = ("--data", "digits", "--clients", "4", "--model", "logistic", "--backend", "serial")
RUN = ("run", "--method", "fedper", "--rounds", "2", "--store", "disk", *COMMON)
COMMANDS = {
    "run": (*RUN, "--seed", "1"),
    "overwrite": (*RUN, "--seed", "2", "--overwrite"),
    "compare": ("compare", "--seeds", "1", "--methods", "local", "--rounds", "1", *COMMON),
    "replace": (
        "compare",
        "--seeds",
        "1",
        "--methods",
        "fedavg",
        "--rounds",
        "2",
        *COMMON,
        "--overwrite",
    ),
    "resume": ("resume",),
}
MAKERS = tuple(COMMANDS)[:4]
TRIPLES = (
    ("overwrite", "replace", "resume"),
    ("run", "compare", "overwrite"),
    ("overwrite", "overwrite", "overwrite"),
)
BEFORE = ("nothing", "run")
AT_THE_GATE_S = 0.03
LONGEST_S = 0.4  # of a command, about


def arguments(command: str, path: Path) -> list[str]:
    """Complete a command with its directory."""
    place = [str(path)] if command == "resume" else ["--out", str(path)]
    return [*COMMANDS[command], *place]


def started(command: str, path: Path, when: float, said: Path) -> int:
    """Fork a process that begins at an instant; return its id."""
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        for number in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        while time.monotonic() < when:
            pass
        code = call(arguments(command, path))
    finally:
        os._exit(code)


def race(
    commands: Sequence[Sequence[str]], path: Path, rng: np.random.Generator, *, kill: bool
) -> list[dict]:
    """Let commands go, and say how each of them ended."""
    # Half of the races begin together, half of them within the time that a command takes.
    spread = 0.0 if rng.random() < 0.5 else LONGEST_S
    start = time.monotonic() + AT_THE_GATE_S
    texts = [path.with_name(f"{path.name}-{number}.txt") for number in range(len(commands))]
    processes = [
        started(command, path, start + rng.uniform(0, spread), said)
        for command, said in zip(commands, texts, strict=True)
    ]
    if kill:
        time.sleep(rng.uniform(0, LONGEST_S) + AT_THE_GATE_S)
        os.kill(processes[0], signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    ends = zip(commands, codes, texts, strict=True)
    return [{"command": c, "code": code, "said": said.read_text()} for c, code, said in ends]


def main(folder: str, seed: str, times: str) -> None:
    """Try every combination."""
    root, races = Path(folder), []
    for command in MAKERS:
        assert call(arguments(command, root / f"clean-{command}")) == 0
    rng = Key(int(seed)).fold("together").numpy()
    every = [*combinations_with_replacement(COMMANDS, 2), *TRIPLES]
    for number in range(len(every) * int(times)):
        turn, place = divmod(number, len(every))
        commands, before = every[place], BEFORE[(turn + place) % len(BEFORE)]
        path = root / f"race-{number}"
        if before != "nothing":
            shutil.copytree(root / f"clean-{before}", path)
        killed = number % 3 == 2
        ends = race(commands, path, rng, kill=killed)
        races.append({"path": str(path), "before": before, "killed": killed, "ends": ends})
        if killed:  # the command that was killed, given again
            races[-1]["again"] = race(commands[:1], path, rng, kill=False)
    (root / "races.json").write_text(json.dumps(races))


if __name__ == "__main__":
    main(*sys.argv[1:])
