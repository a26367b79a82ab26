"""Text of the command line that no file, config or terminal can hold."""

from __future__ import annotations

from collections.abc import Sequence

from motet._core.visible_text import excerpt
from motet.errors import RequestError


def refuse_unreadable(arguments: Sequence[str]) -> None:
    """Refuse NUL characters and bytes that are not UTF-8: every command would trip over them later.

    >>> refuse_unreadable(["data", "--page", "überblick.html"])
    """
    for number, text in enumerate(arguments):
        why = _why_unreadable(text)
        if why is not None:
            before = arguments[number - 1] if number else ""
            name, value = _named(before, text)
            raise RequestError(f'{name} expects text; "{excerpt(value, most=60)}" {why}.')


def _why_unreadable(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:  # how Python hands over bytes of another encoding
        return "is not UTF-8"
    return None


def _named(before: str, text: str) -> tuple[str, str]:
    """Split `--flag=value`; a value by itself belongs to the flag before it, or is an argument."""
    if text.startswith("-") and "=" in text:
        flag, _, value = text.partition("=")
        return flag, value
    return (before if before.startswith("-") and before != "--" else "an argument"), text
