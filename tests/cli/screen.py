"""A terminal of a given size with a program in it, and what can be seen on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from codecs import getincrementaldecoder

# Cursor up, cursor down, erase line, erase screen, home, colours, cursor shown or hidden.
CONTROL = re.compile(r"\x1b\[(\?25[hl]|[0-9;]*[A-Za-z])|\r|\n|[^\x1b\r\n]+")
CUT_SHORT = re.compile(r"\x1b(\[[?0-9;]*)?$")


class Screen:
    """Just enough of a terminal for what is drawn here: lines do not scroll off its top."""

    def __init__(self, columns: int) -> None:
        self.columns, self.lines, self.row, self.column = columns, [""], 0, 0
        self.is_cursor_shown, self.is_coloured, self.widest = True, False, 0

    def feed(self, text: str) -> None:
        for found in CONTROL.finditer(text):
            self._take(found[0], found[1])

    def _take(self, token: str, control: str | None) -> None:
        if control is not None:
            self._obey(control)
        elif token == "\r":
            self.column = 0
        elif token == "\n":
            self.row += 1
        else:
            self._write(token)

    def _obey(self, control: str) -> None:
        kind, number = control[-1], int(re.sub(r"\D", "", control.split(";")[0]) or 0)
        if kind == "A":
            self.row = max(0, self.row - (number or 1))
        elif control == "2K":
            self._set_line("")
        elif control == "2J":
            self.lines = [""]
        elif kind == "H":
            self.row = self.column = 0
        elif kind == "m":
            self.is_coloured = self.is_coloured or bool(re.search(r"\b3\d\b", control))
        elif control.startswith("?25"):
            self.is_cursor_shown = kind == "h"

    def _write(self, text: str) -> None:
        line = self._line().ljust(self.column)
        self._set_line(line[: self.column] + text + line[self.column + len(text) :])
        self.column += len(text)
        self.widest = max(self.widest, self.column)

    def _line(self) -> str:
        self.lines += [""] * (self.row + 1 - len(self.lines))
        return self.lines[self.row]

    def _set_line(self, text: str) -> None:
        self._line()
        self.lines[self.row] = text

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """A Python script in a pseudo-terminal; stdout may be led elsewhere."""

    def __init__(
        self,
        script: str,
        *arguments: object,
        columns: int = 80,
        lines: int = 24,
        stdout: int | None = None,
        **environment: str,
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = Screen(columns)
        self.resize(columns, lines)
        clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=self.slave,
            stdout=self.slave if stdout is None else stdout,
            stderr=self.slave,
            start_new_session=True,
            env={**clean, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **environment},
        )
        self.raw, self.unseen = "", ""
        self.decode = getincrementaldecoder("utf-8")().decode  # a read may end inside a character

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, pattern: str, seconds: float = 60.0) -> str:
        """Read until the screen shows something."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.screen.text):
            assert time.monotonic() < deadline, f"no {pattern!r} in\n{self.screen.text}"
            assert self._read_some() or self.process.poll() is None, self.screen.text
        return self.screen.text

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, seconds: float = 60.0) -> int:
        """Read what is left, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.screen.text}"
            self._read_some()
        while self._read_some():
            pass
        os.close(self.master)
        os.close(self.slave)
        return self.process.returncode

    def _read_some(self) -> bool:
        if not select.select([self.master], [], [], 0.05)[0]:
            return False
        text = self.decode(os.read(self.master, 65536))
        self.raw += text
        whole = CUT_SHORT.split(self.unseen + text)[0]
        self.unseen = (self.unseen + text)[len(whole) :]
        self.screen.feed(whole)
        return True
