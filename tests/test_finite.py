"""Whatever clients send, the server stays finite, every client is accounted for, and it is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from diverging import CLIENTS, HUGE, LINEAR, TASK, federation, one_diverges
from torch import nn
from toys import arrays, assert_close, assert_same

import motet
from motet._core import tree
from motet._core.aggregation.mean import Gather, Mean
from motet._engine.divergence import Divergence, of_lines
from motet._engine.faults import Faults
from motet._engine.federation import start
from motet._engine.finite import finite_rows
from motet._engine.upload_screening import receive
from motet.errors import CapabilityError, DivergenceWarning, MotetError, StructureError
from motet.methods._catalog import method_class, method_names
from motet.privacy._ledger import spending
from motet.privacy._optimizer import Private

ROUNDS = 2
BACKENDS = ("serial", "vectorized")
# What is done to a world: the learning rate, the scale of whose inputs, what is sent.
CASES = {
    "healthy": {},
    "lr=1e30": {"lr": 1e30},
    "lr=1e6": {"lr": 1e6},
    "huge inputs": {"scale": 1e37, "whose": CLIENTS},
    "one client with huge inputs": {"scale": 1e37, "whose": ("c2",)},
    "huge uploads": {"faults": HUGE},
    "huge and lost uploads": {"faults": replace(HUGE, lost=0.4)},
}
ADAPTIVE = {"fedadam", "fedyogi", "fedadagrad"}
TELLING = {"local", "ditto", "fedadam"}  # no upload, a private model, moments at the server


def method_and_case():
    for name in method_names():
        for case in CASES:
            if case == "healthy" and name not in TELLING:
                continue  # every other test of the method is such a world
            quick = name in TELLING or (name in ADAPTIVE and case == "huge uploads")
            yield pytest.param(name, case, marks=() if quick else pytest.mark.slow)


def with_rate(method, lr):
    """The same method with another learning rate; None if it refuses such a one."""
    try:
        return replace(method, optimizer=replace(method.optimizer, lr=lr))
    except MotetError:
        return None


def started(method, backend, *, lr=None, faults=None, **about):
    """A run on the first network that the method accepts; None if it refuses the rate."""
    method = method if lr is None else with_rate(method, lr)
    if method is None:
        return None
    given = {} if faults is None else {"faults": faults}
    for task in (TASK, LINEAR):
        try:
            return start(method, task, federation(**about), rounds=ROUNDS, backend=backend, **given)
        except CapabilityError:
            continue
    raise AssertionError(f"no network suits {method.name}")


def check_round(run, done, before):
    """The laws of one round."""
    assert tree.is_finite(run.server)
    assert all(tree.is_finite(run.clients[client]) for client in run.clients)
    assert sorted([*done.replied, *done.lost, *done.rejected]) == sorted(done.cohort)
    assert set(done.diverged) <= set(done.cohort)
    if done.failed or not done.replied:
        assert_same(run.server, before)


def played(run, rounds=ROUNDS):
    """Run rounds, and hold each to the laws."""
    made = []
    for _ in range(rounds):
        before = tree.clone(run.server)
        made.append(run.advance())
        check_round(run, made[-1], before)
    return made


def told(run, rounds, evaluation):
    """The outcome of a run, as far as it must be the same everywhere."""
    happened = [(d.cohort, d.lost, d.rejected, d.diverged, d.failed) for d in rounds]
    return happened, run.divergence.to_dict(evaluation)


@pytest.mark.parametrize(("name", "case"), list(method_and_case()))
def test_the_server_stays_finite_and_whoever_diverged_is_named(name, case):
    method, outcomes = method_class(name)(batch_size=4), []  # several steps: errors grow
    for backend in BACKENDS if method.vectorizable else BACKENDS[:1]:
        run = started(method, backend, **CASES[case])
        if run is None:
            return
        rounds = played(run)
        evaluation = run.evaluate("test")
        outcomes.append(told(run, rounds, evaluation))
        spoiled = any(d.rejected or d.diverged or d.failed for d in rounds)
        said = run.divergence.sentences(len(CLIENTS), evaluation)
        assert bool(said) == bool(spoiled or evaluation.diverged)
        assert not (said and case == "healthy")
    assert outcomes[0] == outcomes[-1]


# -- the server ---------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(ADAPTIVE))
def test_moments_that_overflow_fail_the_round_and_the_senders_are_named(name, backend):
    run = started(method_class(name)(), backend, faults=HUGE)
    first = tree.clone(run.server)
    (done, *_) = played(run)
    assert_same(run.server, first)
    assert "new server state holds a NaN or an infinity in moments/second/" in done.failed
    assert "the largest uploads are from c1, c3 (up to 3.3e+38)" in done.failed
    assert run.divergence.is_total()


@pytest.mark.parametrize(
    "reduce",
    [
        motet.Median(),
        motet.TrimmedMean(trim=0.25),
        motet.Krum(),
        motet.Krum(keep=2),
        motet.ClippedMean(),
        motet.ClippedMean(limit=1.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_robust_combinations_are_not_carried_off_by_the_largest_numbers(reduce, backend):
    faults = Faults(corrupt=("c1",), corruption="huge")
    run = started(motet.FedAvg(reduce=reduce), backend, faults=faults)
    first = tree.clone(run.server)
    rounds = played(run)
    assert not any(done.failed or done.rejected for done in rounds)
    assert tree.largest(run.server) < 100
    assert not torch.equal(run.server["head.bias"], first["head.bias"])


@dataclass(frozen=True, kw_only=True)
class Boundless(Mean):
    """A user's own combination, which overflows."""

    def finish(self, partial, down=None):
        return tree.tree_map(lambda leaf: leaf * 1e38 * 1e38, super().finish(partial, down))


