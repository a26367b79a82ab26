"""The conformance suite: every method passes it, and no broken one does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from toys import CARD, ToyAMP, arrays

import motet
from motet import FedAvg, FedAvgFT, FedPer, Local, tree
from motet.catalog import method_class, method_names
from motet.errors import RequestError
from motet.testing import ConformanceError, check_method, checks, ragged
from motet.testing.worlds import TinyNet

# The methods of tests/methods have their rows there, next to their laws.
METHODS = {
    "local": Local(),
    "fedavg": FedAvg(),
    "fedavg-ft": FedAvgFT(),
    "fedper": FedPer(),
    "fedavg with server momentum": FedAvg(server_optimizer=motet.Sgd(lr=1.0, momentum=0.9)),
    "fedper with local statistics": FedPer(norm="local_stats", head_init="common"),
}
NEEDS_NO_WORLD = (
    "hyperparameters_are_frozen_keywords",
    "name_and_card_are_complete",
    "config_round_trip",
)


@pytest.mark.parametrize("name", METHODS)
def test_methods_keep_their_promises(name):
    check_method(METHODS[name])


def test_single_uploads_and_downloads_of_their_own_keep_them_too():
    world = ragged()  # not with batch statistics: this toy's mixture of counters is no counter
    check_method(ToyAMP(), world.task, world.data)


@pytest.mark.parametrize("name", method_names())
def test_every_method_of_the_catalog_declares_itself_and_can_be_written_down(name):
    method = method_class(name)()
    assert method.name == name
    for check in checks(method):
        if check.name in NEEDS_NO_WORLD:
            check()


# -- broken methods -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WritesIntoTheDownload(FedAvg):
    def client_update(self, down, client, data, task):
        down["head.bias"].add_(1)
        return super().client_update(down, client, data, task)


@dataclass(frozen=True, kw_only=True)
class WritesIntoTheServer(FedAvg):
    def broadcast(self, server, info):
        server["head.bias"].mul_(0.5)
        return server


@dataclass(frozen=True, kw_only=True)
class Dreams(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf + torch.rand(()), up), client


@dataclass(frozen=True, kw_only=True)
class Remembers(FedAvg):
    seen: ClassVar[list[int]] = []

    def client_update(self, down, client, data, task):
        self.seen.append(1)
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf + len(self.seen), up), client


@dataclass(frozen=True, kw_only=True)
class SeesThePadding(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up | {"head.bias": up["head.bias"] + data["train"].x.mean()}, client


@dataclass(frozen=True, kw_only=True)
class LooksAtAValue(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return (up, client) if up["head.bias"].sum() > 0 else (down, client)


@dataclass(frozen=True, kw_only=True)
class ReadsTheClock(FedAvg):
    """Resumes elsewhere than it stopped: the server's memory is outside its state."""

    memory: ClassVar[dict[int, int]] = {}

    def server_update(self, server, combined, info, task):
        self.memory[info.key.seed] = rounds = self.memory.get(info.key.seed, 0) + 1
        return tree.tree_map(lambda leaf: leaf * rounds, combined)


@dataclass(frozen=True, kw_only=True)
class UploadsTheHead(FedPer):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up | client, client

    def server_update(self, server, combined, info, task):
        return tree.pick(combined, server)


@dataclass(frozen=True, kw_only=True)
class DividesByNothing(Local):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        spread = 1 / (data["train"].size - 1)
        return up, client | {"head.bias": client["head.bias"] * spread}


@dataclass(frozen=True, kw_only=True)
class PredictsScores(FedAvg):
    def predict(self, personal, x, task):
        return task.outputs(personal, x)


@dataclass(frozen=True, kw_only=True)
class LearnsWhenAsked(Local):
    def personalize(self, down, client, data, task):
        client["head.bias"].add_(1)
        return client


@dataclass(frozen=True, kw_only=True)
class Grows(FedAvg):
    def server_update(self, server, combined, info, task):
        return combined | {f"seen/{info.number}": torch.zeros(1)}

    def broadcast(self, server, info):
        return {k: v for k, v in server.items() if not k.startswith("seen/")}


@dataclass(frozen=True, kw_only=True)
class ChangesType(Local):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return up, client | {"head.bias": client["head.bias"].double()}


@dataclass(frozen=True, kw_only=True)
class Pickles(FedAvg):
    def broadcast(self, server, info):
        return pickle.loads(pickle.dumps(server))


@dataclass(frozen=True, kw_only=True)
class CannotBeWritten(FedAvg):
    hook: Callable[[], int] = lambda: 1


@dataclass(frozen=True)
class TakesPositions(FedAvg):
    strength: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Shouts(FedAvg):
    name: ClassVar[str] = "SHOUTS_Loudly"


@dataclass(frozen=True, kw_only=True)
class SaysNothing(FedAvg):
    card: ClassVar[motet.method.Card] = motet.method.Card(**{**vars(CARD), "shared": ""})


