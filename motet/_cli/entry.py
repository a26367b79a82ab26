"""Entry point of the command: installs signal handlers before anything heavy is loaded."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence

from motet._cli.stopping import exit_code, listen, sentence, stop_listening


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code."""
    ending = _Ending()
    if arguments is None:  # as a program of its own, so that the process may end here
        atexit.register(ending)  # before all others, so that it is called after them
    try:
        listen()
        from motet._cli.main import call

        code = call(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt as stop:  # while modules were loaded
        stop_listening()
        sys.stderr.write(f"{sentence(stop)}\n")
        code = exit_code(stop)
    except Exception:  # asked for with --traceback; its text may quote anything
        from traceback import format_exc

        from motet._core.visible_text import visible

        sys.stderr.write(visible(format_exc(), keep="\n"))
        code = 1
    ending.code = code
    sys.exit(code)


class _Ending:
    """Ends the process once Python has cleaned up, before compiled libraries do.

    Arrow sometimes aborts in its own clean-up, when one of its threads has not ended yet
    (apache/arrow issue 34314): a command whose work is done and saved would end with a failure.
    """

    code: int | None = None  # None: the command has not come to its end

    def __call__(self) -> None:
        if self.code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # the disk is full, or nobody reads the pipe any more
                self.code = self.code or 1
        os._exit(self.code)