@dataclass(frozen=True, kw_only=True)
class Strict(motet.FedAvg):
    """A server that cannot work with numbers that are not finite."""

    def server_update(self, server, combined, info, task):
        raise AssertionError("called with a combination that is not finite")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_combination_that_is_not_finite_never_reaches_the_server(backend):
    run = started(Strict(reduce=Boundless()), backend)
    for done in played(run):
        assert done.failed == "the combined upload holds a NaN or an infinity in body.0.weight"
        assert done.replied == CLIENTS


def test_a_change_too_large_for_its_type_is_clipped():
    down = {"w": torch.full((2,), -3e38)}
    uploads = {"w": torch.tensor([[3e38, 3e38], [-3e38, -3e38]])}
    reduce = motet.ClippedMean(limit=1e37)
    mean = reduce.finish(reduce.lift("ab", uploads, torch.ones(2)), down)["w"]
    # One client moves by 1e37 along the diagonal, the other not at all.
    assert torch.allclose(mean, down["w"] + 1e37 / 2**0.5 / 2)


@pytest.mark.parametrize("size", range(2, 27))
def test_a_mean_of_the_largest_numbers_does_not_overflow(size):
    largest = torch.finfo(torch.float32).max
    clients = [f"{i:02}" for i in range(size)]
    run = start(motet.FedAvg(reduce=Mean()), LINEAR, arrays(dict.fromkeys(clients, 5)), rounds=1)
    uploads = {"w": torch.full((size, 3), largest)}
    came = receive(run.setting, run.setting.info(0, tuple(clients)), run.server, clients, uploads)
    assert came.replied == tuple(clients)
    assert came.large == pytest.approx(dict.fromkeys(clients, largest))
    mean = Mean().finish(came.partial)["w"]
    assert mean.dtype == torch.float32
    assert torch.allclose(mean, uploads["w"][0], rtol=1e-6)


def test_single_uploads_show_who_has_sent_the_largest():
    class Sums(motet.FedAvg):
        name = "sums"

        def server_update(self, server, combined, info, task):
            models = list(combined.values())
            return {k: sum(model[k] for model in models) for k in server}

    faults = Faults(corrupt=("c0", "c2"), corruption="huge")
    run = started(Sums(reduce=Gather()), "serial", faults=faults)
    (done,) = played(run, 1)
    assert "the largest uploads are from c0, c2" in done.failed


def test_a_budget_of_privacy_is_spent_by_a_round_that_fails():
    method = motet.FedAdam(optimizer=Private(batch_size=4), batch_size=4)
    run, sound = (started(method, "serial", faults=faults) for faults in (HUGE, None))
    assert all(done.failed for done in played(run))
    assert not any(done.failed for done in played(sound))
    assert spending(run) == spending(sound)
    assert spending(run)["epsilon"]


