"""Where the results of a comparison are kept, so that it can be resumed."""

from __future__ import annotations

from typing import Protocol

from motet._compare.searching import TrialResult
from motet._engine.results import Row


class Records(Protocol):
    """Storage for results, so that an interrupted comparison can be resumed."""

    def finished(self) -> dict[tuple[str, int], Row]:
        """Return the finished results, by label and seed."""
        ...

    def record(self, row: Row) -> None:
        """Store the result of a run."""
        ...

    def tried(self) -> dict[tuple[str, int], TrialResult]:
        """Return the finished trials of a search, by label and number."""
        ...

    def record_trial(self, tried: TrialResult) -> None:
        """Store the result of one trial."""
        ...

    def left_out(self) -> dict[tuple[str, int], Row]:
        """Return the finished runs without one client, by that client and seed."""
        ...

    def record_left_out(self, site: str, row: Row) -> None:
        """Store the result of a run without one client."""
        ...


class NoRecords:
    """Stores nothing: an interrupted comparison starts over."""

    def finished(self) -> dict[tuple[str, int], Row]:
        return {}

    def record(self, row: Row) -> None:
        pass

    def tried(self) -> dict[tuple[str, int], TrialResult]:
        return {}

    def record_trial(self, tried: TrialResult) -> None:
        pass

    def left_out(self) -> dict[tuple[str, int], Row]:
        return {}

    def record_left_out(self, site: str, row: Row) -> None:
        pass
