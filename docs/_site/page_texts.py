"""The text of every page in one script, from which search previews are made offline."""

import json
import re
from pathlib import Path

from sphinx.application import Sphinx

MAIN = re.compile(r'<article role="main"[^>]*>(.*?)</article>', re.DOTALL)
NOISE = re.compile(r'<svg.*?</svg>|<a class="headerlink".*?</a>|<img[^>]*>', re.DOTALL)
TAGS = re.compile(r"<(?!/?section)[^>]*>")  # sections keep the anchors that results lead to


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write `_static/page_texts.js` after the pages."""
    if failure or app.builder.format != "html":
        return
    out = Path(app.outdir)
    texts = {
        (page := app.builder.get_target_uri(name)): _text(out / page)
        for name in sorted(app.env.found_docs)
    }
    script = f"window.MOTET_PAGE_TEXTS = {json.dumps(texts, ensure_ascii=False)};\n"
    (out / "_static/page_texts.js").write_text(script, encoding="utf-8")


def _text(page: Path) -> str:
    found = MAIN.search(page.read_text(encoding="utf-8"))
    text = TAGS.sub("", NOISE.sub("", found[1])) if found else ""
    return f'<div role="main">{" ".join(text.split())}</div>'
