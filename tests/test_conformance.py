"""The conformance suite: every method passes it, and no broken one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from toys import ToyAMP, arrays

import motet
from motet import FedAvg, FedPer
from motet._core import tree
from motet.errors import RequestError
from motet.testing import ConformanceError, check_method, checks, ragged
from motet.testing._worlds import TinyNet

ABOUT_THE_CLASS = (
    "is_a_frozen_dataclass",
    "no_field_holds_a_tensor",
    "has_a_name_and_a_card_of_its_own",
    "config_round_trip",
)


def test_single_uploads_and_downloads_of_their_own_keep_every_promise():
    world = ragged()  # not with batch statistics: this toy's mixture of counters is no counter
    check_method(ToyAMP(), world.task, world.data)


# -- broken methods: test_planted_mistakes.py has many more --------------------


@dataclass(frozen=True, kw_only=True)
class Dreams(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return tree.tree_map(lambda leaf: leaf + torch.rand(()), up), client


@dataclass(frozen=True, kw_only=True)
class LooksAtAValue(FedAvg):
    def client_update(self, down, client, data, task):
        up, client = super().client_update(down, client, data, task)
        return (up, client) if up["head.bias"].sum() > 0 else (down, client)


@dataclass(frozen=True, kw_only=True)
class PredictsScores(FedAvg):
    def predict(self, personal, x, task):
        return task.outputs(personal, x)


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
    independent = ("has_a_name_and_a_card_of_its_own", "no_global_generator_is_used")
    with pytest.raises(ConformanceError) as failure:
        check_method(Dreams(), skip=[c.name for c in checks(Dreams()) if c.name not in independent])
    assert [line.split("[")[0] for line in str(failure.value).splitlines()] == [
        "fedavg fails has_a_name_and_a_card_of_its_own",
        "fedavg fails no_global_generator_is_used",
    ]


def test_what_is_skipped_stops_no_other_check():
    """Both depend on the global generator; the second also on the first, which fails."""
    kept = ("client_update_is_repeatable", "runs_are_repeatable")
    with pytest.raises(ConformanceError) as failure:
        check_method(Dreams(), skip=[c.name for c in checks(Dreams()) if c.name not in kept])
    first, last = str(failure.value).splitlines()
    assert first.startswith("fedavg fails client_update_is_repeatable[ragged]")
    assert last == "1 more check presupposes what is broken, so not tried."


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
    others = {check.name for check in checks(FedAvg())} - set(ABOUT_THE_CLASS)
    passed = check_method(FedAvg(), skip=others)
    assert set(passed) == {f"{name}[ragged]" for name in ABOUT_THE_CLASS}


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
