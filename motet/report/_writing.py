"""Rendering of the page: template, style sheet, scripts and plotting library in one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from motet._core.atomic import write_atomically
from motet._runs.leftovers import GENERATOR
from motet._verdict.results import Results
from motet.errors import RequestError
from motet.report._embedding import allowed, packed, script_json
from motet.report._parts import page_part

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = (  # in order: each may use the definitions of those before it
    "text.js",
    "theme.js",
    "table.js",
    "copying.js",
    "methods.js",
    "labels.js",
    "differences.js",
    "forest.js",
    "sizes.js",
    "clients.js",
    "progress.js",
    "federation.js",
    "studies.js",
    "tree.js",
    "controls.js",
    "figure.js",
    "start.js",
)


def write(comparison: Results | Sequence[Results], path: str | Path) -> None:
    """Write one self-contained page, atomically.

    Args:
        comparison: The result of `motet.compare`, or several of them, one part of the page each.
        path: The file to write; an existing file is replaced.

    Raises:
        RequestError: The file cannot be written.

    Example:
        >>> import tempfile
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> table = motet.compare([motet.FedAvg()], world.task, world.data, rounds=1, seeds=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(table, f"{folder}/report.html")
    """
    several = [comparison] if isinstance(comparison, Results) else list(comparison)
    write_page(page(several), path)


def write_page(text: str, path: str | Path) -> None:
    """Write a page atomically; several processes may write to the same path.

    Args:
        text: The page.
        path: The file to write; an existing file is replaced.

    Raises:
        RequestError: The file cannot be written.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_page("<!doctype html>", Path(folder) / "report.html")
        ...     [file.name for file in Path(folder).iterdir()]
        ['report.html']
    """
    try:
        write_atomically(Path(path), text.encode(), shared=True)
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise RequestError(
            f"{path} cannot be written: {why}. Choose a file in an existing directory."
        ) from reason


def page(comparisons: Sequence[Results]) -> str:
    """Render the page to a string.

    Args:
        comparisons: Results, one part of the page each.

    Returns:
        HTML without external resources.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> found = motet.compare([motet.FedAvg()], world.task, world.data, rounds=1, seeds=1)
        >>> page([found]).splitlines()[0]
        '<!DOCTYPE html>'
    """
    parts = [page_part(comparison) for comparison in comparisons]
    program, plotting = _program(), _plotting()
    policy = (
        f"default-src 'none'; script-src {allowed(program)} {plotting.allowed}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            generator=GENERATOR,
            policy=policy,
            style=_asset("style.css"),
            parts=parts,
            charts=script_json([part.charts for part in parts]),
            program=program,
            plotting=plotting.packed,
        )
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("motet.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _program() -> str:
    """Join the scripts into one function, so that no name is global."""
    body = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def _asset(name: str) -> str:
    return (files("motet.report") / "assets" / name).read_text(encoding="utf-8")


class _Library(NamedTuple):
    packed: str
    allowed: str


@cache
def _plotting() -> _Library:
    """Pack the plotting library that ships with the plotly package."""
    program = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return _Library(packed(program), allowed(program.decode()))
