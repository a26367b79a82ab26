"""Configs: complete, checked key by key, and equal to the same objects in Python."""

import json
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

import motet
from motet._compare.config import plan_from_dict
from motet._core.aggregation.mean import Mean
from motet._core.schedules import Exponential, Linear
from motet.config import (
    ModelChoice,
    NamedData,
    TableData,
    experiment_from_dict,
    load_experiment,
    method_from_dict,
    method_to_dict,
    overridden,
    parse_assignment,
    write_tables,
)
from motet.config._hyperparameters import hyperparameters
from motet.config._sections import FolderData
from motet.data import Dirichlet, Natural, Pathological, from_arrays
from motet.errors import CapabilityError, RequestError
from motet.method import AnyMethod
from motet.methods._catalog import method_class, method_names
from motet.methods._fedavg import FedAvg
from motet.optim import Adam, Sgd


@dataclass(frozen=True, kw_only=True)
class Elaborate(FedAvg):
    """A method with a field of every kind.

    Attributes:
        lam: How strong
            the pull is.
    """

    lam: float = 0.5
    count: int = 3
    flag: bool = True
    word: str = "a"
    choice: Literal["x", "y"] = "x"
    pair: tuple[float, float] = (0.1, 0.9)
    names: tuple[str, ...] = ("u", "v")
    maybe: float | int | None = None
    inner: AnyMethod = field(default_factory=lambda: FedAvg(epochs=2))
    layers: motet._core.selectors.Selector = ("head",)
    name: ClassVar[str] = "elaborate"


def through_toml(method):
    written = write_tables({"method": method_to_dict(method)})
    return method_from_dict(tomllib.loads(written)["method"])


# --- methods ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", method_names())
def test_every_method_comes_back_equal_from_json_and_from_toml(name):
    method = method_class(name)(
        optimizer=Sgd(lr=1 / 30, weight_decay=1e-4),
        batch_size=None,
        schedule=Exponential(factor=0.97),
        adapt_epochs=1,
    )
    assert method_from_dict(json.loads(json.dumps(method_to_dict(method)))) == method
    assert through_toml(method) == method


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lam": 1e-17, "count": -1, "flag": False, "word": "", "choice": "y"},
        {"pair": (1.0, 2.0), "names": (), "maybe": 1, "layers": motet.Blocks(last=2)},
        {"maybe": 1.0, "layers": ("body.0", motet.Blocks(last=1)), "lam": float("inf")},
        {"inner": motet.FedPer(personal=(), optimizer=Sgd(lr=1 / 3)), "schedule": Linear()},
        {"schedule": motet.MultiStep(milestones=(30, 60), factor=0.5), "adapt_steps": 100},
        {"schedule": motet.Cosine(warmup=0.1, floor=0.01), "adapt_steps": 0},
        {"server_optimizer": Sgd(lr=1.0, momentum=0.9), "reduce": Mean(weights="uniform")},
    ],
)
def test_fields_of_every_kind_come_back_equal_and_of_the_same_type(changes):
    method = Elaborate(**changes)
    again = through_toml(method)
    assert again == method
    assert type(again.maybe) is type(method.maybe)


def test_a_config_writes_every_field_out():
    assert method_to_dict(motet.FedPer()).keys() == {
        "name",
        *(field.name for field in fields(motet.FedPer)),
    }


def test_a_method_of_your_own_is_named_by_its_path():
    written = method_to_dict(Elaborate())
    assert written["name"] == f"{__name__}:Elaborate"
    assert method_from_dict({"lam": 2}, kind=Elaborate).lam == 2.0


def test_a_plain_learning_rate_is_the_optimizers():
    method = method_from_dict({"name": "fedavg", "lr": 0.5, "optimizer": {"momentum": 0.9}})
    assert method.optimizer == Sgd(lr=0.5, momentum=0.9)
    assert method_from_dict({"name": "fedavg", "lr": 1, "optimizer": "adam"}).optimizer == Adam(
        lr=1
    )


def test_a_table_without_a_kind_changes_the_methods_own_default():
    @dataclass(frozen=True, kw_only=True)
    class Slow(FedAvg):
        optimizer: motet.optim.Optimizer = Sgd(lr=0.01, clip=5.0)

    kept = method_from_dict({"optimizer": {"momentum": 0.9}}, kind=Slow).optimizer
    named = method_from_dict({"optimizer": {"kind": "sgd", "momentum": 0.9}}, kind=Slow).optimizer
    assert kept == Sgd(lr=0.01, clip=5.0, momentum=0.9)
    assert named == Sgd(momentum=0.9)


