"""Docstrings are plain text with `code`, which Sphinx would read as reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterator

CODE = re.compile(r"(`[^`]*`)")


def process(
    _app: object, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    """Escape the lines of a docstring in place, as Sphinx calls it."""
    lines[:] = escaped(lines)


def escaped(lines: list[str]) -> Iterator[str]:
    r"""Yield lines in which `*` and `|` are characters, except in examples and code.

    >>> print(*escaped(["all of sites/*.csv", ">>> 2 * 3", "6", "", "`a * b`"]), sep=" ~ ")
    all of sites/\*.csv ~ >>> 2 * 3 ~ 6 ~  ~ `a * b`
    """
    example = False
    for line in lines:
        if line.strip().startswith(">>>"):
            example = True
        elif not line.strip():
            example = False
        yield line if example else _escaped(line)


def _escaped(line: str) -> str:
    parts = CODE.split(line)
    return "".join(p if p.startswith("`") else re.sub(r"([*|])", r"\\\1", p) for p in parts)


def plain_signature(
    _app: object,
    _what: str,
    _name: str,
    _obj: object,
    _options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Return a signature as people write it, as Sphinx calls it.

    >>> plain_signature(0, "class", "", 0, 0, "(a: dict[str, ~torch.Tensor] = <factory>)", None)[0]
    '(a: dict[str, Tensor] = ...)'
    """
    plain = [
        None if s is None else re.sub(r"~(?:typing|torch)\.(?:\w+\.)*", "", s)
        for s in (signature, returned)
    ]
    return plain[0] and plain[0].replace("<factory>", "..."), plain[1]
