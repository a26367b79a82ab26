"""Memory that a thread frees is not handed back to the system: it would be filled again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, threading
import torch
from motet._engine.backends.freed_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def work():
    for number in range(6):
        if number == 2:  # by now, an area that is kept is as large as it will be
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        blocks = [torch.zeros(2**20) for _ in range(30)]
        del blocks
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def page_faults(which):
    command = [sys.executable, "-c", PROGRAM, which]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has these options")
def test_a_thread_gets_its_freed_memory_again_without_page_faults():
    assert page_faults("kept") < page_faults("as it is") / 10
