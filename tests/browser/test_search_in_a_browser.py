"""The search of the documentation in a real browser, from a folder and without a server."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Settings of the site, without the reference: three pages are enough, and quick.
CONF = f"""\
import sys
sys.path.insert(0, {str(DOCS / "_site")!r})
import page_texts
extensions = ["myst_parser"]
suppress_warnings = ["myst.xref_missing", "image.not_readable"]
html_theme = "furo"
html_search_scorer = {str(DOCS / "_site" / "search.js")!r}
def setup(app):
    app.connect("build-finished", page_texts.write)
"""
PAGES = ("glossary", "guides/privacy", "decisions/0017-noise-is-a-kind-of-optimizer")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build a site of three pages."""
    pytest.importorskip("sphinx")
    source = tmp_path_factory.mktemp("docs")
    (source / "conf.py").write_text(CONF)
    (source / "index.md").write_text("\n".join(["# Pages", "", "```{toctree}", *PAGES, "```", ""]))
    for page in PAGES:
        (source / page).parent.mkdir(exist_ok=True)
        shutil.copy(DOCS / f"{page}.md", source / f"{page}.md")
    built = source / "built"
    command = [sys.executable, "-m", "sphinx", "--quiet", str(source), str(built)]
    subprocess.run(command, check=True, capture_output=True)
    return built


def test_a_term_is_found_with_a_preview_and_guides_come_first(visit, site):
    page = visit(site / "search.html", draw=False)
    page.fill("input[name=q]", "epsilon")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    page.wait_for_selector("#search-results p.context")
    found = page.eval_on_selector_all("#search-results li > a", "all => all.map(a => a.href)")
    assert "guides/privacy.html" in found[0]
    assert any("decisions/0017" in link for link in found)
    assert "epsilon" in page.inner_text("#search-results").lower()
    page.goto(f"{(site / 'search.html').as_uri()}?q=zebrafish")
    page.wait_for_function("document.body.innerText.includes('did not match any documents')")
