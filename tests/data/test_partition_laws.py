"""What each partition promises, checked against arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from motet._core.keys import Key
from motet.data import (
    IID,
    Dirichlet,
    Latent,
    Natural,
    Pathological,
    QuantitySkew,
    Raw,
    TwoLevelDirichlet,
    partition_named,
)
from motet.data._partition.counts import apportion, raise_to_minimum
from motet.data._partition.dirichlet import draw_capped
from motet.errors import CapabilityError, RequestError

KEY = Key(0)
TEN_CLASSES = np.repeat(np.arange(10), 100)


def counts(parts, labels, classes):
    return np.stack([np.bincount(labels[rows], minlength=classes) for rows in parts])


def test_apportion_gives_the_hand_computed_largest_remainders():
    # 7 * (1, 2, 4) / 7 is whole; 10 * (3, 3, 1) / 7 = 4.29, 4.29, 1.43
    assert apportion(7, np.array([1, 2, 4])).tolist() == [1, 2, 4]
    assert apportion(10, np.array([3, 3, 1])).tolist() == [4, 4, 2]


def test_raising_to_a_minimum_takes_in_proportion_to_surplus():
    # 8 rows are missing; the surpluses are 30 and 10, so the donors give 6 and 2.
    raised = raise_to_minimum(np.array([[40], [20], [2]]), 10)
    assert raised.ravel().tolist() == [34, 18, 10]


def test_gifts_come_in_runs_of_one_class_so_that_small_clients_stay_skewed():
    drawn = np.array([[100, 100], [0, 0], [0, 0]])
    raised = raise_to_minimum(drawn, 10)
    assert raised[1:].tolist() == [[10, 0], [0, 10]]


def test_iid_clients_differ_in_size_by_one_at_most():
    sizes = [len(rows) for rows in IID(clients=7).assign(np.zeros(100), KEY)]
    assert sorted(sizes) == [14, 14, 14, 14, 14, 15, 15]


def test_iid_does_not_keep_the_order_of_the_rows():
    first = IID(clients=2).assign(np.zeros(100), KEY)[0]
    assert not np.array_equal(first, np.arange(50))


def test_pathological_clients_hold_exactly_k_classes_in_equal_shares():
    table = counts(Pathological(clients=20, classes=2).assign(TEN_CLASSES, KEY), TEN_CLASSES, 10)
    assert ((table > 0).sum(axis=1) == 2).all()
    assert set(table[table > 0].tolist()) == {25}  # 100 rows, 20 * 2 / 10 = 4 holders


def test_pathological_uses_every_class_when_there_are_just_enough_places():
    table = counts(Pathological(clients=5, classes=2).assign(TEN_CLASSES, KEY), TEN_CLASSES, 10)
    assert table.sum(axis=0).tolist() == [100] * 10


def test_pathological_never_gives_a_rare_class_to_more_clients_than_it_has_rows():
    labels = np.array([0] * 50 + [1] * 50 + [2])
    table = counts(Pathological(clients=10, classes=2).assign(labels, KEY), labels, 3)
    assert ((table > 0).sum(axis=1) == 2).all()
    assert (table[:, 2] > 0).sum() == 1


def test_pathological_refuses_more_classes_per_client_than_exist():
    with pytest.raises(RequestError, match="more classes per client than exist: got classes=11"):
        Pathological(clients=3, classes=11).assign(TEN_CLASSES, KEY)


def test_pathological_refuses_classes_too_rare_for_its_holders():
    with pytest.raises(RequestError, match=r"20 shares of a class; .* more than 13"):
        Pathological(clients=10, classes=2).assign(np.array([0] * 30 + [1] * 3), KEY)


def test_pathological_refuses_a_minimum_that_an_equal_split_cannot_reach():
    labels = np.array([0] * 90 + [1] * 10)
    with pytest.raises(RequestError, match="leaves a client with 10 samples, below minimum=20"):
        Pathological(clients=2, classes=1, minimum=20).assign(labels, KEY)


def test_dirichlet_with_huge_alpha_shares_every_class_equally():
    table = counts(Dirichlet(clients=4, alpha=1e9).assign(TEN_CLASSES, KEY), TEN_CLASSES, 10)
    assert (np.abs(table - 25) <= 1).all()


def test_dirichlet_with_tiny_alpha_gives_every_class_to_one_client():
    partition = Dirichlet(clients=20, alpha=1e-6, minimum=0)
    table = counts(partition.assign(TEN_CLASSES, KEY), TEN_CLASSES, 10)
    assert (table.max(axis=0) == 100).all()


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    # Var = m (1 - m) / (n alpha + 1) with m = 1 / n: 0.25 * 0.75 / 3 = 0.0625.
    labels = np.zeros(1000, np.int64)
    partition = Dirichlet(clients=4, alpha=0.5, minimum=0)
    shares = [len(partition.assign(labels, Key(seed))[0]) / 1000 for seed in range(600)]
    assert np.mean(shares) == pytest.approx(0.25, abs=0.03)
    assert np.var(shares) == pytest.approx(0.0625, rel=0.15)


def test_quantity_skew_changes_sizes_and_not_the_label_mix():
    parts = QuantitySkew(clients=5, alpha=0.5, minimum=100).assign(TEN_CLASSES, KEY)
    sizes = np.array([len(rows) for rows in parts])
    shares = counts(parts, TEN_CLASSES, 10) / sizes[:, None]
    assert sizes.max() > 2 * sizes.min()
    assert np.abs(shares - 0.1).max() < 0.1


def test_draw_capped_renormalises_over_what_is_left():
    # Item 0 has one row although nearly all points at it; the others share the rest 3 : 1.
    rng = KEY.numpy()
    drawn = draw_capped(1001, np.array([0.96, 0.03, 0.01]), np.array([1, 5000, 5000]), rng)
    assert drawn[0] == 1
    assert drawn[1] == pytest.approx(750, abs=50)
    assert drawn.sum() == 1001


def test_draw_capped_goes_on_when_all_shares_left_have_underflowed():
    assert draw_capped(3, np.array([1.0, 0.0]), np.array([1, 5]), KEY.numpy()).tolist() == [1, 2]


def test_an_exhausted_fine_label_leaves_its_weight_inside_its_coarse_label():
    fine = np.repeat([0, 1, 2, 3], [1, 100, 100, 100])
    coarse = fine // 2
    partition = TwoLevelDirichlet(clients=3, alpha=1e6, beta=1e6)
    own = [partition.assign(fine, Key(seed), coarse)[0] for seed in range(30)]
    in_first_coarse = np.mean([(coarse[rows] == 0).mean() for rows in own])
    # Half the client stays in coarse label 0; renormalising over all labels makes it a third.
    assert in_first_coarse == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("beta", "fine_labels"), [(1e3, 5), (1e-6, 1)])
def test_alpha_sets_the_coarse_mix_and_beta_the_fine_mix_inside(beta, fine_labels):
    fine = np.repeat(np.arange(20), 50)
    partition = TwoLevelDirichlet(clients=25, alpha=1e-6, beta=beta)
    first = fine[partition.assign(fine, KEY, fine // 5)[0]]
    assert len(np.unique(first // 5)) == 1
    assert len(np.unique(first)) == fine_labels


def test_two_level_dirichlet_says_that_coarse_labels_are_missing():
    with pytest.raises(CapabilityError, match="needs a coarse label"):
        TwoLevelDirichlet(clients=2, alpha=1.0).assign(TEN_CLASSES, KEY)


def blobs():
    """Two clusters of points whose labels are independent of the cluster."""
    rng = KEY.fold("blobs").numpy()
    cloud = np.arange(60) % 2
    x = rng.normal(size=(60, 3)) + 100 * cloud[:, None]
    return Raw(x=x, y=np.arange(60) // 2 % 3, classes=3), cloud


def test_latent_groups_are_the_clouds_of_the_inputs():
    raw, cloud = blobs()
    partition = Latent(clients=4, groups=2)
    parts = partition.assign(partition.strata(raw, KEY), KEY)
    assert [len(np.unique(cloud[rows])) for rows in parts] == [1, 1, 1, 1]
    assert [len(rows) for rows in parts] == [15, 15, 15, 15]


def test_latent_clusters_what_embed_returns():
    raw, _ = blobs()
    partition = Latent(clients=2, groups=2, embed=lambda x: np.arange(len(x))[:, None] // 30)
    parts = partition.assign(partition.strata(raw, KEY), KEY)
    assert sorted(rows[0] for rows in parts) == [0, 30]
    assert all(np.array_equal(rows, np.arange(rows[0], rows[0] + 30)) for rows in parts)


def test_latent_with_fewer_clients_than_groups_deals_whole_groups():
    groups = np.repeat(np.arange(5), 10)
    parts = Latent(clients=2, groups=5).assign(groups, KEY)
    assert [sorted(set(groups[rows])) for rows in parts] == [[0, 2, 4], [1, 3]]


def test_natural_keeps_rows_with_their_client_and_names_them():
    raw = Raw(x=np.zeros((5, 1)), y=np.zeros(5), clients=np.array(["b", "a", "b", "c", "a"]))
    partition = Natural(minimum=2)
    parts = partition.assign(partition.strata(raw, KEY), KEY)
    assert [rows.tolist() for rows in parts] == [[1, 4], [0, 2]]
    assert partition.names(raw, parts) == ("a", "b")


def test_natural_draws_as_many_clients_as_asked_for():
    ids = np.repeat([f"client {number}" for number in range(30)], 2)
    one, other = (np.concatenate(Natural(clients=7).assign(ids, Key(seed))) for seed in (0, 1))
    assert len(np.unique(one)) == 14
    assert not np.array_equal(one, other)


def test_natural_says_how_many_clients_are_large_enough():
    with pytest.raises(RequestError, match=r"3 clients .* 1 of 2 have that many"):
        Natural(clients=3, minimum=2).assign(np.array(["a", "a", "b"]), KEY)


@pytest.mark.parametrize(
    "partition", [Dirichlet(clients=2, alpha=1.0), Pathological(clients=2, classes=1)]
)
def test_label_partitions_refuse_regression(partition):
    with pytest.raises(CapabilityError, match="no class per row"):
        partition.strata(Raw(x=np.zeros((4, 1)), y=np.zeros(4)), KEY)


def test_iid_divides_regression_data_too():
    assert IID(clients=2).strata(Raw(x=np.zeros((4, 1)), y=np.zeros(4)), KEY).tolist() == [0] * 4


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: IID(clients=0), "clients must be a whole number of at least 1, got 0"),
        (
            lambda: Dirichlet(clients=2, alpha=0.0),
            "alpha must be a finite number above 0, got 0.0",
        ),
        (lambda: Dirichlet(clients=2, alpha=float("inf")), "alpha must be a finite number"),
        (lambda: Pathological(clients=2, classes=0), "classes must be a whole number"),
        (lambda: partition_named("dirichlit", clients=2), 'did you mean "dirichlet"'),
        (lambda: partition_named("dirichlet", client=2), 'did you mean "clients"'),
        (lambda: partition_named("dirichlet", clients=2), "needs more fields"),
    ],
)
def test_wrong_fields_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(RequestError, match=sentence):
        make()


def test_client_numbers_have_leading_zeros_so_that_they_sort():
    raw = Raw(x=np.zeros((20, 1)), y=np.zeros(20))
    assert IID(clients=20).names(raw, [np.arange(1)] * 20)[::19] == ("00", "19")
    assert IID(clients=10).names(raw, [np.arange(1)] * 10)[::9] == ("0", "9")
