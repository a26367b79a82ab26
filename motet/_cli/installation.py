"""Facts about this installation, for `motet doctor`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from motet._core.version import __version__
from motet.errors import what_happened

State = Literal["ok", "absent", "trouble"]
OLDEST_PYTHON = (3, 11)
FOR_DEVELOPERS = ("dev", "docs")


class Finding(NamedTuple):
    """One line of the examination.

    Attributes:
        what: What was looked at.
        state: "ok", "absent" for something that is not needed, or "trouble".
        text: What was found, and how to fix it.
    """

    what: str
    state: State
    text: str


def examined() -> list[Finding]:
    """Look at everything."""
    return [*_python(), *_packages(), *_torch(), *_extras(), *_data()]


def _python() -> Iterator[Finding]:
    found = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        yield Finding("python", "trouble", f"{found}; Motet needs 3.11 or newer.")
    else:
        yield Finding("python", "ok", f"{found} on {platform.system()} {platform.machine()}")


def _packages() -> Iterator[Finding]:
    requirements = required()
    if not requirements:
        yield Finding("motet", "absent", f"{__version__}, from a checkout that is not installed")
        return
    yield Finding("motet", "ok", __version__)
    for each in requirements:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            wrong = why_unfit(each)
            name, fix = each.name, f"Run: pip install '{each.name}{each.specifier}'."
            if wrong:
                yield Finding(name, "trouble", f"{name} is {wrong}. {fix}")
            else:
                yield Finding(name, "ok", metadata.version(name))


def required() -> list[Requirement]:
    """List the requirements of the installed package; none if it runs from a bare checkout."""
    try:
        return [Requirement(text) for text in metadata.requires("motet") or []]
    except metadata.PackageNotFoundError:
        return []


def why_unfit(requirement: Requirement) -> str:
    """Say why a requirement is not met; "" if it is.

    >>> why_unfit(Requirement("no-such-package")), why_unfit(Requirement("numpy>=1"))
    ('missing', '')
    """
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return "missing"
    fits = requirement.specifier.contains(found, prereleases=True)
    return "" if fits else f"{found}, but {requirement.specifier} is needed"


def _torch() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        import torch

        from motet._tracing.support import why_untraced

        float(torch.ones(2).sum())
    except Exception as error:
        yield Finding("torch", "trouble", f"torch cannot be used: {what_happened(error)}.")
        return
    limit = os.environ.get("OMP_NUM_THREADS")
    asked = f" (OMP_NUM_THREADS={limit})" if limit else ""
    threads = torch.get_num_threads()
    yield Finding("threads", "ok", f"{threads} of torch{asked}; this process may use {cores} cores")
    devices = [f"cuda ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    yield Finding("devices", "ok", ", ".join(["processor", *devices]))
    slow = why_untraced()
    yield Finding("tracing", "absent" if slow else "ok", f"off: {slow}" if slow else "on")


def _extras() -> Iterator[Finding]:
    requirements = required()
    try:
        extras = metadata.metadata("motet").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return
    for extra in sorted(set(extras) - set(FOR_DEVELOPERS)):
        needed = [
            each
            for each in requirements
            if each.marker
            and each.marker.evaluate({"extra": extra})
            and not each.marker.evaluate({"extra": ""})
        ]
        yield _extra(extra, needed)


def _extra(extra: str, needed: list[Requirement]) -> Finding:
    wrong = {each.name: why for each in needed if (why := why_unfit(each))}
    install = f"pip install 'motet[{extra}]'"
    if not wrong:
        shown = ", ".join(f"{each.name} {metadata.version(each.name)}" for each in needed)
        return Finding(f"motet[{extra}]", "ok", shown)
    if all(why == "missing" for why in wrong.values()):
        return Finding(f"motet[{extra}]", "absent", f"not installed; {install}")
    shown = ", ".join(f"{name} is {why}" for name, why in wrong.items())
    return Finding(f"motet[{extra}]", "trouble", f"{shown}. Run: {install}.")


def _data() -> Iterator[Finding]:
    from motet._cli.data import is_found
    from motet.data import names
    from motet.data._sets.files import roots

    named = os.environ.get("MOTET_DATA")
    if named and not os.path.isdir(named):  # noqa: PTH112  # a path that may be malformed
        yield Finding(
            "MOTET_DATA", "trouble", f"MOTET_DATA names {named}, which is not a folder. Correct it."
        )
    elif named:
        yield Finding("MOTET_DATA", "ok", named)
    else:
        searched = ", ".join(str(root) for root in roots())
        yield Finding("MOTET_DATA", "absent", f"not set; data are looked for in {searched}")
    found = [name for name in names() if is_found(name)]
    yield Finding("data sets", "ok", f"{len(found)} of {len(names())} found: {', '.join(found)}")
