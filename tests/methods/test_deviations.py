"""Deviations from papers: `# Deviates:` in the code, and the same list on the method's page."""

import inspect
import re
import tokenize
from pathlib import Path

import pytest

import motet
from motet.methods._catalog import method_class, method_names

PACKAGE = Path(motet.__file__).parent
PAGES = PACKAGE.parent / "docs" / "methods"
MARK = "Deviates:"
# What several methods use: a deviation there is listed by each method that it concerns.
SHARED = [
    *(PACKAGE / "methods" / "_bases").rglob("*.py"),
    *(PACKAGE / "models").rglob("*.py"),
    *(PACKAGE / "_core").rglob("*.py"),
    *(PACKAGE / "_training").rglob("*.py"),
]


def file_of(name):
    return Path(inspect.getfile(method_class(name)))


def files_of(name):
    """List the files of one method: its module, and the helpers in its package."""
    home = file_of(name)
    if home.parent == PACKAGE / "methods":
        return [home]
    others = {file_of(other) for other in method_names()} - {home}
    return [file for file in home.parent.rglob("*.py") if file not in others]


def page_of(name):
    return PAGES / ("fedamp.md" if name == "heur-fedamp" else f"{name.replace('-', '_')}.md")


def title(text):
    """Return the first sentence, without markup: what code and page have in common."""
    plain = re.sub(r"[`*]", "", " ".join(text.split()))
    return plain.split(". ")[0].rstrip(".").lower()


def marked_in(file):
    """Read the titles of the comments that start with the mark."""
    with file.open("rb") as source:
        tokens = [t for t in tokenize.tokenize(source.readline) if t.type == tokenize.COMMENT]
    lines = {token.start[0]: token.string.lstrip("# ") for token in tokens}
    found = set()
    for number, text in lines.items():
        if text.startswith(MARK):
            block, after = [text.removeprefix(MARK)], number + 1
            while after in lines and not lines[after].startswith(MARK):
                block.append(lines[after])
                after += 1
            found.add(title(" ".join(block)))
    return found


def marked_in_any(files):
    return set().union(*(marked_in(file) for file in files))


def listed_on(page):
    """Read the titles of the list of deviations; None if the page has no such paragraph."""
    text = page.read_text(encoding="utf-8")
    section = re.search(r"^\*\*Deviations\.\*\*(.*?)(?=^\*\*|^## |\Z)", text, re.M | re.S)
    if section is None:
        return None
    titles = {title(item) for item in re.findall(r"^- \*\*(.*?\.)\*\*", section[1], re.M | re.S)}
    return titles or (set() if section[1].startswith(" None known.") else None)


@pytest.mark.parametrize("name", method_names())
def test_the_deviations_on_the_page_are_those_in_the_code(name):
    listed, own = listed_on(page_of(name)), marked_in_any(files_of(name))
    assert listed is not None, "the page lists its deviations, or says that none are known"
    # Flow and its ablation share helpers: what is marked there is on one of their pages.
    assert own <= listed | _of_siblings(name), "marked in the code, missing on the page"
    reachable = marked_in_any(SHARED) | _of_bases(name)
    assert listed <= own | reachable, "on the page, not marked in the code"


def test_every_shared_deviation_is_on_a_page():
    on_pages = set().union(*(listed_on(page_of(name)) or set() for name in method_names()))
    assert marked_in_any(SHARED) <= on_pages


def _of_siblings(name):
    home = file_of(name).parent
    if home == PACKAGE / "methods":
        return set()
    pages = [page_of(other) for other in method_names() if file_of(other).parent == home]
    return set().union(*(listed_on(page) or set() for page in pages if page != page_of(name)))


def _of_bases(name):
    modules = {Path(inspect.getfile(base)) for base in method_class(name).__mro__[1:-1]}
    return marked_in_any(file for file in modules if PACKAGE in file.parents)
