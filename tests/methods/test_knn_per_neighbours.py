"""The neighbours' vote and its mix with a model, against arithmetic and against what must hold."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap
from torch.testing import assert_close

from motet._core import neighbours
from motet._core.keys import Key
from motet._core.neighbours import (
    Datastore,
    NearestVote,
    best_lambda,
    correct_by_lambda,
    mix,
    nearest_share,
    squared_distances,
)
from motet.errors import RequestError

CLASSES = 3


def store_of(keys, labels):
    keys, labels = torch.tensor(keys), torch.tensor(labels)
    return Datastore(keys, labels, torch.ones(len(labels), dtype=torch.bool))


# Mini-example KNN-1.
STORE = store_of([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 4.0]], [0, 1, 1, 2])
QUERY = torch.tensor([[0.0, 1.0]])
LOGITS = torch.tensor([[2.0, 0.5, -1.0]])
MODEL = LOGITS.softmax(-1)
PAPER = NearestVote(k=3)
RELEASE = NearestVote(k=3, kernel="gauss_dim")


def digits(*values):
    return torch.tensor([values])


def assert_digits(came, expected, digits=6):
    single = torch.finfo(torch.float32).eps * 4  # the last bit of a number below 4
    assert_close(came, expected, rtol=0, atol=0.5 * 10**-digits + single)


def random_store(seed, size=12, features=4, classes=CLASSES):
    rng = Key(seed).numpy()
    keys = torch.from_numpy(rng.normal(size=(size, features))).float()
    labels = torch.from_numpy(rng.integers(0, classes, size))
    return Datastore(keys, labels, torch.ones(size, dtype=torch.bool))


def random_queries(seed, size=7, features=4):
    return torch.from_numpy(Key(seed).fold("queries").numpy().normal(size=(size, features))).float()


# ---- KNN-1 to the printed digits ---------------------------------------------------------------


def test_distances_of_knn_1():
    came = squared_distances(QUERY, STORE.keys).sqrt()
    assert_digits(came, digits(1, 1.4142136, 1, 4.2426407), 7)


def test_the_three_nearest_of_knn_1_are_keys_0_2_and_1():
    assert nearest_share(squared_distances(QUERY, STORE.keys), 3).tolist() == [[1, 1, 1, 0]]


def test_the_papers_kernel_votes_as_printed():
    assert_digits(PAPER.ask(STORE, QUERY, 3), digits(0.3758184, 0.6241816, 0), 7)


def test_the_releases_kernel_votes_as_printed():
    assert_digits(RELEASE.ask(STORE, QUERY, 3), digits(0.3836517, 0.6163483, 0), 7)


@pytest.mark.parametrize(
    ("lam", "expected"),
    [
        (0.0, (0.7855970, 0.1752904, 0.0391126)),
        (0.25, (0.683152, 0.287513, 0.029334)),
        (0.5, (0.580708, 0.399736, 0.019556)),
        (0.75, (0.478263, 0.511959, 0.009778)),
    ],
)
def test_probabilities_mix_as_printed(lam, expected):
    assert_digits(mix(MODEL, PAPER.ask(STORE, QUERY, 3), lam), digits(*expected))


def test_the_release_mixes_logits_as_printed():
    came = mix(LOGITS, RELEASE.ask(STORE, QUERY, 3), 0.5)
    assert_digits(came, digits(1.191826, 0.558174, -0.5))


@pytest.mark.parametrize(
    ("model", "voting", "flip"), [(MODEL, PAPER, 0.710758), (LOGITS, RELEASE, 0.865703)]
)
def test_the_prediction_flips_at_the_printed_lambda(model, voting, flip):
    votes = voting.ask(STORE, QUERY, 3)
    around = [int(mix(model, votes, flip + step).argmax()) for step in (-1e-6, 1e-6)]
    assert around == [0, 1]


def test_r1_at_lambda_0_8_probabilities_say_1_and_logits_say_0():
    assert int(mix(MODEL, PAPER.ask(STORE, QUERY, 3), 0.8).argmax()) == 1
    assert int(mix(LOGITS, RELEASE.ask(STORE, QUERY, 3), 0.8).argmax()) == 0


# ---- Invariants --------------------------------------------------------------------------------


def test_lambda_0_is_the_model_to_the_last_bit():
    assert torch.equal(mix(MODEL, PAPER.ask(STORE, QUERY, 3), 0.0), MODEL)


@given(st.integers(0, 10**6))
def test_lambda_1_with_one_neighbour_is_the_nearest_label(seed):
    store, queries = random_store(seed), random_queries(seed)
    nearest = torch.cdist(queries, store.keys).argmin(-1)
    alone = mix(torch.ones(7, CLASSES) / CLASSES, NearestVote(k=1).ask(store, queries, CLASSES), 1)
    assert torch.equal(alone.argmax(-1), store.labels[nearest])
    assert torch.equal(alone.amax(-1), torch.ones(7))


@given(st.integers(0, 10**6), st.integers(1, 15), st.sampled_from(["laplace", "gauss_dim"]))
def test_votes_are_probabilities_and_absent_classes_get_exactly_none(seed, k, kernel):
    store = random_store(seed, classes=CLASSES - 1)
    votes = NearestVote(k=k, kernel=kernel).ask(store, random_queries(seed), CLASSES)
    assert_close(votes.sum(-1), torch.ones(7))
    assert (votes >= 0).all()
    assert (votes[:, -1] == 0).all()


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_the_mix_is_between_the_model_and_the_vote(seed, lam):
    model = random_queries(seed, features=CLASSES).softmax(-1)
    votes = PAPER.ask(random_store(seed), random_queries(seed), CLASSES)
    mixed = mix(model, votes, lam)
    assert_close(mixed.sum(-1), torch.ones(7))
    assert (mixed >= torch.minimum(model, votes) - 1e-6).all()
    assert (mixed <= torch.maximum(model, votes) + 1e-6).all()


def test_without_any_key_lambda_does_not_matter():
    nothing = Datastore(torch.zeros(0, 2), torch.zeros(0).long(), torch.zeros(0).bool())
    votes = PAPER.ask(nothing, QUERY, 3)
    for lam in (0.0, 0.3, 1.0):
        assert torch.equal(mix(MODEL, votes, lam), MODEL)


@given(st.integers(0, 10**6), st.integers(0, 11))
def test_a_query_that_is_a_key_gets_its_label_for_certain(seed, row):
    store = random_store(seed)
    vote = NearestVote(k=1).ask(store, store.keys[row : row + 1], CLASSES)
    assert vote[0, store.labels[row]] == 1


@given(st.integers(0, 10**6), st.sampled_from(["laplace", "gauss_dim"]))
def test_moving_and_turning_all_embeddings_changes_nothing(seed, kernel):
    store, queries = random_store(seed), random_queries(seed)
    turn = torch.linalg.qr(random_queries(seed + 1, 4).double()).Q
    voting = NearestVote(k=5, kernel=kernel)

    def moved(points):
        return (points.double() @ turn).float() + 3.0

    there = voting.ask(store._replace(keys=moved(store.keys)), moved(queries), CLASSES)
    assert_close(there, voting.ask(store, queries, CLASSES), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("scale", "expected"), [(1000, (0.333379, 0.666621)), (0.01, (0.5, 0.5))])
def test_a_large_scale_is_a_plain_vote_and_a_small_one_the_nearest(scale, expected):
    came = NearestVote(k=3, scale=scale).ask(STORE, QUERY, 3)
    assert_digits(came, digits(*expected, 0))


@given(st.integers(0, 10**6), st.integers(1, 13))
def test_the_order_of_the_keys_does_not_matter_even_among_ties(seed, k):
    rng = Key(seed).numpy()
    whole = torch.from_numpy(rng.integers(-2, 3, (12, 2))).float()  # many keys at equal distance
    store = random_store(seed)._replace(keys=whole)
    order = torch.from_numpy(rng.permutation(12))
    shuffled = Datastore(*(leaf[order] for leaf in store))
    queries = torch.from_numpy(rng.integers(-2, 3, (7, 2))).float()
    voting = NearestVote(k=k)
    assert_close(voting.ask(shuffled, queries, 3), voting.ask(store, queries, 3), rtol=0, atol=1e-6)


def test_ties_at_the_last_place_share_it():
    level = store_of([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    assert_close(NearestVote(k=1).ask(level, torch.zeros(1, 2), 3), digits(1 / 3, 1 / 3, 1 / 3))
    assert_close(nearest_share(torch.tensor([[0.0, 1, 1, 4]]), 2), digits(1, 0.5, 0.5, 0))


def test_copies_of_one_key_are_equally_near_however_large_their_coordinates():
    point = random_queries(0, 1, 64).repeat(5, 1) * 100
    assert squared_distances(point[:1], point).tolist() == [[0.0] * 5]


def test_splitting_queries_into_blocks_changes_nothing(monkeypatch):
    store, queries = random_store(1), random_queries(1)
    whole = [PAPER.ask(store, queries, 3), PAPER.ask_each_other(store, 3)]
    monkeypatch.setattr(neighbours, "BLOCK", 2)
    assert_close([PAPER.ask(store, queries, 3), PAPER.ask_each_other(store, 3)], whole)


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_padding_is_invisible(seed, k):
    store, queries = random_store(seed), random_queries(seed)
    real = torch.arange(12) < 5
    voting = NearestVote(k=k)
    short = Datastore(store.keys[:5], store.labels[:5], real[:5])
    came = voting.ask(store._replace(real=real), queries, CLASSES)
    assert_close(came, voting.ask(short, queries, CLASSES))


def test_a_store_of_padding_only_does_not_vote():
    votes = PAPER.ask(STORE._replace(real=torch.zeros(4).bool()), QUERY, 3)
    assert votes.tolist() == [[0, 0, 0]]
    assert torch.equal(mix(MODEL, votes, 0.9), MODEL)


@pytest.mark.parametrize("kernel", ["laplace", "gauss_dim"])
def test_keys_far_beyond_where_exp_underflows_still_vote(kernel):
    far = STORE._replace(keys=STORE.keys + 1e5)
    votes = NearestVote(k=3, kernel=kernel).ask(far, QUERY, 3)
    assert votes.isfinite().all()
    assert_close(votes.sum(-1), torch.ones(1))


def test_more_neighbours_than_keys_are_all_keys():
    assert_close(NearestVote(k=99).ask(STORE, QUERY, 3), NearestVote(k=4).ask(STORE, QUERY, 3))


def test_stacked_stores_vote_as_single_ones():
    stores = [random_store(seed) for seed in range(3)]
    queries = torch.stack([random_queries(seed) for seed in range(3)])
    stacked = Datastore(*map(torch.stack, zip(*stores, strict=True)))
    came = vmap(lambda store, q: PAPER.ask(store, q, CLASSES))(stacked, queries)
    alone = [PAPER.ask(s, q, CLASSES) for s, q in zip(stores, queries, strict=True)]
    assert_close(came, torch.stack(alone))


# ---- Leaving one out, and choosing lambda ------------------------------------------------------


def test_nobody_votes_on_themselves():
    alternating = store_of([[0.0], [1.0], [2.1], [3.3]], [0, 1, 0, 1])
    votes = NearestVote(k=1).ask_each_other(alternating, 2)
    assert votes.argmax(-1).tolist() == [1, 0, 1, 0]


def test_leaving_one_out_of_one_leaves_nobody():
    assert PAPER.ask_each_other(store_of([[1.0, 2.0]], [1]), 3).tolist() == [[0, 0, 0]]


def test_lambda_is_the_one_that_gets_most_right_and_ties_go_to_the_smallest():
    grid = torch.linspace(0, 1, 11)
    model = digits(0.7, 0.3).repeat(3, 1)
    votes = digits(0.0, 1.0).repeat(3, 1)
    labels, real = torch.tensor([1, 1, 0]), torch.tensor([True, True, True])
    correct = correct_by_lambda(model, votes, labels, grid)
    assert_close(best_lambda(correct, real, grid), grid[3])  # 0.3 + 0.7 lam > 1/2 from 2/7 on
    assert best_lambda(correct, torch.tensor([False, False, True]), grid) == 0


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"scale": 0.0}, {"scale": math.nan}, {"kernel": "cosine"}]
)
def test_what_cannot_vote_is_refused(wrong):
    with pytest.raises(RequestError, match=next(iter(wrong))):
        NearestVote(**wrong)
