"""What --json wrote."""

import json


def events(text):
    """Read all lines."""
    return [json.loads(line) for line in text.splitlines()]


def result(text):
    """Read the last line, which is the result."""
    last = events(text)[-1]
    assert last.pop("event") == "result"
    return last
