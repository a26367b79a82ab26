"""The table of runs, drawn to fit the terminal: fewer columns and fewer rows where it is small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from motet._cli.progress import duration
from motet._cli.standings import Standing, Standings, State
from motet._cli.terminal import WIDTH
from motet._core.visible_text import visible

Marks = Mapping[State, str]

STATES: tuple[State, ...] = get_args(State)
MARKS = dict(zip(STATES, "·▸✓✗", strict=True))
PLAIN_MARKS = dict(zip(STATES, ".>+x", strict=True))
STYLES = {"waiting": "dim", "running": "bold cyan", "done": "green", "failed": "bold red"}
MOST_MARKS = 10  # with more seeds than this, they are counted instead
TALL = 12  # lines that a terminal needs for the key to be worth one of them


class Line(NamedTuple):
    """What the table says about one method."""

    label: str
    runs: Sequence[Standing]

    @property
    def shown(self) -> Standing:
        """The run whose round and last look are shown: the latest that has begun."""
        begun = [run for run in self.runs if run.state != "waiting"]
        return (begun or self.runs)[-1]

    @property
    def best(self) -> str:
        """The best look so far, averaged over the seeds that had one."""
        means = [run.best.mean for run in self.runs if run.best is not None]
        return f"{sum(means) / len(means):.3f}" if means else ""

    @property
    def last(self) -> str:
        """The last look."""
        return f"{self.shown.last.mean:.3f}" if self.shown.last is not None else ""

    @property
    def round(self) -> str:
        """The round of the run under way."""
        return f"{self.shown.round}/{self.shown.rounds}" if self.shown.state == "running" else ""

    @property
    def seconds(self) -> str:
        """What the method took until now."""
        seconds = sum(run.seconds for run in self.runs)
        return f"{seconds:.0f}" if self.shown.state != "waiting" else ""


class Column(NamedTuple):
    """A column, and the width of the terminal from which on it is shown."""

    title: str
    cell: Callable[[Line], str]
    from_width: int = 0


COLUMNS = (
    Column("round", lambda line: line.round, 24),
    Column("best val", lambda line: line.best, 50),
    Column("last val", lambda line: line.last, 40),
    Column("seconds", lambda line: line.seconds, 60),
)


def drawn(standings: Standings, screen: Console, *, told: str = "") -> RenderableType:
    """Draw everything about the runs within the screen."""
    # The last column stays free: some terminals wrap when it is written to.
    width, height = min(WIDTH, screen.width - 1), screen.height
    marks = PLAIN_MARKS if screen.options.ascii_only else MARKS
    lines = [Line(label, standings.of(label)) for label in standings.labels]
    below = [_key(marks, standings.metric)] if height >= TALL else []
    below += [Text(told, style="yellow")] if told else []
    # Beside the rows: the headline, the header, what is below, and a line for the cursor.
    shown, folded = _folded(lines, max(1, height - 3 - len(below)))
    below = [*folded, *below]
    table = _table(shown, width, marks)
    return Group(_headline(standings, width), table, *(_cut(text, width) for text in below))


def _headline(standings: Standings, width: int) -> RenderableType:
    total, left = len(standings.runs), standings.seconds_left
    ended = standings.count("done", "failed")
    gone = duration(standings.seconds_gone)
    rest = f", about {duration(left)} left" if left is not None else ""
    text = Text(f"{ended} of {_counted(total, 'run')}, {gone}{rest}")
    bar = ProgressBar(total=1.0, completed=standings.share_done, width=width - len(text) - 2)
    if width - len(text) < 10:
        return _cut(text, width)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(bar, text)
    return grid


def _table(lines: list[Line], width: int, marks: Marks) -> Table:
    columns = [column for column in COLUMNS if width >= column.from_width]
    several = any(len(line.runs) > 1 for line in lines)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=width)
    table.add_column("method", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("seeds" if several else "state", no_wrap=True)
    for column in columns:
        table.add_column(column.title, no_wrap=True, justify="right")
    for line in lines:
        cells = (column.cell(line) for column in columns)
        table.add_row(Text(visible(line.label)), _states(line.runs, marks), *cells)
    return table


def _folded(lines: list[Line], height: int) -> tuple[list[Line], list[Text]]:
    """Keep the lines around the one that runs, as many as fit, and say what the others are."""
    if len(lines) <= height:
        return lines, []
    room = max(1, height - 1)
    here = next((i for i, line in enumerate(lines) if line.shown.state == "running"), 0)
    first = min(max(0, here - room // 2), len(lines) - room)
    above, below = lines[:first], lines[first + room :]
    texts = [_more(*side) for side in ((above, "above"), (below, "below")) if side[0]]
    return lines[first : first + room], [Text("; ".join(texts), style="dim")]


def _more(lines: list[Line], where: str) -> str:
    counted = Counter(run.state for line in lines for run in line.runs)
    states = ", ".join(f"{counted[state]} {state}" for state in STATES if counted[state])
    return f"{_counted(len(lines), 'method')} {where}: {states}"


def _states(runs: Sequence[Standing], marks: Marks) -> Text:
    if len(runs) == 1:
        return Text(runs[0].state, style=STYLES[runs[0].state])
    if len(runs) <= MOST_MARKS:
        return Text.assemble(*((marks[run.state], STYLES[run.state]) for run in runs))
    counted = Counter(run.state for run in runs)
    parts = [(f"{marks[s]}{counted[s]}", STYLES[s]) for s in STATES if counted[s]]
    return Text(" ").join(Text(*part) for part in parts)


def _key(marks: Marks, metric: str) -> Text:
    what = f"   val: mean validation {metric}" if metric else ""
    return Text("  ".join(f"{marks[state]} {state}" for state in STATES) + what, style="dim")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text
