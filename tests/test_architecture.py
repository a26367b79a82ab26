"""The shape of the library, read from its source: who imports whom, and what nobody does."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import motet
from motet.methods._catalog import method_class, method_names

ROOT = Path(motet.__file__).parent
DOCS = ROOT.parent / "docs"
FILES = sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, lazy: bool = True) -> Iterator[str]:
    """List the modules a file imports; without `lazy` only those it imports when it is loaded."""
    return imported_names(ast.walk(parsed(path)) if lazy else loaded_nodes(parsed(path)))


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"a relative import in line {node.lineno}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def imports_in_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported_names(ast.walk(node))


def loaded_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs on import: no function bodies, no `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from loaded_nodes(child)


def under(module: str, *packages: str) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


# -- who imports whom ---------------------------------------------------------

ALONE = (
    "motet._core.tree",
    "motet.task",
    "motet._training.batching",
    "motet._training.fitting",
    "motet.optim",
    "motet._core.aggregation.mean",
    "motet._core.schedules",
    "motet._core.selectors",
    "motet._core.criteria",
    "motet._core.dropout",
    "motet._core.keys",
    "motet.errors",
)
DRIVERS = (
    "motet._engine.federation",
    "motet._engine.evaluation",
    "motet._engine.run_spec",
    "motet._engine.backends",
    "motet._cli",
)
MAY_RUN_CLIENTS = (
    "motet._engine.backends",
    "motet._engine.federation",
    "motet._engine.ray_tasks",
    "motet._engine.settling",
    "motet.deploy._runtime",
    "motet._cli",
)
FORBIDDEN = [  # (who, may not import, because)
    (("motet.method", "motet.methods"), DRIVERS, "a method knows no loop over clients"),
    (("motet.method",), ("motet.methods",), "the protocol knows no algorithm"),
    (ALONE, (*DRIVERS, "motet.method", "motet.methods", "motet.data"), "the core stands alone"),
    (("motet.data",), (*DRIVERS, "motet.methods", "motet.task"), "data know no training"),
    (("motet.models",), (*DRIVERS, "motet.methods", "motet.data"), "networks are plain torch"),
]
HOMES_OF_EXTRAS = {  # the only modules that import them
    "flwr": ("motet.deploy._runtime.flower_apps", "motet.testing._loopback"),
    "ray": ("motet._engine.backends.ray_actors", "motet._engine.ray_tasks"),
    "dp_accounting": ("motet.privacy._accounting",),
    "opacus": (),
    "torchvision": (),
}


@pytest.mark.parametrize(
    ("who", "what", "because"), FORBIDDEN, ids=lambda v: v if isinstance(v, str) else ""
)
def test_imports_point_one_way(who, what, because):
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if under(module, *who)
        for name in imports(path)
        if under(name, *what)
    ]
    assert not wrong, because


@pytest.mark.parametrize("extra", HOMES_OF_EXTRAS)
def test_an_extra_is_imported_in_its_home_and_nowhere_else(extra):
    users = {m for m, p in MODULES.items() for n in imports(p) if under(n, extra)}
    assert users == set(HOMES_OF_EXTRAS[extra])


def test_nothing_imports_backends_but_what_runs_clients():
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if not under(module, *MAY_RUN_CLIENTS)
        for name in imports(path)
        if under(name, "motet._engine.backends")
    ]
    assert not wrong


def test_the_command_line_is_imported_by_nobody():
    wrong = [
        m
        for m, p in MODULES.items()
        if not under(m, "motet._cli")
        for n in imports(p)
        if under(n, "motet._cli")
    ]
    assert not wrong


def test_modules_do_not_import_each_other_in_a_circle():
    edges = {
        module: {n for n in imports(path, lazy=False) if n in MODULES and n != module}
        for module, path in MODULES.items()
        if path.name != "__init__.py"  # packages gather the names of their modules
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done:
            return
        for other in sorted(edges.get(module, ())):
            visit(other, (*trail, module))
        done.add(module)

    for module in sorted(edges):
        visit(module, ())


def test_no_import_inside_a_function_dodges_a_circle():
    """It may save time at the start or wait for an optional package, but not hide a knot."""
    edges = {m: {n for n in imports(p, lazy=False) if n in MODULES} for m, p in MODULES.items()}

    def loads(module: str) -> set[str]:
        found, left = set[str](), [module]
        while left:
            new = edges[left.pop()] - found
            found |= new
            left += new
        return found

    wrong = [
        f"{module} imports {name} late"
        for module, path in MODULES.items()
        for name in imports_in_functions(path)
        if name in MODULES and module in loads(name)
    ]
    assert not wrong


def test_no_module_is_named_after_a_package_that_it_imports():
    wrong = [
        m for m, p in MODULES.items() for n in imports(p) if n.split(".")[0] == m.rpartition(".")[2]
    ]
    assert not [m for m in wrong if m != "motet"]


def test_the_drawing_shows_the_layers_that_the_contract_holds():
    contract = (ROOT.parent / ".importlinter").read_text(encoding="utf-8").partition("layers =")[2]
    held = [line.replace("motet.", "").split(" | ") for line in contract.split("\n") if line]
    drawing = (DOCS / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    rows = [line.split("│")[1].strip() for line in drawing.splitlines() if "│" in line]
    drawn = [re.match(r"\w+( · \w+)*", row)[0].split(" · ") for row in rows]
    assert drawn == [[name.strip() for name in layer] for layer in held]


# -- what nobody does ---------------------------------------------------------


def dotted(node: ast.AST) -> str:
    """Write `a.b.c` as text; anything else is nothing."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def calls(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node.lineno


