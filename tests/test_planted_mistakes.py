"""Mistakes planted in sound methods: `check_method` names each once, by the right check."""

from __future__ import annotations

import pickle
import random
import re
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from toys import CARD

import motet
from motet import FedAvg, FedPer, Local
from motet._core import tree
from motet._core.tree import squared_distance
from motet.data._sources.arrays import from_arrays
from motet.testing import ConformanceError, check_method

PLANTED: dict[str, tuple[type, str]] = {}
ALL_ZERO = torch.zeros(3)
seen_last: Any = None
uploads_seen: list[int] = []


def fails(title: str, *, declared: bool = True) -> Callable[[type], type]:
    """Register a method with a mistake, and the one check that has to fail."""

    def register(kind: Any) -> Any:
        if declared:
            hyphened = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
            kind.name, kind.card = hyphened, replace(CARD, title=kind.__name__)
        PLANTED[kind.__name__] = (kind, title)
        return kind

    return register


def sound(base: type) -> Callable[[type], type]:
    """Make a frozen dataclass, as a method should be."""
    return dataclass(frozen=True, kw_only=True)(base)


# -- what a method says about itself ------------------------------------------


@fails("is_a_frozen_dataclass")
class HasNoDecorator(FedAvg):
    pass


@fails("is_a_frozen_dataclass")
class HasNoDecoratorButAField(FedAvg):
    strength: float = 0.5


@fails("is_a_frozen_dataclass")
@dataclass(frozen=True)
class TakesPositions(FedAvg):
    strength: float = 1.0


@fails("is_a_frozen_dataclass")
@sound
class ForgetsAnAnnotation(FedAvg):
    strength = 0.5


@fails("is_a_frozen_dataclass")
@sound
class OverridesAFieldWithoutAnAnnotation(FedAvg):
    epochs = 3


@fails("has_a_name_and_a_card_of_its_own", declared=False)
@sound
class InheritsItsNameAndCard(FedAvg):
    pass


@fails("has_a_name_and_a_card_of_its_own", declared=False)
@sound
class InheritsItsCard(FedAvg):
    name: ClassVar[str] = "inherits-its-card"


@fails("has_a_name_and_a_card_of_its_own", declared=False)
@sound
class InheritsItsName(FedAvg):
    card: ClassVar[motet.method.Card] = CARD


@fails("has_a_name_and_a_card_of_its_own", declared=False)
@sound
class Shouts(FedAvg):
    name: ClassVar[str] = "SHOUTS_Loudly"
    card: ClassVar[motet.method.Card] = CARD


@fails("has_a_name_and_a_card_of_its_own", declared=False)
@sound
class LeavesTheCardBlank(FedAvg):
    name: ClassVar[str] = "leaves-the-card-blank"
    card: ClassVar[motet.method.Card] = replace(CARD, shared=" ")


@fails("config_round_trip")
@sound
class CannotBeWritten(FedAvg):
    hook: Callable[[], int] = len


@fails("config_round_trip")
@sound
class ReadsBackSomethingElse(FedAvg):
    strength: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "strength", self.strength / 2)


# -- what is captured and kept aside ------------------------------------------


@fails("no_tensor_is_captured")
@sound
class CapturesTheDownload(FedAvg):
    def client_update(self, down, client, data, task):
        def pulled(state, batch):
            return task.loss(state, batch) + squared_distance(state, down)

        return motet.fit(task, down, data["train"], self.optimizer, loss=pulled), client


@fails("no_tensor_is_captured")
@sound
class CapturesTheDownloadInAPartial(FedAvg):
    def client_update(self, down, client, data, task):
        loss = partial(_pulled, task, down)
        return motet.fit(task, down, data["train"], self.optimizer, loss=loss), client


def _pulled(task, anchor, state, batch):
    return task.loss(state, batch) + squared_distance(state, anchor)


@fails("no_tensor_is_captured")
@sound
class CapturesWhenItServes(FedAvg):
    def adapt(self, down, client, data, task):
        fast = partial(_pulled, task, down)
        motet.fit(task, down, data["adapt"], self.optimizer, loss=fast)
        return client


