"""How the process of a command ends."""

import subprocess
import sys
from pathlib import Path

import pytest

# A compiled library that aborts in its own clean-up, after all of Python's.
ABORTS = """
import ctypes
library = ctypes.CDLL(None)
library.__cxa_atexit(ctypes.cast(library.abort, ctypes.c_void_p), None, None)
"""
COMMAND = "import sys; from motet._cli.entry import main; sys.argv[1:] = {words!r}; main()"


def ended(before, *words, stdout=subprocess.PIPE):
    code = before + COMMAND.format(words=list(words))
    return subprocess.run(
        [sys.executable, "-c", code],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the C library has other names there")
@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["methods", "nosuch"], 2)])
def test_a_library_that_aborts_at_the_end_does_not_fail_a_command(words, code):
    done = ended(ABORTS, *words)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("motet ") or "nosuch" in done.stderr


def test_what_python_does_at_the_end_is_done_before_the_process_ends():
    thread = (
        "import atexit, threading, time\n"
        "atexit.register(print, 'last of all')\n"
        "import motet._cli.main as command\n"
        "before = command.call\n"
        "def call(words):\n"
        "    atexit.register(print, 'cleaned up')\n"
        "    threading.Thread(target=lambda: (time.sleep(0.3), print('thread over'))).start()\n"
        "    return before(words)\n"
        "command.call = call\n"
    )
    said = ended(thread, "--version").stdout.split("\n")[1:]
    assert said == ["thread over", "cleaned up", "last of all", ""]


def test_output_that_cannot_be_written_is_a_failure():
    with Path("/dev/full").open("w") as full:
        assert ended("", "--version", stdout=full).returncode != 0
