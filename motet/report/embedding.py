"""Text, data and programs inside a page, so that nothing in the data can become markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

from motet.records import json_text

# Inside a script element only these could end it, open a comment, or end a line of the script.
DANGEROUS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    r"""Write JSON that may stand inside a script element.

    >>> script_json({"client": "</script>"})
    '{"client": "\\u003c/script\\u003e"}'
    """
    return json_text(value).translate(DANGEROUS)


def packed(program: bytes) -> str:
    """Compress, as text; the same bytes give the same text at any time."""
    return base64.b64encode(gzip.compress(program, mtime=0)).decode()


def allowed(program: str) -> str:
    """Name a script so that a content security policy can allow this one and no other."""
    digest = hashlib.sha256(program.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
