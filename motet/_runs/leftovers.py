"""Files that Motet writes into a directory: how to recognize and remove them.

Where a `config.toml` of ours is, every file with one of these names belongs to the run. Where it is
missing (it was deleted by hand, or its replacement was interrupted), a file must show by its
contents that it is ours before a new run may remove it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from motet._core.atomic import sync_folder
from motet._runs import checkpoint
from motet.errors import StateError

CONFIG, DATA = "config.toml", "data.json"
ROUNDS, TIMINGS, CLIENTS = "rounds.jsonl", "timings.jsonl", "clients.parquet"  # of a run
CHECKPOINT, PRIVACY = "checkpoint", "privacy.json"
RESULTS, COMPARISON = "results.jsonl", "comparison.json"  # of a comparison
TRIALS, TUNED, REPORT = "trials.jsonl", "tuned.toml", "report.html"
EXAMPLES, SITES, LEFT_OUT = "examples.parquet", "sites.parquet", "left_out.jsonl"
REPLACED = f".{CONFIG}.replaced"  # the config of a run that is being removed
MARK = "# Written by Motet"  # how a config of ours begins
CHOSEN = "# What the search chose."  # and one that a search wrote
GENERATOR = "Motet report"  # what a report of ours says about itself
HEAD = 2**16  # bytes that are enough to recognize a file


def holds_run(path: Path) -> bool:
    """Tell whether a directory holds a run or a comparison of ours."""
    return _begins(path / CONFIG, MARK)


def check_removable(path: Path) -> None:
    """Refuse a directory in which a new run would replace files that are not ours."""
    if holds_run(path) or _begins(path / REPLACED, MARK):
        return
    for file in _written(path):
        if not (file.is_file() and SIGNS[file.name](file)):
            raise _foreign(file)
    state = path / CHECKPOINT / checkpoint.STATE
    if state.exists() and not _is_state(state):
        raise _foreign(state)


def remove(path: Path) -> None:
    """Remove the run in a directory and whatever is left of earlier ones, and nothing else.

    The config goes first: from then on there is no run, wherever this is interrupted. It keeps
    another name until the end, as a sign that the other files are ours.
    """
    if (path / CONFIG).exists():
        (path / CONFIG).replace(path / REPLACED)
        sync_folder(path)
    for file in _written(path):
        file.unlink()
    for name in SIGNS:
        for file in path.glob(f".{name}*.unfinished"):
            file.unlink()
    checkpoint.remove(path / CHECKPOINT)


def _written(path: Path) -> Iterator[Path]:
    return (path / name for name in SIGNS if (path / name).exists())


def _foreign(file: Path) -> StateError:
    return StateError(
        f"{file} was not written by Motet, and a run would replace it. Choose another directory "
        "with --out."
    )


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(HEAD)
    except OSError:
        return b""


def _begins(file: Path, words: str) -> bool:
    return _head(file).startswith(words.encode())


def _has_lines(*keys: str) -> Callable[[Path], bool]:
    """Expect JSON lines with these keys; a first line that a crash cut short is ours if it fits."""

    def sign(file: Path) -> bool:
        first, end, _ = _head(file).partition(b"\n")
        if not end:
            return f'{{"{keys[0]}": '.encode().startswith(first[: len(keys[0]) + 5])
        return _has_keys(first, keys)

    return sign


def _is_object(*keys: str) -> Callable[[Path], bool]:
    return lambda file: _has_keys(file.read_bytes(), keys)


def _has_keys(text: bytes, keys: tuple[str, ...]) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= set(keys)


def _is_scores(file: Path) -> bool:
    from motet._engine.records import has_scores

    return has_scores(file)


def _is_examples(file: Path) -> bool:
    from motet._engine.examples import has_examples

    return has_examples(file)


def _is_sites(file: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return {"site", "label", "reference", "state"} <= set(parquet.read_schema(file).names)
    except (pa.ArrowException, OSError):
        return False


def _is_state(file: Path) -> bool:
    # The text of the tables is in the first pages, or still in the log.
    log = file.with_name(f"{file.name}-wal")
    return not _head(file) or b"TABLE seal" in _head(file) + _head(log)


SIGNS: dict[str, Callable[[Path], bool]] = {
    CONFIG: lambda file: _begins(file, MARK),
    DATA: _is_object("format", "hash"),
    ROUNDS: _has_lines("round", "cohort"),
    TIMINGS: _has_lines("round", "seconds"),
    CLIENTS: _is_scores,
    EXAMPLES: _is_examples,
    SITES: _is_sites,
    PRIVACY: _is_object("protects"),
    RESULTS: _has_lines("label", "seed", "evaluation"),
    COMPARISON: _is_object("data", "split_hash"),
    LEFT_OUT: _has_lines("left_out", "label", "seed"),
    TRIALS: _has_lines("label", "number", "tuned"),
    TUNED: lambda file: _begins(file, CHOSEN),
    REPORT: lambda file: GENERATOR.encode() in _head(file),
}
