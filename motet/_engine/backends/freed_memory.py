"""Memory that threads have freed stays with the process, ready for their next tensors.

By default glibc hands large blocks back to the system as soon as they are free, and the system
fills the next ones with zeros, page by page: up to half of a round's time, and the more the larger
the stacks are. Other C libraries are left as they are.
"""

from __future__ import annotations

import ctypes
import functools
import platform

# The numbers of these options in malloc.h, and bytes.
_OPTIONS = {
    -2: 2**20,  # M_TOP_PAD: taken from the system beyond what is needed, by each thread
    -1: 64 * 2**20,  # M_TRIM_THRESHOLD: as much may be free at the end of an area
    -3: 32 * 2**20,  # M_MMAP_THRESHOLD: larger blocks come from the system; no version allows more
}


@functools.cache
def keep_freed_memory() -> None:
    """Ask the allocator of this process to keep what is freed; once."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, size in _OPTIONS.items():
            mallopt(option, size)
