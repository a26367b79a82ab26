"""Robust combinations against arithmetic, and what a bad upload can do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import assert_close, assert_same

import motet
from motet import FedAvg, FedPer, Mean, Sgd
from motet._core.aggregation.robust import ClippedMean, Krum, Median, TrimmedMean
from motet._engine.faults import NO_FAULTS, Faults
from motet.config import method_from_dict, method_to_dict
from motet.errors import CohortError, RequestError
from motet.method import PerClient
from motet.methods._fedprox import FedProx
from motet.methods._moon import Moon
from motet.methods._scaffold import Scaffold
from motet.testing import quadratic, ragged

ALL = (Median(), TrimmedMean(), Krum(), Krum(attackers=2, keep=3), ClippedMean())
NAN, INF = math.nan, math.inf


def combine(reduce, values, *, weights=None, down=None):
    """Combine uploads {"w": value}, one per client, in chunks of two."""
    weights = weights or [1.0] * len(values)
    clients = [f"c{i}" for i in range(len(values))]
    partial = None
    for start in range(0, len(values), 2):
        chunk = slice(start, start + 2)
        lifted = reduce.lift(
            clients[chunk], {"w": torch.tensor(values[chunk])}, torch.tensor(weights[chunk])
        )
        partial = lifted if partial is None else reduce.merge(partial, lifted)
    return reduce.finish(partial, down)["w"]


# ---- Closed forms ------------------------------------------------------------------------------


def test_the_median_is_taken_by_coordinate():
    came = combine(Median(), [[1.0, 9.0], [2.0, 8.0], [90.0, 1.0]])
    assert came.tolist() == [2.0, 8.0]


def test_the_median_of_an_even_number_is_the_middle_of_two():
    """Not the lower one, which `torch.median` returns."""
    assert combine(Median(), [[1.0], [2.0], [4.0], [100.0]]).tolist() == [3.0]


@pytest.mark.parametrize(
    ("trim", "values", "expected"),
    [
        (0.2, [0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # one of five at either end
        (0.1, [0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # rounded up: never none
        (0.4, [0.0, 1.0, 5.0, 7.0, 100.0], 5.0),
        (0.49, [0.0, 1.0, 2.0, 100.0], 1.5),  # two stay in the middle
        (0.1, [3.0, 5.0], 4.0),  # nothing can be cut
        (0.1, [3.0], 3.0),
        (0.3, [float(i) for i in range(10)], 4.5),  # 3, although 0.3 * 10 is not quite 3
    ],
)
def test_the_trimmed_mean_leaves_out_both_ends(trim, values, expected):
    came = combine(TrimmedMean(trim=trim), [[v] for v in values])
    assert came.tolist() == pytest.approx([expected])


def test_both_ends_are_cut_by_coordinate():
    came = combine(TrimmedMean(trim=0.2), [[0.0, 50.0], [1.0, 1.0], [2.0, 2.0], [60.0, 0.0]])
    assert came.tolist() == [1.5, 1.5]


def test_krum_scores_are_sums_over_the_nearest():
    """Five uploads, one attacker: the two nearest count. By hand on a line."""
    points = [0.0, 1.0, 3.0, 3.5, 100.0]
    reduce = Krum(attackers=1)
    scores = {0.0: 1 + 9, 1.0: 1 + 4, 3.0: 0.25 + 4, 3.5: 0.25 + 6.25, 100.0: 96.5**2 + 97**2}
    assert combine(reduce, [[p] for p in points]).item() == min(scores, key=scores.get) == 3.0


def test_multi_krum_averages_the_best():
    points = [[0.0], [1.0], [3.0], [3.5], [100.0]]
    assert combine(Krum(attackers=1, keep=2), points).item() == pytest.approx((3.0 + 1.0) / 2)
    assert combine(Krum(attackers=1, keep=9), points).item() == pytest.approx(107.5 / 5)


def test_multi_krum_weighs_by_examples_if_asked():
    points, examples = [[0.0], [1.0], [3.0], [3.5], [100.0]], [9.0, 1.0, 3.0, 9.0, 9.0]
    came = combine(Krum(keep=2, weights="examples"), points, weights=examples)
    assert came.item() == pytest.approx((1.0 * 1 + 3.0 * 3) / 4)


def test_krum_picks_a_whole_upload():
    points = [[0.0, 0.1], [0.1, 0.0], [0.2, 0.2], [-9.0, 0.1], [0.1, 9.0]]
    assert combine(Krum(attackers=2), points).tolist() in [pytest.approx(p) for p in points[:3]]


def test_krum_tells_close_uploads_apart():
    """A billion away from 0, inner products would see no distances at all."""
    points = torch.tensor([[0.0], [1.0], [3.0], [3.5], [100.0]], dtype=torch.float64) + 1e9
    reduce = Krum(attackers=1)
    came = reduce.finish(reduce.lift(list("abcde"), {"w": points}, torch.ones(5)))
    assert came["w"].item() == 1e9 + 3.0


def test_a_change_is_clipped_and_a_small_one_is_not():
    """From (1, 1): (3, 4) beyond it has norm 5 and becomes norm 2; (1, 0) stays."""
    values, down = [[4.0, 5.0], [2.0, 1.0]], {"w": torch.tensor([1.0, 1.0])}
    came = combine(ClippedMean(limit=2.0), values, weights=[1.0, 3.0], down=down)
    expected = [1 + (1.2 + 3 * 1.0) / 4, 1 + (1.6 + 0.0) / 4]
    assert came.tolist() == pytest.approx(expected)


def test_without_a_limit_the_median_norm_is_the_limit():
    values, down = [[1.0], [2.0], [300.0]], {"w": torch.tensor([0.0])}
    assert combine(ClippedMean(), values, down=down).item() == pytest.approx((1 + 2 + 2) / 3)


def test_each_client_is_clipped_around_what_it_was_sent():
    down = PerClient({"c0": {"w": torch.tensor([10.0])}, "c1": {"w": torch.tensor([-10.0])}})
    came = combine(ClippedMean(limit=1.0), [[15.0], [-15.0]], down=down)
    assert came.item() == pytest.approx(0.0)
    came = combine(ClippedMean(limit=1.0), [[15.0], [-10.5]], down=down)
    assert came.item() == pytest.approx((11.0 - 10.5) / 2)


def test_what_was_not_sent_down_is_a_change_already():
    reduce = ClippedMean(limit=5.0)
    uploads = {"w": torch.tensor([[4.0]]), "change/w": torch.tensor([[8.0]])}
    partial = reduce.lift(["c0"], uploads, torch.tensor([1.0]))
    came = reduce.finish(partial, {"w": torch.tensor([-2.0]), "control/w": torch.tensor([7.0])})
    assert {k: v.item() for k, v in came.items()} == pytest.approx({"w": 1.0, "change/w": 4.0})


# ---- Laws --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_equal_uploads_are_their_own_combination(reduce):
    came = combine(reduce, [[0.1, -7.0]] * 5, down={"w": torch.tensor([0.1, -7.0])})
    assert came.tolist() == pytest.approx([0.1, -7.0])


@pytest.mark.parametrize("reduce", ALL, ids=str)
@pytest.mark.parametrize("clients", [1, 2, 3])
def test_few_uploads_are_enough(reduce, clients):
    came = combine(reduce, [[1.0], [2.0], [3.0]][:clients])
    assert 1.0 <= came.item() <= clients


@pytest.mark.parametrize("reduce", ALL, ids=str)
@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=7), st.randoms())
def test_the_order_of_merging_changes_nothing(reduce, values, random):
    clients = [f"c{i}" for i in range(len(values))]
    order = list(range(len(values)))
    random.shuffle(order)

    def partial(positions):
        lifted = [
            reduce.lift([clients[i]], {"w": torch.tensor([[values[i]]])}, torch.ones(1))
            for i in positions
        ]
        merged = lifted[0]
        for part in lifted[1:]:
            merged = reduce.merge(merged, part)
        return merged

    assert_same(reduce.finish(partial(order)), reduce.finish(partial(sorted(order))))


@pytest.mark.parametrize("reduce", [r for r in ALL if not isinstance(r, Krum)], ids=str)
def test_a_combination_lies_between_the_uploads(reduce):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 5)).astype(np.float32)
    low, high = values.min(0), values.max(0)
    came = combine(reduce, values.tolist(), down={"w": torch.from_numpy(values[0])}).numpy()
    assert ((low - 1e-6 <= came) & (came <= high + 1e-6)).all()


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_integers_keep_the_largest_and_numbers_of_every_shape_are_combined(reduce):
    uploads = {
        "counter": torch.tensor([3, 9, 4]),
        "flag": torch.tensor([False, True, False]),
        "number": torch.tensor([1.0, 1.0, 1.0]),
        "matrix": torch.ones(3, 2, 2, dtype=torch.float64),
        "nothing": torch.ones(3, 0),
    }
    partial = reduce.lift(["a", "b", "c"], uploads, torch.ones(3))
    came = reduce.finish(partial, {k: v[0] * 0 for k, v in uploads.items()})
    if not (isinstance(reduce, Krum) and reduce.keep == 1):
        assert (came["counter"].item(), came["flag"].item()) == (9, True)
    assert {k: v.dtype for k, v in came.items()} == {k: v.dtype for k, v in uploads.items()}
    assert (came["number"].item(), came["matrix"].shape) == (1.0, (2, 2))


# ---- Bad uploads -------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ALL, ids=str)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_an_upload_that_is_not_finite_counts_as_lost(reduce, bad):
    good, down = [[1.0, 2.0], [1.5, 2.5], [0.5, 1.0], [1.1, 2.1]], {"w": torch.zeros(2)}
    came = combine(reduce, [*good, [1.0, bad]], down=down)
    assert_same({"w": came}, {"w": combine(reduce, good, down=down)})


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_if_nobody_is_finite_a_sentence_says_so(reduce):
    with pytest.raises(CohortError, match="none of the 2 uploads of this round is finite"):
        combine(reduce, [[NAN], [INF]])


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_one_liar_moves_the_mean_anywhere_and_a_robust_combination_hardly(reduce):
    honest = [[float(v)] for v in (0.9, 1.0, 1.1, 1.05, 0.95, 1.02)]
    down = {"w": torch.tensor([0.0])}
    assert combine(Mean(), [*honest, [1e6]]).item() > 1e5
    assert combine(reduce, [*honest, [1e6]], down=down).item() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_a_poisoned_client_cannot_carry_off_fedavg(reduce, backend):
    honest = {f"c{i}": [value] for i, value in enumerate((0.8, 0.9, 1.0, 1.1, 1.2))}
    world = quadratic(honest | {"liar": [-1e4]})
    settings = {"steps": 2, "batch_size": None, "optimizer": Sgd(lr=0.5)}

    def end(reduction):
        method = FedAvg(reduce=reduction, **settings)
        run = motet.run(method, world.task, world.data, rounds=6, backend=backend)
        return run.server["w"].item()

    assert end(Mean()) < -1000
    assert end(reduce) == pytest.approx(1.0, abs=0.35)


# ---- A fifth of the clients attacks ------------------------------------------------------------

ATTACKERS = ("2", "7")


@pytest.fixture(scope="module")
def honest_accuracy():
    """Train FedAvg on digits with 10 clients; return the mean accuracy of the 8 honest ones."""
    data = motet.data.load("digits", motet.data.IID(clients=10), val=0.0)
    task = motet.Task(lambda: motet.models.MLP(data.shape, 10, hidden=(32,)))

    def accuracy(reduce, faults):
        method = FedAvg(reduce=reduce, optimizer=Sgd(lr=0.1), batch_size=10, epochs=1)
        scores = motet.run(method, task, data, rounds=5, faults=faults).evaluate().rows
        return np.mean([score.value for score in scores if score.client not in ATTACKERS])

    return accuracy


@pytest.fixture(scope="module")
def undisturbed(honest_accuracy):
    return honest_accuracy(Mean(), NO_FAULTS)


@pytest.mark.parametrize("corruption", ["scaled", "flipped"])
def test_with_a_fifth_of_attackers_the_mean_is_ruined(honest_accuracy, undisturbed, corruption):
    attack = Faults(corrupt=ATTACKERS, corruption=corruption)
    assert undisturbed > 0.75
    assert honest_accuracy(Mean(), attack) < 0.3


@pytest.mark.parametrize("corruption", ["scaled", "flipped", "stale"])
@pytest.mark.parametrize(
    "reduce", [Median(), TrimmedMean(trim=0.2), Krum(attackers=2, keep=8)], ids=str
)
def test_with_a_fifth_of_attackers_a_robust_combination_loses_five_points_at_most(
    honest_accuracy, undisturbed, reduce, corruption
):
    attack = Faults(corrupt=ATTACKERS, corruption=corruption)
    assert honest_accuracy(reduce, attack) > undisturbed - 0.05


# ---- With methods ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [FedAvg, FedPer, FedProx, Scaffold, Moon])
@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_methods_agree_on_both_backends(make, reduce):
    world = ragged()
    ends = [
        motet.run(make(reduce=reduce), world.task, world.data, rounds=2, backend=backend)
        for backend in ("serial", "vectorized")
    ]
    assert_close(ends[0].server, ends[1].server, 1e-5)
    for client in ends[0].clients:
        assert_close(ends[0].clients[client], ends[1].clients[client], 1e-5)


def test_a_far_limit_clips_nothing():
    world = ragged()
    far = FedAvg(reduce=ClippedMean(limit=1e9))
    came = motet.run(far, world.task, world.data, rounds=2).server
    assert_close(came, motet.run(FedAvg(), world.task, world.data, rounds=2).server, 1e-6)


def test_a_model_that_is_all_personal_has_nothing_to_combine():
    world = ragged()
    for reduce in ALL:
        method = FedPer(personal=("body", "head"), reduce=reduce)
        assert motet.run(method, world.task, world.data, rounds=1).server == {}


@pytest.mark.parametrize("reduce", ALL, ids=str)
def test_single_uploads_are_declared_and_configs_hold_the_reduction(reduce):
    assert reduce.needs_single_uploads
    method = FedAvg(reduce=reduce)
    assert method_from_dict(method_to_dict(method)) == method


def test_a_config_names_a_reduction_in_lower_case():
    method = method_from_dict({"name": "fedavg", "reduce": {"kind": "trimmed-mean", "trim": 0.3}})
    assert method.reduce == TrimmedMean(trim=0.3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TrimmedMean(trim=0.0), "trim= is a share above 0 and below 0.5; got 0.0"),
        (lambda: TrimmedMean(trim=0.5), "trim= is a share above 0 and below 0.5; got 0.5"),
        (lambda: Krum(attackers=-1), "attackers= is 0 or more"),
        (lambda: Krum(keep=0), "keep= 1 or more"),
        (lambda: ClippedMean(limit=0.0), "limit= must be above 0"),
    ],
)
def test_knobs_that_switch_a_combination_off_are_refused(make, sentence):
    with pytest.raises(RequestError, match=sentence):
        make()