def test_an_object_that_a_config_cannot_hold_is_refused_by_its_key():
    with pytest.raises(CapabilityError, match=r"method\.word holds a object"):
        method_to_dict(Elaborate(word=object()))


def test_every_method_in_the_package_is_in_the_catalog():
    import importlib
    import inspect
    import pkgutil

    import motet.methods

    found = set()
    for module in pkgutil.walk_packages(motet.methods.__path__, "motet.methods."):
        for _, value in inspect.getmembers(importlib.import_module(module.name)):
            is_method = inspect.isclass(value) and issubclass(value, motet.Method)
            if is_method and not inspect.isabstract(value) and "name" in vars(value):
                found.add(value)
    assert {method_class(name) for name in method_names()} == found
    assert all(method_class(name).name == name for name in method_names())


def test_a_methods_own_hyperparameters_come_first_with_what_the_docstring_says():
    listed = hyperparameters(Elaborate)
    assert listed[0] == ("lam", "0.5", "How strong the pull is.")
    assert ("optimizer", "sgd(lr=0.1)") in [each[:2] for each in listed]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "fedperr"}, 'did you mean "fedper"'),
        ({"name": "fedper", "epoch": 1}, '[method] has no key "epoch"; did you mean "epochs"'),
        ({"name": "fedper", "epochs": "two"}, 'method.epochs expects a whole number or "none"'),
        ({"name": "fedper", "epochs": True}, "got True"),
        ({"name": "fedper", "batch_size": 1.5}, "method.batch_size expects a whole number"),
        ({"name": "fedper", "norm": "avrage"}, 'expects "average" or "local_stats"'),
        ({"name": "fedper", "personal": 3}, "method.personal expects text"),
        ({"name": "fedper", "personal": [{"block": 1}]}, "{blocks = 2}"),
        ({"name": "fedper", "optimizer": 3}, 'an optimizer such as {kind = "sgd"}'),
        ({"name": "fedper", "optimizer": {"kind": "adan"}}, 'did you mean "adam"'),
        ({"name": "fedper", "optimizer": {"kind": 1}}, "method.optimizer.kind expects text"),
        ({"name": "fedper", "optimizer": {"lr": "x"}}, "method.optimizer.lr expects a number"),
        ({"name": "fedper", "optimizer": {"kind": "adam", "betas": [1]}}, "a list of 2 values"),
        ({"name": "fedper", "server_optimizer": {"lr": 1}}, "needs kind"),
        ({"name": "fedper", "optimizer": {"lr": -1}}, "must be 0 or more"),
        ({"name": "fedper", "epochs": 1, "steps": 1}, "not both"),
        ({"name": "fedper", "schedule": {"factor": 0.9}}, "needs kind, to say which schedule"),
        ({"name": "fedper", "schedule": {"kind": "exponential", "factor": -1}}, "above 0; got -1"),
        ({"name": "fedper", "schedule": {"kind": "linear", "warmup": 3}}, "between 0 and 1"),
        ({}, "no method is named"),
        ({"name": "no.such:Thing"}, 'cannot import method "no.such:Thing"'),
        ({"name": "motet.optim:Sgd"}, "is not a method"),
    ],
)
def test_a_wrong_method_table_is_refused_in_one_sentence_with_the_key(table, sentence):
    with pytest.raises(RequestError) as refused:
        method_from_dict(table)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


# --- experiments -----------------------------------------------------------------------------


def test_a_resolved_experiment_comes_back_equal_from_its_toml():
    tables = {"method": {"name": "fedper"}, "run": {"rounds": 3, "cohort": 4}}
    experiment = experiment_from_dict(tables)
    federation = experiment.federation()
    complete = experiment.resolved(federation)
    written = tomllib.loads(write_tables(complete.to_dict()))
    again = experiment_from_dict(written).resolved(federation)
    assert again == complete
    assert write_tables(again.to_dict()) == write_tables(complete.to_dict())
    assert written["model"] == {"name": "mlp", "loss": "cross_entropy", "hidden": [200]}
    assert written["data"]["partition"]["name"] == "pathological"
    assert written["run"]["cohort"] == 4
    assert isinstance(written["run"]["cohort"], int)


def test_the_run_seed_is_the_data_seed_unless_that_is_given():
    base = {"method": {"name": "local"}, "run": {"seed": 7}}
    assert experiment_from_dict(base).data.seed == 7
    assert experiment_from_dict({**base, "data": {"seed": 1}}).data.seed == 1


