"""What --json wrote."""

from __future__ import annotations

import json
from typing import Any


def events(text: str) -> list[dict[str, Any]]:
    """Read all lines."""
    return [json.loads(line) for line in text.splitlines()]


def result(text: str) -> dict[str, Any]:
    """Read the last line, which is the result."""
    last = events(text)[-1]
    assert last.pop("event") == "result"
    return last
