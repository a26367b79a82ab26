"""Entry point of the command: installs signal handlers before anything heavy is loaded."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence

from motet._cli.stopping import exit_code, listen, sentence, stop_listening


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code."""
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
    if arguments is None:  # a program of its own, whose process ends here
        _end_process(code)
    sys.exit(code)


def _end_process(code: int) -> None:
    """End the process once Python has cleaned up, before compiled libraries do.

    Arrow sometimes aborts in its own clean-up, when one of its threads has not ended yet
    (apache/arrow issue 34314): a command whose work is done and saved would end with a failure.
    """
    stop_listening()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the disk is full, or nobody reads the pipe any more
            code = code or 1
    os._exit(code)
