"""What no program of ours may do, found in its source: run code from data, or set a global seed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

CODE, SEED, SHELL = "runs code from data", "sets a global seed", "hands text to a shell"
MODULES = dict.fromkeys(
    ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"), CODE
)
CALLS = {
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), CODE),
    **dict.fromkeys(("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"), CODE),
    **dict.fromkeys(("torch.load", "torch.save", "torch.jit.load", "torch.hub.load"), CODE),
    **dict.fromkeys(("pandas.read_pickle", "numpy.fromregex"), CODE),
    **dict.fromkeys(("os.system", "os.popen", "subprocess.getoutput"), SHELL),
    **dict.fromkeys(("subprocess.getstatusoutput", "commands.getoutput"), SHELL),
    **dict.fromkeys(("torch.manual_seed", "torch.seed", "random.seed", "numpy.random.seed"), SEED),
}
KEYWORDS = {"allow_pickle": CODE, "shell": SHELL}  # unless the value is written as False
BUILTINS = ("eval", "exec", "compile", "__import__")


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of everything forbidden, under whatever name it is imported."""
    tree = ast.parse(source)
    aliases = dict(_aliases(tree))
    for node in ast.walk(tree):
        for name in _named(node, aliases):
            yield getattr(node, "lineno", 0), name


def _aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Say what each imported name stands for: `np` is numpy."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.asname or a.name, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)


def _named(node: ast.AST, aliases: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imported(node)
    elif isinstance(node, ast.Name | ast.Attribute):
        # Not only calls: `load = torch.load` would hide one.
        name = _full(node, aliases)
        if name.removeprefix("builtins.") in CALLS:
            yield name
    elif isinstance(node, ast.Call):
        yield from (k.arg for k in node.keywords if k.arg in KEYWORDS and not _is_false(k.value))


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [a.name for a in node.names]
    modules = names if isinstance(node, ast.Import) else [node.module or ""]
    yield from (m for m in modules if m.split(".")[0] in MODULES)
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{n}" for n in names if f"{node.module}.{n}" in CALLS)


def _full(node: ast.AST, aliases: dict[str, str]) -> str:
    """Write `np.random.seed` as numpy.random.seed; what is no dotted name is nothing."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if not isinstance(node, ast.Attribute):
        return ""
    above = _full(node.value, aliases)
    return f"{above}.{node.attr}" if above else ""


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