# -- what clients keep --------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", [motet.FedPer, motet.Ditto, motet.Local])
def test_a_client_that_diverges_keeps_its_last_finite_state_and_the_others_move_on(method, backend):
    world = one_diverges()
    run = start(method(batch_size=4), world.task, world.data, rounds=2, backend=backend)
    fresh = run.clients["c2"]
    for done in played(run, 2):
        assert set(done.diverged) == {"c2"}
    assert_same(run.clients["c2"], fresh)
    assert all(tree.leaves(run.clients[c])[0].ne(tree.leaves(fresh)[0]).any() for c in ("c0", "c1"))
    assert run.divergence.clients["c2"].first == 1
    assert run.divergence.clients["c2"].rounds == 2
    assert not run.divergence.is_total()


def test_rows_that_are_not_finite_are_put_back_and_no_other():
    after = {"w": torch.tensor([[1.0, 2.0], [3.0, torch.inf], [5.0, 6.0]]), "n": torch.arange(3)}
    before = {"w": -torch.ones(1, 2), "n": torch.tensor([7])}
    kept, why = finite_rows("abc", after, lambda clients: before if clients == ["b"] else None)
    assert why == {"b": "w holds a NaN or an infinity"}
    expected = {"w": torch.tensor([[1.0, 2.0], [-1.0, -1.0], [5.0, 6.0]])}
    assert_close(kept, expected | {"n": torch.tensor([0, 7, 2])})


# -- what is told -------------------------------------------------------------


def test_a_run_that_diverges_warns_and_a_sound_one_does_not():
    with pytest.warns(DivergenceWarning, match=r"diverged at 1 of 4 clients.*: c2\..*--lr"):
        motet.run(motet.FedPer(batch_size=4), TASK, one_diverges().data, rounds=1)
    assert not motet.run(motet.FedPer(), TASK, federation(), rounds=1).divergence


def test_an_account_from_the_record_is_the_one_of_the_run():
    run = started(motet.FedAdam(), "serial", faults=replace(HUGE, lost=0.3))
    lines = []
    for done in played(run):
        faults = {name: getattr(done, name) for name in ("lost", "rejected", "diverged", "failed")}
        lines.append({"round": done.number, "cohort": done.cohort, **faults})
    assert of_lines(lines) == run.divergence


def test_a_run_is_lost_once_nobody_works_soundly_and_not_before():
    bad = "w holds a NaN or an infinity"
    account = Divergence()
    account.add(1, ("a", "b"))
    account.add(2, ("a",), rejected={"a": bad})
    assert (account.is_total(), account.ended) == (False, None)
    account.add(3, ("b",), diverged={"b": bad})
    assert (account.is_total(), account.ended) == (True, 3)
    account.add(4, ("a",))
    assert (account.is_total(), account.ended) == (False, None)
    assert account.clients["a"].last == 2


def test_a_reply_that_was_lost_or_refused_for_another_reason_is_no_divergence():
    account = Divergence()
    account.add(1, ("a", "b"), lost=("a",), rejected={"b": "a reply of round 7"})
    assert not account
    assert not account.is_total()
    assert account.sentences(2) == ()


def test_of_many_clients_some_are_named_and_the_others_counted():
    clients = [f"{i:02}" for i in range(12)]
    account = Divergence()
    account.add(1, clients, diverged=dict.fromkeys(clients, "w holds a NaN or an infinity"))
    assert (
        "diverged at 12 of 20 clients, in round 1: 00, 01, 02, 03, 04 and 7 more."
        in (account.sentences(20)[0])
    )


# -- before the first round ---------------------------------------------------


def test_a_network_that_is_not_finite_is_refused_with_the_way_out():
    class Masked(nn.Linear):
        def __init__(self, *, persistent):
            super().__init__(4, 3)
            mask = torch.full((3,), -torch.inf)
            self.register_buffer("mask", mask, persistent=persistent)

    data = federation()
    with pytest.raises(StructureError, match=r"in mask; .*persistent=False"):
        start(motet.FedAvg(), motet.Task(lambda: Masked(persistent=True)), data, rounds=1)
    start(motet.FedAvg(), motet.Task(lambda: Masked(persistent=False)), data, rounds=1)


def test_initial_values_that_are_not_finite_are_refused():
    with pytest.raises(StructureError, match=r"the initial model .* in bias"):
        start(motet.FedAvg(), LINEAR, federation(), rounds=1, init={"bias": [0, float("nan"), 0]})
