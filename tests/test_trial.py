"""What is tried out before the first round: it refuses, or finds a plan that works."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from awkward_networks import ACCEPTED, REFUSALS
from law import METHODS, ROUNDING, SMALL, assert_law, largest_gap, started
from networks import FOREIGN, NETWORKS, REFUSED, data_for
from toys import arrays, assert_close, assert_same

import motet
from motet import Task
from motet._engine.backends.plan import measuring
from motet._engine.backends.vectorized import Vectorized
from motet._engine.federation import start
from motet.errors import RequestError, StructureError, WorkError
from motet.testing import ragged
from motet.testing._driving import states

BACKENDS = ("serial", "auto")
QUICK = {
    "lstm": "local",
    "gru": "fedavg-ft",
    "viewing": "fedper",
    "branching": "ditto",
    "masking": "fedavg",
    "own batch norm": "fedper",
    "batch norm without memory": "apfl",
    "resnet-18": "local",
    "spectral norm": "fedrep",
    "encoder layer dropout": "fedalt",
    "double": "fedproto",
    "two kinds": "apfl",
    "counting": "pfedme",
    "word-lstm last": "knn-per",
    "tied": "scaffold",
    "conv 1d": "flow",
    "bilinear": "per-fedavg",
    "one layer": "ifca",
}


@pytest.mark.parametrize(("network", "method"), QUICK.items())
def test_auto_never_fails_where_serial_works(network, method):
    assert_law(network, METHODS[method])


@pytest.mark.parametrize("network", REFUSED)
def test_what_must_be_refused_is_refused_by_every_backend_in_the_same_words(network):
    sentences = {started(network, METHODS["fedavg"], backend) for backend in ("serial", "auto")}
    (sentence,) = sentences
    assert isinstance(sentence, str)
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("network", "remedy"),
    [
        ("max norm", '"body.0.weight" .* Leave max_norm= out of Embedding'),
        ("clamping", '"body.layer.weight" .* Compute a new tensor instead'),
        ("renormalising", '"body.layer.weight" .* Compute a new tensor instead'),
        ("layers in a list", "parameters.. does not list.* Keep layers in nn.ModuleList"),
        ("layers in a dict", "parameters.. does not list.* Keep layers in nn.ModuleList"),
        ("closing", '"body.layer.weight" through a function .* Make that function a method'),
    ],
)
def test_a_network_that_changes_or_hides_weights_is_refused_with_the_remedy(network, remedy):
    assert re.search(remedy, str(started(network, METHODS["local"], "auto")))


@pytest.mark.parametrize(("turn", "network"), [*enumerate(ACCEPTED)])
def test_awkward_networks_agree_in_stacks_and_traced(turn, network):
    method = METHODS[("fedper", "ditto")[turn % 2]]
    steep = replace(method, optimizer=motet.Sgd(lr=0.5))
    assert largest_gap(network, steep, traced=True) <= ROUNDING


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("network", "remedy"), [(n, words) for n, (_, words) in REFUSALS.items()])
def test_a_network_with_a_memory_or_side_effects_is_refused_with_the_remedy(network, remedy):
    (sentence,) = {str(started(network, METHODS["local"], backend)) for backend in BACKENDS}
    assert re.search(remedy, sentence)
    assert sentence.endswith(".")


def test_the_examples_of_a_refused_network_stay_as_they_are():
    made, _ = REFUSALS["input changed"]
    data = data_for(made)
    before = data.examples("few", "train").x.clone()
    with pytest.raises(StructureError):
        start(METHODS["local"], Task(made.build), data, rounds=1)
    assert torch.equal(data.examples("few", "train").x, before)


@pytest.mark.parametrize(
    ("network", "differs"),
    [
        ("scaled by frequency", "the network's gradients differ"),
        ("mean over the batch", "the network's outputs differ"),
    ],
)
def test_the_plan_says_what_differs_in_a_stack(network, differs):
    plan = plan_of(network)
    assert plan.mode == "loop"
    assert f"{differs} in a stack from those of one client by itself" in plan.reason


def test_a_network_that_reads_strides_gets_no_channels_last():
    assert not plan_of("as strided", mode="loop").channels_last


class NeverWorks(motet.FedAvg):
    name: ClassVar[str] = "never-works"

    def personalize(self, down, client, data, task):
        raise ZeroDivisionError("by nothing")


@pytest.mark.parametrize("backend", ["serial", "vectorized", "auto"])
def test_work_that_always_fails_is_refused_before_the_first_round(backend):
    with pytest.raises(WorkError) as refusal:
        start(NeverWorks(), ragged().task, arrays({"a": 4, "b": 5}), rounds=1, backend=backend)
    assert str(refusal.value) == (
        "never-works does not work with this network and these data: serving fails on every "
        "backend (ZeroDivisionError: by nothing). Change the network, or choose another method."
    )


def plan_of(network, **options):
    run = started(network, METHODS["fedper"], "auto", **options)
    assert not isinstance(run, str), run
    return run.backend.plan


def test_a_network_that_cannot_be_stacked_takes_turns_and_the_plan_says_why():
    plan = plan_of("branching")
    assert plan.mode == "loop"
    assert plan.reason.startswith("clients cannot be stacked: RuntimeError: vmap: ")
    assert "\n" not in str(plan)


def test_a_network_that_mixes_the_examples_of_a_batch_takes_turns():
    assert "differ in a stack from those of one client" in plan_of("own batch norm").reason
    assert plan_of("batch norm").mode == "stack"


def test_a_network_that_needs_its_images_as_they_are_gets_them_so():
    plan = plan_of("viewing", mode="loop")
    assert not plan.channels_last
    assert "view size is not compatible" in plan.reason
    assert plan_of("group norm", mode="loop").channels_last


def test_a_step_that_cannot_be_replayed_runs_as_it_is_written():
    run = started("lstm", METHODS["fedper"], "auto", traced=True)
    assert not isinstance(run, str)
    run.advance()
    assert run.backend.failures == []


def test_a_wish_that_cannot_be_fulfilled_is_refused_with_the_option_to_drop():
    for network, wish in (("lstm", {"mode": "stack"}), ("viewing", {"channels_last": True})):
        sentence = started(network, METHODS["fedper"], "vectorized", **wish)
        ((option, _),) = wish.items()
        assert isinstance(sentence, str)
        assert sentence.startswith(f"{option}=")
        assert sentence.endswith(f"Leave {option}= out.")


def test_a_trial_keeps_nothing_and_draws_nothing():
    made = FOREIGN["dropout"]
    before = torch.get_rng_state()
    run = start(motet.FedPer(**SMALL), Task(made.build), data_for(made), rounds=1)
    assert torch.equal(before, torch.get_rng_state())
    assert list(run.setting.store) == []
    assert len(run.setting.task.programs) == 0


def test_a_trial_changes_no_result(monkeypatch):
    made = NETWORKS["dropout"]

    def trained():
        return motet.run(motet.Ditto(**SMALL), Task(made.build), data_for(made), rounds=2)

    tried = trained()
    monkeypatch.setattr("motet._engine.backends.factory.Trial.check_work", lambda _: None)
    monkeypatch.setattr("motet._engine.backends.factory.Trial.why_not", lambda *_: "")
    assert_same(states(tried), states(trained()))


def test_a_stack_that_fails_later_is_done_again_client_by_client(monkeypatch, caplog):
    data, task, method = arrays({"a": 6, "b": 9}), ragged().task, motet.FedPer(**SMALL)
    oracle = start(method, task, data, rounds=2, backend="serial")
    run = start(method, task, data, rounds=2, mode="stack")

    def fails(*_, **__):
        raise RuntimeError("no rule for this operation\nand more")

    monkeypatch.setattr(Vectorized, "train_stacked", fails)
    monkeypatch.setattr(Vectorized, "serve_stacked", fails)
    with caplog.at_level(logging.WARNING, logger="motet"):
        for one in (oracle, run):
            one.advance()
            one.advance()
        losses = [[row.loss for row in one.evaluate("test").rows] for one in (oracle, run)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    assert_close(states(run), states(oracle))
    (told,) = caplog.messages
    assert "RuntimeError: no rule for this operation" in told


def test_an_error_leaves_no_thread_at_work():
    working = threading.Event()

    class Slow(motet.FedAvg):
        broken: ClassVar[list[bool]] = [False]

        def client_update(self, down, client, data, task):
            if self.broken[0] and len(data["train"].y) == 9:
                working.wait(5)
                raise ZeroDivisionError
            if self.broken[0]:
                working.set()
                time.sleep(0.2)
                ended.append(True)
            return super().client_update(down, client, data, task)

    ended: list[bool] = []
    data = arrays({"a": 9, "b": 6})
    run = start(Slow(), ragged().task, data, rounds=1, mode="loop", chunk_size=1, workers=2)
    Slow.broken[0] = True
    with pytest.raises(ZeroDivisionError):
        run.advance()
    assert ended == [True]


def test_a_plan_that_fails_while_it_is_measured_is_no_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    timed = measuring._seconds_per_client

    def stacks_fail(setting, plan):
        if plan.mode == "stack":
            raise ValueError("not this one")
        return timed(setting, plan)

    monkeypatch.setattr(measuring, "_seconds_per_client", stacks_fail)
    run = start(motet.FedAvg(batch_size=4), ragged().task, arrays({"a": 8}), rounds=1, measure=True)
    assert run.backend.plan.mode == "loop"


def test_an_entry_that_cannot_run_is_reported_and_the_comparison_goes_on():
    found = motet.compare(
        [NeverWorks(), motet.FedPer()], ragged().task, arrays({"a": 6, "b": 5}), rounds=1, seeds=1
    )
    assert [failure.label for failure in found.failures] == ["never-works"]
    assert "ZeroDivisionError: by nothing" in found.failures[0].reason
    assert "fedper" in found.labels


def test_unknown_wishes_are_still_refused_first():
    with pytest.raises(RequestError, match="no setting"):
        start(NeverWorks(), ragged().task, arrays({"a": 4}), rounds=1, modes="stack")
