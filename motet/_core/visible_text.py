"""Text that shows every character it holds: what would steer a terminal or hide is spelled out."""

from __future__ import annotations

import re
import unicodedata

# Printable by category, and yet nothing is drawn: fillers, joiners and variation selectors.
_UNDRAWN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def visible(text: str, *, keep: str = "") -> str:
    r"""Spell out control, bidirectional and invisible characters, except those in `keep`.

    >>> visible("a\x1b[31mb\u202ec\nd")
    'a\\x1b[31mb\\u202ec\\nd'
    >>> visible("über 3 km")
    'über 3 km'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _is_hidden(c) else _spelled(c) for c in text)


def excerpt(text: str, most: int = 300) -> str:
    r"""Show the beginning of a stranger's text in one line of at most `most` characters.

    >>> excerpt("not\x1b[2J\n  ready"), excerpt("x" * 10**6, most=8)
    ('not\\x1b[2J ready', 'xxxxx...')
    """
    shown = visible(" ".join(text[: 4 * most].split()))
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def visible_json(text: str) -> str:
    r"""Spell out the same characters in JSON, whose values stay what they are.

    >>> visible_json('{"a": "\u202e"}')
    '{"a": "\\u202e"}'
    """
    # Line ends between values are JSON's own; those in strings are spelled out already.
    return "".join(c if c in "\n" or not _is_hidden(c) else _json_spelled(c) for c in text)


def _is_hidden(character: str) -> bool:
    if character.isprintable():
        return _UNDRAWN.match(character) is not None
    return unicodedata.category(character) != "Zs"  # other spaces are seen as spaces


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_spelled(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