@fails("no_tensor_is_captured")
@sound
class ReadsAGlobalTensor(FedAvg):
    def client_update(self, down, client, data, task):
        def loss(state, batch):
            return task.loss(state, batch) + ALL_ZERO.sum()

        return motet.fit(task, down, data["train"], self.optimizer, loss=loss), client


@fails("no_field_holds_a_tensor")
@sound
class HoldsATensor(FedAvg):
    anchor: Any = torch.zeros(3)


@fails("nothing_is_remembered_outside_the_states")
@sound
class WritesAGlobal(FedAvg):
    def client_update(self, down, client, data, task):
        global seen_last
        before, seen_last = seen_last, down
        up, client = super().client_update(down, client, data, task)
        return tree.interpolate(up, up if before is None else before, 0.1), client


@fails("nothing_is_remembered_outside_the_states")
@sound
class CountsInAGlobalList(FedAvg):
    def server_update(self, server, combined, info, task):
        uploads_seen.append(1)
        return super().server_update(server, combined, info, task)


@fails("nothing_is_remembered_outside_the_states")
@sound
class CountsInItsClass(FedAvg):
    seen: ClassVar[list[int]] = []

    def client_update(self, down, client, data, task):
        self.seen.append(1)
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf + len(self.seen), up), client


@fails("nothing_is_remembered_outside_the_states")
@sound
class CountsInItself(FedAvg):
    def client_update(self, down, client, data, task):
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf * self.calls, up), client


@fails("client_update_is_repeatable")
@sound
class CountsInADefaultArgument(FedAvg):
    def client_update(self, down, client, data, task, *, calls=[]):  # noqa: B006
        calls.append(1)
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf + len(calls), up), client


@fails("resuming_equals_running_through")
@sound
class RemembersByTask(FedAvg):
    """Two runs have two tasks, so each of them is repeatable; a resumed one has forgotten."""

    def server_update(self, server, combined, info, task):
        task.__dict__["rounds"] = task.__dict__.get("rounds", 0) + 1
        return tree.tree_map(lambda leaf: leaf * task.__dict__["rounds"], combined)


@fails("a_third_round_makes_no_new_program")
@sound
class MakesALossClassPerRound(FedAvg):
    def client_update(self, down, client, data, task):
        @dataclass(frozen=True)
        class Plain:
            def __call__(self, state, batch):
                return task.loss(state, batch)

        return motet.fit(task, down, data["train"], self.optimizer, loss=Plain()), client


# -- states and messages ------------------------------------------------------


