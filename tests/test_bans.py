"""Nothing runs code from data, nothing sets a global seed: read from the source of all of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from bans import CALLS, KEYWORDS, MODULES, findings

ROOT = Path(__file__).parent.parent
FILES = [
    path
    for folder in ("motet", "benchmarks", "examples", "scripts", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
PROCESSES, PAGES = {"pickle"}, {"eval", "exec", "compile"}
ALLOWED = {
    # Methods and tasks travel to processes of our own.
    "motet/testing/_persistence.py": PROCESSES,
    "tests/methods/test_fedper.py": PROCESSES,
    "tests/test_adapters.py": PROCESSES,
    "tests/test_planted_mistakes.py": PROCESSES,
    # Files that would run code are made, and refused.
    "tests/models/test_pretrained.py": PROCESSES,
    # The code of our own pages is run, to see that it does.
    "tests/test_docs.py": PAGES,
    "tests/test_export.py": PAGES,
    "tests/models/test_models_counts.py": PAGES,
    "tests/ray/test_ray_alone.py": PAGES,
}


def told(path):
    """The findings in a file that nothing allows."""
    name = path.relative_to(ROOT).as_posix()
    found = findings(path.read_text(encoding="utf-8"))
    return [f"{name}:{line} {what}" for line, what in found if what not in ALLOWED.get(name, ())]


def test_no_program_of_ours_runs_code_from_data_or_sets_a_global_seed():
    assert len(FILES) > 300
    assert not [finding for path in FILES for finding in told(path)]


def test_arrow_reads_no_file_of_python_s():
    """A thread of Arrow's that waits for Python's lock aborts a program that ends: use a buffer."""
    readers = {"read_table", "ParquetFile", "read_csv", "open_csv"}
    handed = [
        f"{path.name}:{call.lineno}"
        for path in sorted((ROOT / "motet").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in readers
        if any(word in ast.unparse(call.args[0]) for word in ("BytesIO", "open("))
    ]
    assert not handed


SNIPPETS = {
    **{f"import {module}": module for module in MODULES},
    **{f"from {module} import loads": module for module in MODULES},
    **{f"import {module}.sub as quiet": f"{module}.sub" for module in MODULES},
    **{f"import {name.split('.')[0]}\n{name}(text)": name for name in CALLS},
    "import numpy as np\nnp.random.seed(0)": "numpy.random.seed",
    "import torch as t\nread = t.load": "torch.load",
    "from torch import load": "torch.load",
    "from os import system as quietly": "os.system",
    "import os as o\no.system(text)": "os.system",
    "import builtins\nbuiltins.eval(text)": "builtins.eval",
    "run = eval": "eval",
    "numpy.load(path, allow_pickle=True)": "allow_pickle",
    "numpy.load(path, allow_pickle=trusted)": "allow_pickle",
    "subprocess.run(text, shell=True)": "shell",
    "subprocess.Popen(text, shell=1)": "shell",
}


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_everything_forbidden_is_found(snippet):
    assert SNIPPETS[snippet] in [name for _, name in findings(snippet)]


@pytest.mark.parametrize(
    "snippet",
    [
        "re.compile('x')",
        "model.eval()",
        "import json\njson.loads(text)",
        "numpy.load(path, allow_pickle=False)",
        "subprocess.run(command, shell=False)",
        "safetensors.torch.load(written)",
        "generator.manual_seed(3)",
        "'eval(text)'",
    ],
)
def test_what_only_looks_like_it_is_not(snippet):
    assert not list(findings(snippet))


def test_every_ban_says_why():
    assert all((MODULES | CALLS | KEYWORDS).values())
