"""Progress of a command: a bar in a terminal, plain lines elsewhere, both on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from motet._cli.terminal import console, say
from motet._core.visible_text import visible

if TYPE_CHECKING:  # loaded when a bar is drawn
    import rich.progress


class Progress(Protocol):
    """Hears of every step."""

    def step(self, note: str = "", *, worth_a_line: bool = False) -> None:
        """Move on by one; the note says what is known by now."""
        ...


class Silent:
    """Says nothing."""

    def step(self, note: str = "", *, worth_a_line: bool = False) -> None:
        """Say nothing."""


class Lines:
    """A line whenever there is something to say."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self.what, self.total, self.done, self.first = what, total, done, done
        self.started = time.monotonic()

    def step(self, note: str = "", *, worth_a_line: bool = False) -> None:
        """Count, and write a line if it is worth one."""
        self.done += 1
        if worth_a_line:
            say(f"{self.what} {self.done}/{self.total}: {visible(note)}{self._left()}")

    def _left(self) -> str:
        per_step = (time.monotonic() - self.started) / (self.done - self.first)
        left = self.total - self.done
        return f"; about {duration(per_step * left)} left" if left else ""


@contextmanager
def progress(what: str, total: int, *, done: int = 0, quiet: bool = False) -> Iterator[Progress]:
    """Show progress in the way that suits where it is shown."""
    screen = console(stderr=True)
    if quiet or total == done:
        yield Silent()
    elif not screen.is_terminal:
        yield Lines(what, total, done)
    else:
        from rich import progress as parts

        columns = (
            parts.TextColumn(f"[bold]{what}[/]"),
            parts.BarColumn(bar_width=16),
            parts.MofNCompleteColumn(),
            parts.TextColumn("{task.fields[note]}"),
            parts.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        with parts.Progress(*columns, console=screen) as drawn:
            yield _Bar(drawn, drawn.add_task(what, total=total, completed=done, note=""))


class _Bar:
    def __init__(self, drawn: rich.progress.Progress, task: rich.progress.TaskID) -> None:
        self.drawn, self.task = drawn, task

    def step(self, note: str = "", *, worth_a_line: bool = False) -> None:
        if note:
            from rich.markup import escape

            self.drawn.update(self.task, note=escape(visible(note)))
        self.drawn.advance(self.task)


def duration(seconds: float) -> str:
    """Write a duration for people.

    >>> duration(3.2), duration(75), duration(7322)
    ('3 s', '1 min 15 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