def test_only_the_command_line_prints():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for module, path in MODULES.items()
        if not under(module, "motet._cli")
        for name, line in calls(path)
        if name == "print"
    ]
    assert not wrong


def test_no_handler_catches_everything_without_a_name():
    bare = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not bare


def test_no_work_is_left_in_comments():
    marks = tuple("".join(pair) for pair in (("TO", "DO"), ("FIX", "ME"), ("XX", "X")))
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(mark in line for mark in marks)
    ]
    assert not wrong


# -- the public surface -------------------------------------------------------


@pytest.mark.parametrize("name", motet.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(motet, name) is not None
    assert name in dir(motet)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'FedMagic'"):
        _ = motet.FedMagic


def imported_by(statement: str) -> set[str]:
    """The top-level packages in memory after a statement, in a process of its own."""
    code = f"{statement}\nimport sys\nprint(' '.join({{m.split('.')[0] for m in sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


SLOW = {"sklearn", "pyarrow", "rich", "typer", "datasets", "pandas", "scipy", "jinja2"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import motet", {"torch", "numpy"} | SLOW),
        ("import motet; motet.run; motet.FedPer; motet.data.from_arrays; motet.models.MLP", SLOW),
    ],
)
def test_importing_motet_waits_for_nothing_it_does_not_need(statement, unwanted):
    assert not imported_by(statement) & unwanted


def test_every_module_can_be_imported_by_itself():
    for module in MODULES:
        importlib.import_module(module)


def test_every_module_says_what_it_is_for_and_annotates_lazily():
    for path in FILES:
        assert ast.get_docstring(parsed(path)), path
        body = parsed(path).body
        assert len(body) < 2 or "annotations" in ast.dump(body[1]), path


# -- documentation ------------------------------------------------------------


def test_every_method_has_a_page():
    pages = {page.stem for page in (DOCS / "methods").glob("*.md")}
    modules = {method_class(name).__module__ for name in method_names()}
    named = {module.removesuffix(".method").rpartition(".")[2].lstrip("_") for module in modules}
    assert not named - pages


def test_no_file_is_longer_than_400_lines():
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}
