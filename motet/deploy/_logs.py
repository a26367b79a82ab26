"""Lines of logs: a time, a level, a program and a message, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TextIO

from motet._core.visible_text import visible, visible_json
from motet.errors import RequestError

LEVELS = ("debug", "info", "warning", "error")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Flower and uvicorn begin a line with its level: "INFO :      ready", "WARNING:  ready".
BEGIN = re.compile(r"(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b[^:]{0,40}:\s*(.*)")
NAMES = {"warn": "warning", "critical": "error"}


def check_level(level: str) -> str:
    """Refuse a level that does not exist."""
    if level not in LEVELS:
        raise RequestError(f'--log-level expects {", ".join(LEVELS)}; got "{level}".')
    return level


@dataclass
class LogWriter:
    """Writes the log of one program, one line per message.

    Attributes:
        program: Name of the program.
        level: Messages below this level are left out.
        as_json: Whether each line is a JSON object.
        stream: Where lines go; None: stderr.
    """

    program: str
    level: str = "info"
    as_json: bool = False
    stream: TextIO | None = None
    _last: str = field(default="info", init=False)  # of the last line that named its level

    def write(self, level: str, message: str) -> None:
        """Write one message, if its level is high enough."""
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        about = {"time": now, "level": level, "program": self.program, "message": message}
        line = f"{now} {level.upper():7} {visible(self.program)}: {visible(message)}"
        if self.as_json:
            line = visible_json(json.dumps(about, ensure_ascii=False))
        stream = self.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()

    def pass_on(self, line: str) -> None:
        """Write a line that another program has written; a blank one is left out."""
        bare = COLOUR.sub("", line).rstrip()
        if begun := BEGIN.match(bare):
            self._last = NAMES.get(begun[1].lower(), begun[1].lower())
            bare = begun[2]
        if bare.strip():
            self.write(self._last, bare)


class LogHandler(logging.Handler):
    """Passes records of Python's logging on to a log."""

    def __init__(self, log: LogWriter) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record in one line."""
        level = NAMES.get(record.levelname.lower(), record.levelname.lower())
        self.log.write(level if level in LEVELS else "info", record.getMessage())