def test_a_partition_without_a_name_changes_the_usual_one():
    def partition(data):
        return experiment_from_dict({"method": {"name": "local"}, "data": data}).data.partition

    assert partition({"partition": {"clients": 5}}) == Pathological(clients=5, classes=2)
    assert partition({"name": "har", "partition": {"clients": 5}}) == Natural(clients=5)
    dirichlet = {"name": "dirichlet", "clients": 5, "alpha": 1}
    assert partition({"partition": dirichlet}) == Dirichlet(clients=5, alpha=1.0)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"metod": {}}, 'no section [metod]; did you mean "method"'),
        ({"run": 3}, "[run] expects a table"),
        ({"run": {"round": 3}}, '[run] has no key "round"; did you mean "rounds"'),
        ({"run": {"cohort": "all"}}, "run.cohort expects a number"),
        ({"run": {"evaluate_every": 0}}, "run.evaluate_every must be 1 or more"),
        ({"run": {"points": []}}, "run.points is empty"),
        ({"run": {"points": ["after"]}}, 'run.points[0] expects "after_broadcast"'),
        ({"data": {"name": "digit"}}, 'did you mean "digits"'),
        ({"data": {"name": 3}}, "data.name expects text"),
        ({"data": {"partition": "pathologic"}}, 'did you mean "pathological"'),
        ({"data": {"partition": {"name": "dirichlet", "clients": 3}}}, "needs alpha (a number)"),
        ({"data": {"partition": {"clients": "3"}}}, "data.partition.clients expects a whole"),
        ({"data": {"partition": {"clients": 0}}}, "at least 1"),
        ({"data": {"name": "digits", "table": "x.csv"}}, "names both name and table"),
        ({"data": {"table": "x.csv"}}, "needs target (text or a list)"),
    ],
)
def test_a_wrong_config_is_refused_in_one_sentence_with_the_key(tables, sentence):
    with pytest.raises(RequestError) as refused:
        experiment_from_dict({"method": {"name": "local"}, **tables})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"name": "mpl"}, 'did you mean "mlp"'),
        ({"hiden": [3]}, '[model] has no key "hiden" for mlp; did you mean "hidden"'),
        ({"hidden": "wide"}, "model.hidden expects a list"),
        ({"loss": "cross"}, "no loss is called"),
    ],
)
def test_a_wrong_model_is_refused_once_the_data_are_known(model, sentence):
    experiment = experiment_from_dict({"method": {"name": "local"}, "model": model})
    with pytest.raises(RequestError) as refused:
        experiment.resolved(experiment.federation())
    assert sentence in str(refused.value)


def test_a_network_for_sequences_scores_as_many_positions_as_the_data_have(tmp_path):
    for targets, wanted in ((np.zeros(6, np.int64), "last"), (np.zeros((6, 5), np.int64), "every")):
        data = from_arrays({"a": (np.zeros((6, 5), np.int64), targets)})
        model = ModelChoice(name="char-lstm", options={"hidden": 4})
        assert model.resolved(data, FolderData(folder=str(tmp_path))).options["predict"] == wanted


def small_network(shape, classes, width=4):
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, classes))


def test_a_network_of_your_own_is_named_by_its_path():
    federation = NamedData().federation()
    name = f"{__name__}:small_network"
    model = ModelChoice(name=name, options={"width": 3}).resolved(federation, NamedData())
    assert model.task(federation).skeleton[1].out_features == 3


def test_paths_in_a_file_are_relative_to_the_file(tmp_path):
    (tmp_path / "visits.csv").write_text("hospital,age,outcome\n" + "a,1.5,0\nb,2.5,1\n" * 9)
    config = tmp_path / "visits.toml"
    config.write_text(
        '[method]\nname = "local"\n'
        '[data]\ntable = "visits.csv"\nclient = "hospital"\ntarget = "outcome"\n'
    )
    experiment = load_experiment(config)
    assert isinstance(experiment.data, TableData)
    federation = experiment.federation()
    assert federation.clients == ("a", "b")
    assert experiment.resolved(federation).model.name == "mlp"


@pytest.mark.parametrize("text", ["[run\n", "rounds = = 3\n"])
def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(RequestError, match=r"not valid TOML.*line 1"):
        load_experiment(tmp_path / "bad.toml")


def test_the_examples_in_the_guide_are_valid():
    guide = (Path(__file__).parent.parent / "docs" / "guides" / "config.md").read_text()
    single, table, chained, comparison = map(
        tomllib.loads, re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    )
    assert experiment_from_dict(single).run.cohort == 0.2
    assert experiment_from_dict({**single, "data": table["data"]}).data.standardize
    assert experiment_from_dict({**single, **chained}).model.rename["classifier"] == "none"
    assert "two-blocks" in plan_from_dict(comparison).entries


