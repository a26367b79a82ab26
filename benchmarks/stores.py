"""Which embedded database keeps private states: SQLite or LMDB (docs/decisions/0013).

    python benchmarks/stores.py             # about a minute; LMDB is skipped if it is not installed

A cohort of 100 clients is written in one transaction and read back, again and again with other
clients, with a file system's honest `fsync`. Then both files are cut short and read, because a
damaged file must end in an error message and not in a crash of the process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

COHORT = 100
SIZES = {"head, 8 kB": 8_192, "model, 2.5 MB": 2_500_000}


class Sqlite:
    """A table of blobs, write-ahead log, fsync at every commit."""

    def __init__(self, folder: Path, page: int) -> None:
        self.file = folder / "states.sqlite"
        self.database = sqlite3.connect(self.file, isolation_level=None)
        for setting in (f"page_size={page}", "journal_mode=WAL", "synchronous=FULL"):
            self.database.execute(f"PRAGMA {setting}")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS clients (client BLOB UNIQUE NOT NULL, value BLOB NOT NULL)"
        )

    def write(self, rows: dict[bytes, memoryview]) -> None:
        put = "INSERT INTO clients VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
        self.database.execute("BEGIN IMMEDIATE")
        self.database.executemany(put, rows.items())
        self.database.execute("COMMIT")

    def read(self, clients: list[bytes], into: np.ndarray) -> None:
        get = "SELECT value FROM clients WHERE client = ?"
        for row, client in enumerate(clients):
            (value,) = self.database.execute(get, (client,)).fetchone()
            into[row] = np.frombuffer(value, np.uint8)

    def close(self) -> None:
        self.database.close()


class Lmdb:
    """A memory-mapped B+ tree, fsync at every commit."""

    def __init__(self, folder: Path, page: int) -> None:
        import lmdb

        self.file = folder / "data.mdb"
        self.database = lmdb.open(str(folder), map_size=2**36)

    def write(self, rows: dict[bytes, memoryview]) -> None:
        with self.database.begin(write=True) as transaction:
            for client, value in rows.items():
                transaction.put(client, value)

    def read(self, clients: list[bytes], into: np.ndarray) -> None:
        with self.database.begin(buffers=True) as transaction:
            for row, client in enumerate(clients):
                into[row] = np.frombuffer(transaction.get(client), np.uint8)

    def close(self) -> None:
        self.database.close()


def candidates() -> dict[str, tuple[type, int]]:
    """Name what is compared; the number is SQLite's page size."""
    pages = {f"SQLite, {page // 1024} kB pages": (Sqlite, page) for page in (4096, 16384, 65536)}
    try:
        import lmdb  # noqa: F401
    except ImportError:
        return pages
    return {**pages, "LMDB": (Lmdb, 0)}


def measure(kind: type, page: int, size: int, rounds: int) -> dict[str, float]:
    """Write and read cohorts drawn from 300 clients."""
    rng = np.random.Generator(np.random.Philox(0))
    values = rng.integers(0, 256, (COHORT, size), dtype=np.uint8)
    into, took, seen = np.empty_like(values), {"write": [], "read": []}, set()
    with tempfile.TemporaryDirectory() as folder:
        store = kind(Path(folder), page)
        for _ in range(rounds):
            clients = [b"%06d" % c for c in rng.choice(3 * COHORT, COHORT, replace=False)]
            seen |= set(clients)
            rows = dict(zip(clients, (row.data for row in values), strict=True))
            took["write"].append(timed(lambda: store.write(rows)))  # noqa: B023
            took["read"].append(timed(lambda: store.read(clients, into)))  # noqa: B023
            assert np.array_equal(into, values)
        store.close()
        opened = timed(lambda: kind(Path(folder), page).close())
        on_disk = sum(p.stat().st_blocks * 512 for p in Path(folder).iterdir())
    return {
        **{f"{what} ms": 1000 * median(times) for what, times in took.items()},
        "open ms": 1000 * opened,
        "disk / data": on_disk / (len(seen) * size),
    }


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def read_damaged(kind: type, page: int, keep: float) -> str:
    """Cut the file short, and read it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        store = kind(Path(folder), page)
        clients = [b"%06d" % c for c in range(COHORT)]
        store.write(dict.fromkeys(clients, memoryview(bytes(20_000))))
        store.close()
        with store.file.open("r+b") as file:
            file.truncate(int(store.file.stat().st_size * keep))
        reader = multiprocessing.Process(target=_read_all, args=(kind, page, folder, clients))
        reader.start()
        reader.join()
    how = {0: "read as if nothing were missing", 3: "an exception"}
    return how.get(reader.exitcode, f"the process dies (signal {-reader.exitcode})")


def _read_all(kind: type, page: int, folder: str, clients: list[bytes]) -> None:
    try:
        kind(Path(folder), page).read(clients, np.empty((COHORT, 20_000), np.uint8))
    except Exception:
        raise SystemExit(3) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    for title, size in SIZES.items():
        for name, (kind, page) in candidates().items():
            figures = measure(kind, page, size, rounds if size > 10**6 else 10 * rounds)
            print(
                f"{title:14}  {name:20}", json.dumps({k: round(v, 2) for k, v in figures.items()})
            )
    for name, (kind, page) in candidates().items():
        for keep in (0.5, 0.95):
            print(f"{keep:.0%} of the file  {name:20} {read_damaged(kind, page, keep)}")


if __name__ == "__main__":
    main()
