"""Embedding of JSON and scripts in a page, such that no data can become markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

from motet._engine.records import json_text

# Only these characters can end a script element, open a comment in it, or end a line.
DANGEROUS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    r"""Return JSON that is safe inside a script element.

    >>> script_json({"client": "</script>"})
    '{"client": "\\u003c/script\\u003e"}'
    """
    return json_text(value).translate(DANGEROUS)


def packed(program: bytes) -> str:
    """Compress bytes to base64 text; the output is deterministic."""
    return base64.b64encode(gzip.compress(program, mtime=0)).decode()


def allowed(program: str) -> str:
    """Return the hash by which a content security policy allows exactly this script."""
    digest = hashlib.sha256(program.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
