"""Python blocks in the documentation run, and links inside the project lead somewhere."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#[^)]*)?\)")
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")  # importable, as a reader's own file or notebook is
    monkeypatch.setitem(sys.modules, "page", module)
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, name_of(page), "exec"), vars(module))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_on_the_page_lead_somewhere(page):
    missing = [
        target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]
    assert not missing
