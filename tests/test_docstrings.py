"""Every public function and class says what it takes, returns and raises, and shows its use."""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

from motet import errors

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "_site"))
import api_pages

HOMES = sorted(api_pages.home_of_every_name().values())
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example|Attributes):$", re.MULTILINE)
# These talk to the server of a running federation: their examples are shown and not run here.
# tests/deploy/test_federation_tutorial.py runs both through the command line.
NEED_A_SERVER = {"motet.deploy.register_sites", "motet.deploy.submit_run"}


# A class that is not ours (nn.Module, Flower's Grid) describes its own functions.
OURS = "motet"


def value_of(home):
    return getattr(import_module(home[0]), home[1])


FUNCTIONS = [home for home in HOMES if inspect.isroutine(value_of(home))]
CLASSES = [home for home in HOMES if inspect.isclass(value_of(home))]


def sections(doc):
    pieces = SECTION.split(inspect.cleandoc(doc))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True)) | {"": pieces[0]}


def example_lines(home):
    """The lines of an example that a doctest runs."""
    lines = [line.strip() for line in (value_of(home).__doc__ or "").splitlines()]
    return [line for line in lines if line.startswith(">>> ") and "+SKIP" not in line]


def raised_by(function):
    """The errors of ours that a function's own body raises."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    calls = [n.exc for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Raise)]
    names = {c.func.id for c in calls if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}
    return names & set(errors.__all__)


def fields_of(kind):
    """What a class is made of: fields of a dataclass or a tuple, or arguments of its maker."""
    if dataclasses.is_dataclass(kind):
        return [f.name for f in dataclasses.fields(kind) if f.init and not f.name.startswith("_")]
    if issubclass(kind, tuple):
        return list(kind._fields)
    if "__init__" not in vars(kind) or getattr(kind, "_is_protocol", False):
        return []
    return [n for n in inspect.signature(kind).parameters if n not in ("self", "args", "kwargs")]


def own_functions(kind):
    """Yield the public functions of a class by name, with all docstrings that describe them."""
    foreign = [base for base in kind.__mro__ if base.__module__.split(".")[0] != OURS]
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        function = getattr(found, "__func__", found)
        if name.startswith("_") or any(name in vars(base) for base in foreign):
            continue
        if inspect.isfunction(function) and function.__qualname__.endswith(f".{name}"):
            written = [vars(base)[name].__doc__ for base in kind.__mro__ if name in vars(base)]
            yield name, function, "\n".join(filter(None, written))


@pytest.mark.parametrize("home", FUNCTIONS, ids=".".join)
def test_a_function_describes_its_arguments_its_result_and_its_errors(home):
    function = value_of(home)
    found, signature = sections(function.__doc__), inspect.signature(function)
    assert found[""].strip().splitlines()[0].endswith((".", ":"))
    described = set(re.findall(r"^    \**(\w+):", found.get("Args", ""), re.MULTILINE))
    assert described == set(signature.parameters)
    if signature.return_annotation not in (None, "None"):
        assert found.keys() & {"Returns", "Yields"}
    assert all(error in found.get("Raises", "") for error in raised_by(function))


@pytest.mark.parametrize("home", CLASSES, ids=".".join)
def test_a_class_has_a_summary_and_describes_what_it_is_made_of(home):
    kind = value_of(home)
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")  # which dataclasses and tuples make
    written = "\n".join(base.__doc__ or "" for base in kind.__mro__)
    missing = [n for n in fields_of(kind) if not re.search(rf"^ +\**{n}: ", written, re.MULTILINE)]
    assert missing == []


@pytest.mark.parametrize("home", CLASSES, ids=".".join)
def test_the_functions_of_a_class_have_a_summary_and_describe_their_arguments(home):
    kind = value_of(home)
    shared = "\n".join(base.__doc__ or "" for base in kind.__mro__)
    undescribed = {}
    for name, function, written in own_functions(kind):
        parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
        described = re.findall(r"^ +\**(\w+): ", f"{written}\n{shared}", re.MULTILINE)
        missing = set(parameters) - set(described)
        if missing or not written:
            undescribed[name] = missing
    assert undescribed == {}


@pytest.mark.parametrize("home", [*FUNCTIONS, *CLASSES], ids=".".join)
def test_a_public_name_has_an_example_that_runs_as_a_doctest(home):
    imports = (">>> import ", ">>> from ")
    shown = [line for line in example_lines(home) if not line.startswith(imports)]
    assert bool(shown) != (".".join(home) in NEED_A_SERVER)
