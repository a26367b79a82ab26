"""What users may import: a dozen namespaces, each with a list; pages and examples use no other."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import motet

ROOT = Path(motet.__file__).parent.parent
NAMESPACES = (
    "motet",
    "motet.analysis",
    "motet.config",
    "motet.data",
    "motet.deploy",
    "motet.errors",
    "motet.method",
    "motet.methods",
    "motet.metrics",
    "motet.models",
    "motet.optim",
    "motet.privacy",
    "motet.report",
    "motet.task",
    "motet.testing",
    "motet.tracking",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRIVATE = re.compile(r"\bmotet(?:\.\w+)*\._\w+")


def is_private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("."))


def name_of(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def sources(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [text] if path.suffix == ".py" else BLOCK.findall(text)


def imported(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield modules of ours that code imports, with the name taken from each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def test_the_public_modules_are_the_namespaces_and_no_others():
    modules = [m.name for m in pkgutil.walk_packages(motet.__path__, "motet.")]
    assert sorted(["motet", *(m for m in modules if not is_private(m))]) == list(NAMESPACES)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_public_name_of_the_namespace_exists_and_none_is_private(namespace):
    module = importlib.import_module(namespace)
    assert module.__all__
    for name in module.__all__:
        assert not name.startswith("_")
        assert getattr(module, name) is not None


@pytest.mark.parametrize("namespace", NAMESPACES[1:])
def test_a_namespace_is_there_after_a_plain_import(namespace):
    assert getattr(motet, namespace.removeprefix("motet.")) is importlib.import_module(namespace)


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=name_of)
def test_the_page_or_example_imports_only_public_names(path):
    for source in sources(path):
        for module, name in imported(source):
            if module.split(".")[0] == "motet":
                assert module in NAMESPACES, f"{module} is not public"
                assert name is None or name in importlib.import_module(module).__all__, name


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_page_does_not_mention_private_modules(path):
    if "decisions" in path.parts or path.name == "architecture.md":  # for developers
        return
    assert PRIVATE.findall(path.read_text(encoding="utf-8")) == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'FedNothing'"):
        motet.FedNothing  # noqa: B018


def test_importing_the_package_loads_no_torch():
    code = "import motet, motet._cli.main, sys; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
