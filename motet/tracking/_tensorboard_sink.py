"""The TensorBoard sink: one directory of event files per method and seed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet._engine.observers import Watcher
from motet.tracking._eventfile import EventFile, messages
from motet.tracking._numbers import (
    HARMED,
    HarmedShares,
    Pair,
    hyperparameters,
    of_round,
    of_row,
    tags,
)

if TYPE_CHECKING:
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row


class TensorBoardSink(Watcher):
    """Writes event files to DIRECTORY/label/seed-N; `tensorboard --logdir DIRECTORY` shows them.

    Args:
        directory: Directory for the event files.
        before: Rows that finished earlier, needed for the shares of harmed clients.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sink = TensorBoardSink(folder)
        ...     sink.failed("fedavg", 0, "out of memory")
        ...     sink.close()
        ...     [file.is_file() for file in Path(folder).rglob("events*")]
        [True]
    """

    def __init__(self, directory: str | Path, *, before: Iterable[Row] = ()) -> None:
        messages()  # fails now if TensorBoard is missing, not after the first round
        self.directory = Path(directory)
        self.harms = HarmedShares(before)
        self.files: dict[Pair, EventFile] = {}
        self.ends: dict[
            Pair, Any
        ] = {}  # the message that ends a run's session in the HParams table

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        pair = (label, seed)
        if pair not in self.files:
            self.files[pair] = EventFile(self._place(pair), restarts_at=done.number)
            self._introduce(pair, done)
        self.files[pair].scalars(of_round(done, look), done.number)

    def finished(self, label: str, seed: int, row: Row) -> None:
        pair, step = (label, seed), row.chosen_round
        file = self._file(pair)
        file.scalars(of_row(row), step)
        for other, shares in self.harms.add(row).items():
            self._file(other).scalars(shares, step)
            if other != pair:
                self._close(other)
        if pair in self.ends:
            file.add(self.ends.pop(pair))
        self._close(pair)

    def failed(self, label: str, seed: int, reason: str) -> None:
        self._file((label, seed)).text("failed", reason)
        self._close((label, seed))

    def close(self) -> None:
        for pair in tuple(self.files):
            self._close(pair)

    def _introduce(self, pair: Pair, done: Round) -> None:
        """Write the hyperparameters, for the HParams table and as text."""
        about = hyperparameters(done) | tags(*pair, done)
        results = dict.fromkeys(("test/mean", "test/decile", "test/worst", *HARMED.values()), 0.0)
        experiment, start, self.ends[pair] = messages().hparams(about, results)
        self.files[pair].add(experiment)
        self.files[pair].add(start)
        listed = "\n".join(f"- {name}: {value}" for name, value in about.items())
        self.files[pair].text("hyperparameters", listed)

    def _place(self, pair: Pair) -> Path:
        label = re.sub(r"[^\w.()+-]+", "-", pair[0])
        return self.directory / label / f"seed-{pair[1]}"

    def _file(self, pair: Pair) -> EventFile:
        """Return the open file of a run, opening a new one if needed."""
        if pair not in self.files:
            self.files[pair] = EventFile(self._place(pair))
        return self.files[pair]

    def _close(self, pair: Pair) -> None:
        if pair in self.files:
            self.files.pop(pair).close()