# --- overrides -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("method.epochs=2", 2),
        ("method.epochs = 2.5", 2.5),
        ("method.flag=true", True),
        ("method.word=adam", "adam"),
        ('method.word="2"', "2"),
        ("method.list=[1, 2]", [1, 2]),
        ("method.table={kind='sgd', lr=1}", {"kind": "sgd", "lr": 1}),
    ],
)
def test_an_assignment_is_toml_or_else_text(text, value):
    assert parse_assignment(text)[1] == value


@pytest.mark.parametrize("text", ["method", "=3", "epochs=3", "method.=3"])
def test_an_assignment_needs_a_section_and_a_key(text):
    with pytest.raises(RequestError, match=r"section\.key=value"):
        parse_assignment(text)


def test_naming_another_member_starts_its_table_afresh():
    tables = {"data": {"partition": {"name": "pathological", "clients": 9, "classes": 2}}}
    same = overridden(tables, [("data.partition.name", "pathological")])
    other = overridden(tables, [("data.partition.name", "iid"), ("data.partition.clients", 3)])
    assert same == tables
    assert other == {"data": {"partition": {"name": "iid", "clients": 3}}}
    assert tables["data"]["partition"]["clients"] == 9


def test_a_name_never_clears_another_choice_wherever_it_stands():
    choices = [("model.init", "runs/a"), ("model.hidden", [8]), ("model.name", "mlp")]
    for given in (choices, choices[::-1]):
        made = overridden({"model": {"name": "resnet-18", "width": 4}}, given)
        assert made == {"model": {"name": "mlp", "init": "runs/a", "hidden": [8]}}
    nested = [("data.partition.clients", 3), ("data.partition.name", "iid"), ("data.name", "mnist")]
    made = overridden({"data": {"name": "digits", "limit": 9}}, nested)
    assert made == {"data": {"name": "mnist", "partition": {"name": "iid", "clients": 3}}}


def test_a_key_below_a_short_form_extends_it():
    assert overridden({"method": {"optimizer": "adam"}}, [("method.optimizer.lr", 1)]) == {
        "method": {"optimizer": {"kind": "adam", "lr": 1}}
    }


# --- comparisons -----------------------------------------------------------------------------


def test_a_comparison_shares_what_all_methods_have_and_keeps_what_one_has():
    plan = plan_from_dict(
        {
            "compare": {"methods": ["fedavg", "deep"], "seeds": 2},
            "method": {"lr": 0.3, "epochs": 2},
            "methods": {"deep": {"name": "fedper", "personal": {"blocks": 2}, "epochs": 1}},
            "run": {"seed": 5},
        }
    )
    assert plan.seeds == (5, 6)
    assert plan.entries["fedavg"] == motet.FedAvg(optimizer=Sgd(lr=0.3), epochs=2)
    assert plan.entries["deep"] == motet.FedPer(
        optimizer=Sgd(lr=0.3), epochs=1, personal=motet.Blocks(last=2)
    )
    assert plan_from_dict(tomllib.loads(write_tables(plan.to_dict()))).entries == plan.entries


def test_the_config_of_a_single_run_serves_a_comparison_too():
    single = {"method": method_to_dict(motet.FedPer(optimizer=Sgd(lr=0.3), head_init="common"))}
    plan = plan_from_dict({**single, "compare": {"methods": ["local", "fedper"]}})
    assert plan.entries["local"] == motet.Local(optimizer=Sgd(lr=0.3))
    assert plan.entries["fedper"].head_init == "common"


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"method": {"epoch": 2}}, 'did you mean "epochs"'),
        ({"method": {"personal": []}}, "in [methods.NAME]"),
        ({"methods": {"ditto": {}}}, "[methods.ditto] is not one of the compared methods"),
        ({"methods": {"local": 3}}, "[methods.local] expects a table"),
        ({"methods": {"local": {"epoch": 1}}}, '[methods.local] has no key "epoch"'),
        ({"compare": {"methods": "local"}}, "compare.methods expects a list"),
        ({"compare": {"seeds": "many"}}, "compare.seeds expects a whole number or a list"),
    ],
)
def test_a_wrong_comparison_is_refused_in_one_sentence(tables, sentence):
    with pytest.raises(RequestError) as refused:
        plan_from_dict(tables)
    assert sentence in str(refused.value)
