"""Live view of running methods: a table in a terminal, plain lines elsewhere, both on stderr.

With --json the same is told to machines, on stdout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from motet._cli.lines import JsonLines, PlainLines
from motet._cli.standings import Standings
from motet._cli.terminal import write_now
from motet._core.visible_text import visible
from motet._engine.observers import Several, Watcher

if TYPE_CHECKING:  # loaded when a table is drawn
    from rich.console import Console, RenderableType

    from motet._engine.federation import Round
    from motet._engine.results import Look

FRAMES_PER_S = 4


class View(Several):
    """The watchers of a command; they can also be told something that concerns no single run."""

    def __init__(self, watchers: Sequence[Watcher], tell: Callable[[str], None]) -> None:
        super().__init__(watchers)
        self.tell = tell


@contextmanager
def watching(
    labels: Iterable[str],
    seeds: Sequence[int],
    rounds: int,
    *,
    quiet: bool,
    as_json: bool,
    finished: Iterable[tuple[str, int]] = (),
    also: Sequence[Watcher] = (),
) -> Iterator[View]:
    """Show runs in the way that suits where they are shown.

    Args:
        labels: The methods, in the order in which they run.
        seeds: Of each.
        rounds: Of each.
        quiet: Show nothing.
        as_json: Write JSON lines to stdout; what people see goes to stderr as ever, unless stdout
            is a terminal, too.
        finished: Labels and seeds that had finished before.
        also: More watchers, closed at the end.
    """
    pairs = [(label, seed) for label in labels for seed in seeds]
    standings = Standings(pairs, rounds, finished=finished)
    machines = [JsonLines()] if as_json and not quiet else []
    try:
        if quiet or (as_json and sys.stdout.isatty()):
            yield View([*machines, *also], write_now)
        elif not _can_redraw():
            yield View([standings, PlainLines(standings), *machines, *also], write_now)
        else:
            with _table(standings) as table:
                yield View([standings, table, *machines, *also], table.tell)
    finally:
        Several(also).close()


def _can_redraw() -> bool:
    # FORCE_COLOR makes rich take a pipe for a terminal; colours are welcome there, redrawing not.
    return sys.stderr.isatty() and _screen().is_interactive


def _screen() -> Console:
    from rich.console import Console

    # Without a width of its own: it follows the terminal's.
    return Console(stderr=True, highlight=False)


class LiveTable(Watcher):
    """A table that is drawn again and again in the same place."""

    def __init__(self, standings: Standings, screen: Console) -> None:
        self.standings, self.screen = standings, screen
        self.told = ""
        self.size = screen.size

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        """Write above the table that a run begins to diverge."""
        if trouble := self.standings.runs[label, seed].news():
            self.screen.print(f"{label}, seed {seed}: {trouble}", markup=False)

    def failed(self, label: str, seed: int, reason: str) -> None:
        """Write the reason above the table, where it stays."""
        if len(self.standings.runs) > 1:  # else the command says so itself
            told = visible(f"{label}, seed {seed}: failed: {reason}")
            self.screen.print(told, markup=False)

    def tell(self, text: str) -> None:
        """Show a remark below the table from the next frame on."""
        self.told = visible(text)

    def frame(self) -> RenderableType:
        """Draw the table as it is now, for the size that the terminal has now."""
        from motet._cli.drawing import drawn

        if self.screen.size != self.size:
            self._forget_screen()
        return drawn(self.standings, self.screen, told=self.told)

    def _forget_screen(self) -> None:
        """Start on an empty screen: a terminal that became narrower has wrapped the old table."""
        from rich.control import Control

        self.size = self.screen.size
        self.screen.control(Control.clear(), Control.home())


@contextmanager
def _table(standings: Standings) -> Iterator[LiveTable]:
    """Keep a table on the screen. It gives way to the result, and stays if there is none."""
    from rich.live import Live

    screen = _screen()
    table = LiveTable(standings, screen)
    live = Live(
        get_renderable=table.frame,
        console=screen,
        refresh_per_second=FRAMES_PER_S,
        redirect_stdout=False,  # it may be a pipe, and is not ours
        vertical_overflow="crop",
    )
    with live:
        yield table
        live.transient = True