BROKEN = [
    (WritesIntoTheDownload, "client_update_leaves_its_inputs_unchanged"),
    (WritesIntoTheServer, "server_functions_leave_the_server_unchanged"),
    (Dreams, "client_update_is_repeatable"),
    (Dreams, "no_global_generator_is_used"),
    (Remembers, "client_update_is_repeatable"),
    (Remembers, "runs_are_repeatable"),
    (SeesThePadding, "serial_equals_vectorized"),
    (SeesThePadding, "chunk_size_changes_nothing"),
    (LooksAtAValue, "serial_equals_vectorized"),
    (ReadsTheClock, "resuming_equals_running_through"),
    (UploadsTheHead, "private_names_stay_home"),
    (DividesByNothing, "one_example_is_enough"),
    (PredictsScores, "predictions_are_probabilities"),
    (LearnsWhenAsked, "evaluating_changes_nothing"),
    (Grows, "trees_keep_their_structure"),
    (ChangesType, "trees_keep_their_structure"),
    (Pickles, "nothing_is_pickled"),
    (CannotBeWritten, "config_round_trip"),
    (TakesPositions, "hyperparameters_are_frozen_keywords"),
    (Shouts, "name_and_card_are_complete"),
    (SaysNothing, "name_and_card_are_complete"),
]


@pytest.mark.parametrize(("broken", "promise"), BROKEN)
def test_a_broken_method_fails_the_check_that_names_its_fault(broken, promise):
    method = broken()
    (check, *_) = [check for check in checks(method) if check.name == promise]
    with pytest.raises(ConformanceError, match=f"^{method.name} fails {promise}"):
        check()


# -- how it is used -----------------------------------------------------------


def test_a_failure_says_which_check_which_method_what_was_expected_and_what_came():
    (check,) = [c for c in checks(PredictsScores()) if c.name == "predictions_are_probabilities"]
    with pytest.raises(ConformanceError) as failure:
        check()
    sentence = str(failure.value)
    assert sentence.startswith("fedavg fails predictions_are_probabilities[ragged]: ")
    assert "expected probabilities from single, but the least is" in sentence
    assert sentence.endswith("`predict` returns probabilities, not scores.")


def test_check_method_reports_every_failure_at_once():
    with pytest.raises(ConformanceError) as failure:
        check_method(
            Dreams(), skip=[c.name for c in checks(Dreams()) if "repeatable" not in c.name]
        )
    assert [line.split("[")[0] for line in str(failure.value).splitlines()] == [
        "fedavg fails client_update_is_repeatable",
        "fedavg fails runs_are_repeatable",
    ]


def test_an_error_inside_a_method_is_named_and_kept_as_the_cause():
    class Crashes(FedAvg):
        def broadcast(self, server, info):
            raise ZeroDivisionError("by nothing")

    check = next(c for c in checks(Crashes()) if c.name == "runs_are_repeatable")
    with pytest.raises(
        ConformanceError, match="ZeroDivisionError was raised: by nothing"
    ) as failure:
        check()
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_checks_have_names_sentences_and_no_twins():
    listed = list(checks(FedAvg()))
    assert len({str(check) for check in listed}) == len(listed) > 25
    for check in listed:
        assert check.sentence.endswith("."), check.name


def test_passed_checks_are_returned_and_some_can_be_skipped():
    others = {check.name for check in checks(FedAvg())} - set(NEEDS_NO_WORLD)
    passed = check_method(FedAvg(), skip=others)
    assert set(passed) == {f"{name}[ragged]" for name in NEEDS_NO_WORLD}


def test_a_method_can_be_tried_with_a_network_and_data_of_ones_own():
    task = motet.Task(
        build=lambda: torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    )
    data = arrays({"a": 5, "b": 1})
    passed = check_method(FedPer(personal=("1",)), task, data)
    assert all(name.endswith("[given]") for name in passed)


def test_what_cannot_be_stacked_is_checked_singly():
    @dataclass(frozen=True, kw_only=True)
    class Single(LooksAtAValue):
        vectorizable: ClassVar[bool] = False

    names = {check.name for check in checks(Single())}
    assert not {"serial_equals_vectorized", "chunk_size_changes_nothing"} & names
    for check in checks(Single()):
        if check.name in ("a_client_shares_no_memory", "listing_order_changes_nothing"):
            check()


def test_a_network_without_data_or_an_unknown_check_is_refused():
    with pytest.raises(RequestError, match="give task= and data= together"):
        check_method(FedAvg(), motet.Task(build=TinyNet))
    with pytest.raises(RequestError, match='no check is called "pickles"'):
        check_method(FedAvg(), skip=["pickles"])


def test_the_ragged_world_holds_every_awkward_client():
    data = ragged().data
    assert data.size("one", "train") == 1
    assert set(data.examples("single", "train").y.tolist()) == {0}
    assert data.size("unchecked", "val") == 0
    assert data.size("untested", "test") == 0
    assert data.size("many", "train") > 32
