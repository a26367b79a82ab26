"""FedFomo's arithmetic: Eq. 3, 13 and 14 on the mini-example FOMO-1, and the laws of mixing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from motet.methods._fedfomo.affinity import affinity_step, first_affinity
from motet.methods._fedfomo.mixing import (
    distance,
    first_order_weights,
    leave_one_out_weights,
    mix,
    rebuild,
    shares,
)


def theta(*values):
    return {"theta": torch.tensor(values, dtype=torch.float64)}


OLD = theta(0, 0)
MODELS = [theta(1, 0), theta(0.5, 2), theta(3, 4)]
WITHOUT = [theta(1.75, 3), theta(2, 2), theta(0.75, 1)]  # averages of the other two
TABLE = {  # norm: (w, w*, new theta, its loss), to the printed digits
    "l2": ((0.5, 0.1819017, -1.1), (0.7332435, 0.2667565, 0), (0.8666218, 0.5335130), 0.1176999),
    "l1": ((0.5, 0.15, -0.7857143), (0.7692308, 0.2307692, 0), (0.8846154, 0.4615385), 0.1516272),
    "l2sq": ((0.5, 0.0882353, -0.22), (0.85, 0.15, 0), (0.925, 0.3), 0.2478125),
}
NUMBERS = st.floats(-100, 100, width=32)


def loss(model, target=(1.0, 1.0)):
    return 0.5 * (model["theta"] - torch.tensor(target)).square().sum()


def losses(models, target=(1.0, 1.0)):
    return torch.stack([loss(model, target) for model in models])


def distances(models, norm="l2"):
    return torch.stack([distance(model, OLD, norm) for model in models])


def weights(norm="l2", target=(1.0, 1.0), models=MODELS):
    return first_order_weights(loss(OLD, target), losses(models, target), distances(models, norm))


def assert_digits(came, expected):
    assert_close(came, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.parametrize("norm", TABLE)
def test_fomo_1_comes_out_to_the_printed_digits(norm):
    w, parts, new, final = TABLE[norm]
    mixed = mix(MODELS, shares(weights(norm)), otherwise=OLD)
    assert_digits(weights(norm), w)
    assert_digits(shares(weights(norm)), parts)
    assert_digits(mixed["theta"], new)
    assert_digits(loss(mixed), final)


def test_towards_another_target_nothing_helps_and_the_old_model_stays():
    w = weights(target=(-1.0, -1.0))
    assert_digits(w, (-1.5, -2.2434545, -3.9))
    assert shares(w).tolist() == [0, 0, 0]
    assert torch.equal(mix(MODELS, shares(w), otherwise=OLD)["theta"], OLD["theta"])


def test_affinity_rows_of_fomo_1_by_the_rules_of_paper_and_release():
    paper = first_affinity(3, "paper")[0] + affinity_step(weights(), "paper")
    release = first_affinity(3, "release")[0] + affinity_step(weights(), "release")
    assert_digits(paper, (1.5, 0.1819017, -1.1))
    assert_digits(release, (1.2958911, 0.4350693, -2.6309604))


def test_weights_that_sum_to_zero_leave_the_release_rule_finite():
    step = affinity_step(torch.tensor([1.0, -1.0], dtype=torch.float64), "release")
    assert torch.isfinite(step).all()


def test_eq_14_comes_out_to_the_printed_digits():
    average, models = rebuild(WITHOUT, torch.ones(3, dtype=torch.bool))
    w = leave_one_out_weights(loss(average), losses(WITHOUT))
    mixed = mix(models, shares(w), otherwise=average)
    assert_digits(average["theta"], (1.5, 2))
    assert_digits(loss(average), 0.625)
    assert_digits(losses(WITHOUT), (2.28125, 1.0, 0.03125))
    assert_digits(w, (1.65625, 0.375, -0.59375))
    assert_digits(shares(w), (0.8153846, 0.1846154, 0))
    assert_digits(mixed["theta"], (0.9076923, 0.3692308))
    assert_digits(loss(mixed), 0.2031953)


def test_every_model_is_recovered_from_averages_that_leave_one_out():
    _, models = rebuild(WITHOUT, torch.ones(3, dtype=torch.bool))
    for recovered, model in zip(models, MODELS, strict=True):
        assert_close(recovered, model)


def test_empty_slots_take_no_part_in_an_average():
    valid = torch.tensor([True, True, True, False])
    average, models = rebuild([*WITHOUT, theta(0, 0)], valid)
    assert_close(average, theta(1.5, 2))
    assert_close(models[:3], MODELS)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_shares_are_not_negative_and_sum_to_0_or_1(values):
    parts = shares(torch.tensor(values, dtype=torch.float64))
    assert (parts >= 0).all()
    assert float(parts.sum()) == pytest.approx(1.0 if max(values) > 0 else 0.0)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5), st.tuples(NUMBERS, NUMBERS))
def test_a_mixture_lies_between_its_models(points, target):
    models = [theta(*point) for point in points]
    w = weights(target=target, models=models)
    mixed = mix(models, shares(w), otherwise=OLD)["theta"]
    stacked = torch.stack([m["theta"] for m in models])
    if float(w.max()) > 0:
        assert (mixed >= stacked.amin(0) - 1e-9).all()
        assert (mixed <= stacked.amax(0) + 1e-9).all()
    else:
        assert torch.equal(mixed, OLD["theta"])


@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_scaling_or_shifting_the_loss_changes_no_share(factor, shift):
    base, several = loss(OLD), losses(MODELS)
    w = first_order_weights(factor * base + shift, factor * several + shift, distances(MODELS))
    assert_close(shares(w), shares(weights()), rtol=1e-6, atol=1e-9)


def test_scaling_all_differences_changes_the_weights_but_no_share():
    w = first_order_weights(loss(OLD), losses(MODELS), 7 * distances(MODELS))
    assert_close(7 * w, weights())
    assert_close(shares(w), shares(weights()))


def test_the_order_of_candidates_does_not_matter():
    order = [2, 0, 1]
    shuffled = [MODELS[i] for i in order]
    w = weights(models=shuffled)
    assert_close(w, weights()[order])
    assert_close(
        mix(shuffled, shares(w), otherwise=OLD), mix(MODELS, shares(weights()), otherwise=OLD)
    )


@pytest.mark.parametrize("norm", TABLE)
def test_a_candidate_that_is_the_baseline_weighs_0(norm):
    assert weights(norm, models=[theta(0, 0), MODELS[0]]).tolist() == [0, 0.5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_poisoned_candidate_weighs_0_and_leaves_no_trace_in_the_mixture(bad):
    models = [MODELS[0], theta(bad, 1)]
    w = weights(models=models)
    assert w.tolist() == [0.5, 0]
    assert mix(models, shares(w), otherwise=OLD)["theta"].tolist() == [1, 0]


def test_a_finite_loss_at_infinite_distance_weighs_0():
    w = first_order_weights(torch.tensor(1.0), torch.tensor([0.5]), torch.tensor([torch.inf]))
    assert w.tolist() == [0]


def test_one_helpful_model_is_taken_over_bit_for_bit():
    generator = torch.Generator().manual_seed(0)
    model = {"w": torch.randn(50, generator=generator)}
    base = {"w": torch.randn(50, generator=generator)}
    mixed = mix([model, base], shares(torch.tensor([0.3, -1.0])), otherwise=base)
    assert torch.equal(mixed["w"], model["w"])


def test_integers_come_from_the_model_of_the_largest_share():
    models = [{"seen": torch.tensor(n)} for n in (3, 8, 5)]
    old = {"seen": torch.tensor(1)}
    assert mix(models, torch.tensor([0.2, 0.3, 0.5]), otherwise=old)["seen"] == 5
    assert mix(models, torch.tensor([0.0, 0.0, 0.0]), otherwise=old)["seen"] == 1


def test_distances_of_large_models_are_not_lost_to_rounding():
    # ||a||^2 + ||b||^2 - 2ab in single precision returns 0 here.
    a = {"w": torch.full((1_000_000,), 1.0)}
    b = {"w": a["w"] + 1e-4}
    assert float(distance(a, b, "l2")) == pytest.approx(0.1, rel=2e-3)


def test_distances_are_computed_in_double_precision():
    # 1e25 squared is no single-precision number.
    far = distance({"w": torch.tensor([1e25])}, {"w": torch.tensor([0.0])}, "l2")
    assert float(far) == pytest.approx(1e25)
