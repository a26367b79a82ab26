"""One training for several methods: the same numbers to the last bit, as if each were alone."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from small_comparisons import numbers, world
from toys import assert_same

import motet
from motet._compare.compare import compare
from motet._compare.comparison_spec import ComparisonSpec
from motet._engine.federation import Run, start
from motet._engine.observers import Watcher
from motet._training.fitting import fit
from motet.methods._catalog import method_class, method_names
from motet.methods._fedavg import FedAvg
from motet.methods._fedavg_ft import FedAvgFT
from motet.optim import Adam, Sgd

FAMILY = [motet.FedAvg(), motet.FedAvgFT(adapt_epochs=2), motet.KNNPer(k=3)]


def test_methods_that_train_alike_are_trained_once(monkeypatch):
    rounds, advance = [], Run.advance

    def counted(self):
        rounds.append(self.setting.method.name)
        return advance(self)

    spec = ComparisonSpec.of([*FAMILY, motet.FedPer()], *world(), rounds=2, seeds=1)
    monkeypatch.setattr(Run, "advance", counted)
    assert spec.groups() == [("local",), ("fedavg", "fedavg-ft", "knn-per"), ("fedper",)]
    spec.run(("fedavg", "fedavg-ft", "knn-per"), 0, Watcher())
    assert rounds == ["fedavg", "fedavg"]


@pytest.mark.parametrize("choose", ["last", "validation"])
@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_shared_or_alone_every_number_is_the_same_to_the_last_bit(choose, backend):
    settings = {"rounds": 3, "cohort": 0.5, "choose": choose, "backend": backend}
    spec = ComparisonSpec.of(FAMILY, *world(), **settings)
    labels = ("fedavg", "fedavg-ft", "knn-per")
    together = spec.run(labels, 0, Watcher())
    for label, shared in zip(labels, together, strict=True):
        (alone,) = spec.run([label], 0, Watcher())
        assert numbers(shared) == numbers(alone)


def test_a_row_says_whose_training_it_shares():
    found = compare(FAMILY, *world(), rounds=1, seeds=1)
    shared = {label: found.of(label)[0].shared_with for label in found.labels}
    assert shared == {
        "local": None,
        "fedavg": None,
        "fedavg-ft": "fedavg",
        "knn-per": "fedavg",
    }
    costs = [replace(found.of(label)[0].cost, seconds=0.0) for label in ("fedavg", "knn-per")]
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    "other",
    [
        motet.FedAvgFT(optimizer=Sgd(lr=0.2)),
        motet.FedAvgFT(epochs=2),
        motet.FedAvgFT(batch_size=8),
        motet.FedAvgFT(server_optimizer=Adam(lr=0.1)),
        motet.FedAvgFT(norm="local_stats"),
        motet.KNNPer(schedule=motet.Exponential(factor=0.5)),
        motet.FedProx(),
        motet.FedAvgM(),
    ],
)
def test_methods_that_train_differently_are_trained_apart(other):
    spec = ComparisonSpec.of([motet.FedAvg(), other], *world(), rounds=1, seeds=1)
    together = [labels for labels in spec.groups() if "fedavg" in labels]
    assert together == [("fedavg",)] or other.name not in together[0]


def test_what_only_serves_clients_does_not_part_methods():
    methods = {"a": motet.FedAvgFT(adapt_epochs=1), "b": motet.FedAvgFT(adapt_optimizer=Adam())}
    spec = ComparisonSpec.of({**methods, "c": motet.FedAvg()}, *world(), rounds=1, seeds=1)
    assert ("a", "b", "c") in spec.groups()


@pytest.mark.parametrize("name", method_names())
def test_every_method_trains_exactly_as_the_one_it_names(name):
    method = method_class(name)()
    twin = method.trains_as()
    assert twin.trains_as() == twin
    if twin == method:
        return
    task, data = world()
    own = start(method, task, data, rounds=2, cohort=0.5)
    other = start(twin, task, data, rounds=2, cohort=0.5)
    for _ in range(2):
        ours, theirs = own.advance(), other.advance()
        assert_same(ours.server, theirs.server)
        for cost in ("gradients", "bytes_up", "bytes_down", "cohort", "notes"):
            assert getattr(ours, cost) == getattr(theirs, cost)
    assert list(own.setting.store) == list(other.setting.store)


@dataclass(frozen=True, kw_only=True)
class TrainsItsOwnWay(FedAvgFT):
    """Inherits how FedAvg+ trains, and changes it."""

    name: ClassVar[str] = "its-own-way"

    def client_update(self, down, client, data, task):
        return fit(task, down, data["train"], Sgd(lr=0.001)), client


@dataclass(frozen=True, kw_only=True)
class CountsDifferently(FedAvg):
    """Costs more than it seems to."""

    name: ClassVar[str] = "counts-differently"
    gradients: ClassVar[dict[str, float]] = {"train": 2.0}


@pytest.mark.parametrize("kind", [TrainsItsOwnWay, CountsDifferently])
def test_a_subclass_that_changes_the_training_is_never_served_by_another(kind):
    method = kind()
    assert method.trains_as() is method
    spec = ComparisonSpec.of([motet.FedAvg(), method], *world(), rounds=1, seeds=1)
    assert (method.name,) in spec.groups()
