"""The documentation site: every public name, every method and every page has its place."""

import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from motet.methods._catalog import method_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ENTRY = re.compile(r"^([\w/.-]+)$", re.MULTILINE)
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEMPLATE = ("**Idea.**", "**What crosses the network.**", "**Scored**", "**A new client**")


def script(name):
    return runpy.run_path(str(ROOT / "scripts" / name))


def test_the_matrix_of_methods_is_what_the_cards_say():
    made = script("methods_matrix.py")
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"]()
    assert made["page"]().count("\n| [") == len(method_names())


@pytest.mark.parametrize("name", method_names())
def test_the_page_of_a_method_follows_the_template(name):
    stem = {"heur-fedamp": "fedamp"}.get(name, name).replace("-", "_")
    text = (DOCS / "methods" / f"{stem}.md").read_text(encoding="utf-8")
    assert [part for part in TEMPLATE if part not in text] == []
    assert "```python" in text


def test_the_reference_shows_every_public_name_once(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_site"))
    import api_pages

    pages = api_pages.pages()
    shown = re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)$", "\n".join(pages.values()), re.M)
    assert len(shown) == len(set(shown))
    for home, name in api_pages.home_of_every_name().values():
        assert f"{home}.{name}" in shown
    del sys.modules["api_pages"]


def test_every_page_is_in_the_navigation():
    listed = {"index", "README", "decisions/README", "methods/README"}
    for page in ("index.md", "methods/README.md"):
        folder = (DOCS / page).parent.relative_to(DOCS)
        for tree in TREE.findall((DOCS / page).read_text(encoding="utf-8")):
            listed |= {(folder / entry).as_posix() for entry in ENTRY.findall(tree)}
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    others = {page for page in pages if page.startswith(("decisions/", "reference/api/"))}
    assert pages - others - listed == set()


@pytest.mark.parametrize("page", script("notebooks.py")["PAGES"])
def test_a_notebook_is_its_page(page):
    made = script("notebooks.py")
    path = made["FOLDER"] / page
    notebook = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert notebook == made["written"](path), "run: python scripts/notebooks.py"
    assert '"outputs": []' in notebook


@pytest.mark.package  # with scripts/test-package: it starts a kernel
def test_the_cells_of_a_notebook_run_and_show_tables(tmp_path, monkeypatch):
    """The other notebook is a page of commands, which `test_tutorial` runs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = DOCS / "tutorials" / "honest-table.ipynb"
    notebook = nbformat.read(path, as_version=4)
    shown = nbformat.v4.new_code_cell("table")
    notebook.cells.append(shown)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    assert "fedper" in shown.outputs[0].data["text/html"]
    size = sum(len(str(cell.get("outputs", ""))) for cell in notebook.cells[:-1])
    assert size < 20_000
    assert (tmp_path / "report.html").exists()
