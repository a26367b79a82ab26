"""Write the notebooks of tutorials from their pages, without outputs.

Usage: python scripts/notebooks.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = ("honest-table.md", "hospital.md")
HEAD = """\
---
jupyter:
  kernelspec:
    display_name: Python 3
    language: python
    name: python3
---
"""
LINK = re.compile(r" (?:It|This page) is also available\s+\[as a notebook\]\([^)]*\)\.")


def notebook(page: Path) -> Any:
    """Return the notebook of a page; its shell blocks become cells that bash runs."""
    text = LINK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^```sh$", "```bash", text, flags=re.MULTILINE)
    made = jupytext.reads(HEAD + text, fmt="md")
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    made.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return made


def written(page: Path) -> str:
    """Return the text of the notebook file."""
    return f"{nbformat.writes(notebook(page))}\n"


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).with_suffix(".ipynb").write_text(written(FOLDER / name), encoding="utf-8")
