"""Every public function says what it takes and returns, and shows how it is used."""

import dataclasses
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "_site"))
import api_pages

HOMES = sorted(api_pages.home_of_every_name().values())
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example|Attributes):$", re.MULTILINE)
# What they need does not fit in an example: a server, sites, an extra, a long run.
SHOWN_IN_GUIDES = {
    "motet.analysis.chosen_lambdas",
    "motet.analysis.evaluate_with_capacities",
    "motet.analysis.follow_stream",
    "motet.analysis.lambda_capacity_table",
    "motet.analysis.noise",
    "motet.analysis.routing_shares",
    "motet.analysis.share_harmed",
    "motet.data.from_hf",
    "motet.deploy.check_site",
    "motet.deploy.client_app",
    "motet.deploy.experiment_of",
    "motet.deploy.read_server",
    "motet.deploy.read_status",
    "motet.deploy.register_sites",
    "motet.deploy.server_app",
    "motet.deploy.submit_run",
    "motet.method.fit",
    "motet.method.mean_gradient",
    "motet.method.mean_loss",
    "motet.models.hugging_face",
    "motet.privacy.guarantee_of",
    "motet.report.page",
    "motet.report.read_all",
    "motet.report.unchanged",
    "motet.report.write_page",
    "motet.testing.check_method",
}


def value_of(home):
    return getattr(import_module(home[0]), home[1])


FUNCTIONS = [home for home in HOMES if inspect.isroutine(value_of(home))]
CLASSES = [home for home in HOMES if inspect.isclass(value_of(home))]


def sections(doc):
    pieces = SECTION.split(inspect.cleandoc(doc))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True)) | {"": pieces[0]}


@pytest.mark.parametrize("home", FUNCTIONS, ids=".".join)
def test_a_function_describes_every_argument_and_its_result(home):
    function = value_of(home)
    found, signature = sections(function.__doc__), inspect.signature(function)
    assert found[""].strip().splitlines()[0].endswith((".", ":"))
    described = set(re.findall(r"^    \**(\w+):", found.get("Args", ""), re.MULTILINE))
    assert described == set(signature.parameters)
    if signature.return_annotation not in (None, "None"):
        assert found.keys() & {"Returns", "Yields"}


@pytest.mark.parametrize("home", FUNCTIONS, ids=".".join)
def test_a_function_has_an_example_that_runs_as_a_doctest(home):
    shown = ">>> " in sections(value_of(home).__doc__).get("Example", "")
    assert shown != (".".join(home) in SHOWN_IN_GUIDES)


@pytest.mark.parametrize("home", CLASSES, ids=".".join)
def test_a_class_has_a_summary_that_is_its_own(home):
    kind = value_of(home)
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")  # which dataclasses and tuples make


METHODS = [home for home in CLASSES if home[0] == "motet.methods" and home[1] != "PartialSharing"]


@pytest.mark.parametrize("home", METHODS, ids=".".join)
def test_a_method_describes_every_hyperparameter_and_has_an_example(home):
    kind = value_of(home)
    written = "\n".join(base.__doc__ or "" for base in kind.__mro__)
    for field in dataclasses.fields(kind):
        assert re.search(rf"^ +{field.name}: ", written, re.MULTILINE), field.name
    assert ">>> " in kind.__doc__
