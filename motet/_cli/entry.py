"""Entry point of the command: installs signal handlers before anything heavy is loaded."""

from __future__ import annotations

import sys
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
    sys.exit(code)
