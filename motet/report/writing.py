"""The page itself: a template, a style sheet, a few scripts and a plotting library in one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from motet.atomic import write_atomically
from motet.comparing.comparison import Comparison
from motet.errors import RequestError
from motet.report.embedding import allowed, packed, script_json
from motet.report.story import tell

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = "Motet report"  # how a page of ours can be told from anybody else's
SCRIPTS = (  # in this order: each may use what those before it define
    "text.js",
    "theme.js",
    "table.js",
    "methods.js",
    "labels.js",
    "differences.js",
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


def write(comparison: Comparison | Sequence[Comparison], path: str | Path) -> None:
    """Write one self-contained page, whole or not at all.

    Args:
        comparison: What `motet.compare` returned, or several: a part of the page each.
        path: Where to; a page that is there already is replaced.
    """
    several = [comparison] if isinstance(comparison, Comparison) else list(comparison)
    try:
        write_atomically(Path(path), page(several).encode())
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise RequestError(
            f"{path} cannot be written: {why}. Name a file in a directory that exists."
        ) from reason


def page(comparisons: Sequence[Comparison]) -> str:
    """Make the page as text."""
    parts = [tell(comparison) for comparison in comparisons]
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
    """Join the scripts into one, whose names nobody outside can reach."""
    body = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def _asset(name: str) -> str:
    return (files("motet.report") / "assets" / name).read_text(encoding="utf-8")


class _Library(NamedTuple):
    packed: str
    allowed: str


@cache
def _plotting() -> _Library:
    """Pack the plotting library, which the package plotly brings along."""
    program = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return _Library(packed(program), allowed(program.decode()))