class Kept(NamedTuple):
    """What a client keeps, with a number that is no tensor."""

    model: Any
    rate: Any


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class KeepsAFloat(Local):
    def init_client(self, task, initial, key):
        return Kept(initial, 0.5)

    def client_update(self, down, client, data, task):
        up, model = super().client_update(down, client.model, data, task)
        return up, Kept(model, client.rate)

    def personalize(self, down, client, data, task):
        return client.model


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class StartsWithAList(FedAvg):
    def init_server(self, task, initial, clients, key):
        return [initial]


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class UploadsAnArray(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up | {"head.bias": up["head.bias"].numpy()}, client


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class SendsNothingDown(FedAvg):
    def broadcast(self, server, info):
        return None


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class CountsInPython(FedAvg):
    def server_update(self, server, combined, info, task):
        return combined | {"rounds": info.number}


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class ForgetsToReturnTheClient(FedAvg):
    def client_update(self, down, client, data, task):
        return super().client_update(down, client, data, task)[0]


@fails("a_round_runs_through_on_trees_of_tensors")
@sound
class Crashes(FedAvg):
    def server_update(self, server, combined, info, task):
        raise ZeroDivisionError("by nothing")


@fails("everybody_is_served")
@sound
class CrashesWhenServing(FedAvg):
    def personalize(self, down, client, data, task):
        return down | {"head.bias": client["head.bias"]}


@fails("trees_keep_their_structure")
@sound
class Grows(FedAvg):
    def server_update(self, server, combined, info, task):
        return combined | {f"seen/{info.number}": torch.zeros(1)}

    def broadcast(self, server, info):
        return {k: v for k, v in server.items() if not k.startswith("seen/")}


@fails("trees_keep_their_structure")
@sound
class ChangesType(Local):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up, client | {"head.bias": client["head.bias"].double()}


@fails("trees_keep_their_structure")
@sound
class ForgetsBuffers(FedAvg):
    def server_update(self, server, combined, info, task):
        return task.trainable(combined)


@fails("private_names_stay_home")
@sound
class UploadsTheHead(FedPer):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up | client, client

    def server_update(self, server, combined, info, task):
        return tree.pick(combined, server)


@fails("nothing_is_pickled")
@sound
class Pickles(FedAvg):
    def broadcast(self, server, info):
        return pickle.loads(pickle.dumps(server))


# -- purity -------------------------------------------------------------------


@fails("nothing_is_printed")
@sound
class Prints(FedAvg):
    def server_update(self, server, combined, info, task):
        print("round", info.number)  # noqa: T201
        return super().server_update(server, combined, info, task)


@fails("no_connection_is_opened")
@sound
class PhonesHome(FedAvg):
    def server_update(self, server, combined, info, task):
        with socket.socket() as line, suppress(OSError):
            line.connect(("127.0.0.1", 9))
        return super().server_update(server, combined, info, task)


def _drawing(draw: Callable[[], float]) -> type:
    class Draws(FedAvg):
        def client_update(self, down, client, data, task):
            up, client = super().client_update(down, client, data, task)
            noise = draw()
            return tree.tree_map(lambda leaf: leaf + noise, up), client

    return Draws


@fails("no_global_generator_is_used")
@sound
class DrawsFromTorch(_drawing(lambda: float(torch.rand(())))):
    pass


@fails("no_global_generator_is_used")
@sound
class DrawsFromNumpy(_drawing(lambda: float(np.random.rand()))):  # noqa: NPY002
    pass


@fails("no_global_generator_is_used")
@sound
class DrawsFromPython(_drawing(random.random)):
    pass


@fails("client_update_is_repeatable")
@sound
class DrawsFromTheSystem(_drawing(random.SystemRandom().random)):
    pass


@fails("no_global_generator_is_used")
@sound
class StartsAtRandom(Local):
    def init_client(self, task, initial, key):
        return tree.tree_map(lambda leaf: leaf + 0.1 * torch.randn(leaf.shape), initial)


@fails("client_update_leaves_its_inputs_unchanged")
@sound
class WritesIntoTheDownload(FedAvg):
    def client_update(self, down, client, data, task):
        down["head.bias"].add_(1)
        return super().client_update(down, client, data, task)


@fails("client_update_leaves_its_inputs_unchanged")
@sound
class WritesIntoWhatItKept(Local):
    def client_update(self, down, client, data, task):
        client["head.bias"].mul_(0.5)
        return super().client_update(down, client, data, task)


@fails("client_update_leaves_its_inputs_unchanged")
@sound
class WritesIntoTheData(FedAvg):
    def client_update(self, down, client, data, task):
        data["train"].x.mul_(0.5)
        return super().client_update(down, client, data, task)


@fails("server_functions_leave_the_server_unchanged")
@sound
class WritesIntoTheServer(FedAvg):
    def broadcast(self, server, info):
        server["head.bias"].mul_(0.5)
        return server


@fails("server_functions_leave_the_server_unchanged")
@sound
class UpdatesTheServerInPlace(FedAvg):
    def server_update(self, server, combined, info, task):
        for name, leaf in server.items():
            leaf.copy_(combined[name])
        return server


@fails("evaluating_changes_nothing")
@sound
class LearnsWhenAsked(Local):
    def personalize(self, down, client, data, task):
        client["head.bias"].add_(1)
        return client


# -- results ------------------------------------------------------------------


@fails("serial_equals_vectorized")
@sound
class SeesThePadding(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up | {"head.bias": up["head.bias"] + data["train"].x.mean()}, client


@fails("serial_equals_vectorized")
@sound
class WeighsByPaddedRows(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        rows = data["train"].rows.numel()
        return tree.interpolate(down, up, rows / (rows + 40)), client


@fails("a_stack_of_clients_runs_through")
@sound
class LooksAtAValue(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return (up, client) if up["head.bias"].sum() > 0 else (down, client)


@dataclass(frozen=True, kw_only=True)
class FirstCountsTwice(motet.Mean):
    """A mean in which the first client of every chunk counts twice."""

    def lift(self, clients, uploads, weights):
        weights = weights.clone()
        weights[0] *= 2
        return super().lift(clients, uploads, weights)


@fails("serial_equals_vectorized")
@sound
class ReducesByPlaceInTheChunk(FedAvg):
    reduce: motet._core.aggregation.mean.Reduce = FirstCountsTwice()


@fails("cohort_order_changes_nothing")
@sound
class FavoursTheFirstOfTheCohort(FedAvg):
    def server_update(self, server, combined, info, task):
        factor = 1 + info.clients.index(info.cohort[0]) / 10
        return tree.tree_map(lambda leaf: leaf * factor, combined)


@fails("cohort_order_changes_nothing")
@sound
class SendsByPlaceInTheCohort(FedAvg):
    def broadcast(self, server, info):
        def shifted(place):
            return tree.tree_map(lambda leaf: leaf + 0.1 * place, server)

        return motet.method.PerClient({c: shifted(i) for i, c in enumerate(info.cohort)})


@fails("poisoned_test_data_change_nothing")
@sound
class TrainsOnTestData(FedAvg):
    def prepare(self, federation):
        def split(name):
            some = [c for c in federation.clients if federation.size(c, name)]
            return {c: federation.examples(c, name) for c in some}

        train = split("train") | split("test")
        return from_arrays(train, split("val"), split("test"), classes=federation.classes)


@fails("one_example_is_enough")
@sound
class DividesByNothing(Local):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        spread = 1 / (data["train"].size - 1)
        return up, client | {"head.bias": client["head.bias"] * spread}


@fails("predictions_are_probabilities")
@sound
class PredictsScores(FedAvg):
    def predict(self, personal, x, task):
        return task.outputs(personal, x)


@fails("evaluating_changes_nothing")
@sound
class TreatsStrangersDifferently(Local):
    served: ClassVar[weakref.WeakKeyDictionary[Any, int]] = weakref.WeakKeyDictionary()

    def adapt(self, down, client, data, task):
        count = self.served[task] = self.served.get(task, 0) + 1
        return tree.tree_map(lambda leaf: leaf + count, client)


# -- the law ------------------------------------------------------------------


def titles(failure: ConformanceError) -> list[str]:
    """List the checks that a report names."""
    return re.findall(r"^\S+ fails (\w+)\[", str(failure), flags=re.MULTILINE)


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_is_reported_once_by_the_check_that_is_about_it(name):
    kind, expected = PLANTED[name]
    with pytest.raises(ConformanceError) as report:
        check_method(kind())
    assert titles(report.value) == [expected], str(report.value)


def test_two_mistakes_are_two_reports():
    @fails("nothing_is_printed", declared=False)
    @sound
    class PrintsUnderABorrowedName(Prints):
        pass

    del PLANTED["PrintsUnderABorrowedName"]
    with pytest.raises(ConformanceError) as report:
        check_method(PrintsUnderABorrowedName())
    assert titles(report.value) == [
        "has_a_name_and_a_card_of_its_own",
        "nothing_is_printed",
        "config_round_trip",  # a class inside a function cannot be imported by its name
    ]


def test_a_report_says_how_many_checks_were_not_tried():
    with pytest.raises(ConformanceError, match=r"\d+ more checks presuppose what is broken"):
        check_method(KeepsAFloat())
