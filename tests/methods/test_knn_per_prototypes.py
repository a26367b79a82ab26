"""Datastores compressed to learned prototypes."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from torch.testing import assert_close

import motet
from motet._core.keys import Key
from motet._core.neighbours import Datastore
from motet._core.tree import count_bytes
from motet.methods._knn_per import protonn
from motet.methods._knn_per.protonn import Prototypes, ask_prototypes, centroids, compress
from motet.optim import Sgd

TASK = motet.Task(lambda: nn.Linear(2, 3))
CORNERS = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def clusters(size=24, seed=0, spread=0.7):
    """Three clouds of points, one per class."""
    rng = Key(seed).numpy()
    labels = torch.from_numpy(rng.integers(0, 3, size))
    noise = torch.from_numpy(rng.normal(size=(size, 2))).float()
    return Datastore(CORNERS[labels] + spread * noise, labels, torch.ones(size).bool())


def compressed(store, factor=4, steps=3, lr=0.03):
    return compress(store, factor, 3, task=TASK, optimizer=Sgd(lr=lr), steps=steps)


def cross_entropy(prototypes, store):
    right = ask_prototypes(prototypes, store.keys).gather(-1, store.labels[:, None])
    return float(-right.log().mean())


def test_the_prediction_is_the_papers_weighted_mean():
    b, z = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    prototypes = Prototypes(b, z, torch.ones(2).bool(), torch.tensor(0.5))
    query = torch.tensor([[1.0, 0.5]])
    kernel = torch.exp(-0.5 * torch.tensor([1.25, 0.25]))
    assert_close(ask_prototypes(prototypes, query)[0], kernel @ z / kernel.sum())


@pytest.mark.parametrize(("size", "factor", "prototypes"), [(24, 4, 6), (25, 4, 7), (3, 4, 1)])
def test_c_keys_become_c_over_the_factor_rounded_up(size, factor, prototypes):
    assert int(compressed(clusters(size), factor).real.sum()) == prototypes


def test_four_keys_to_a_prototype_take_a_quarter_of_the_memory():
    store = clusters(40)
    assert count_bytes(compressed(store, steps=0).keys) * 4 == count_bytes(store.keys)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([0, 3]))
def test_label_mixtures_are_on_the_simplex_and_predictions_are_probabilities(seed, steps):
    prototypes = compressed(clusters(13, seed), steps=steps)
    assert (prototypes.values >= 0).all()
    assert_close(prototypes.values.sum(-1), torch.ones(4))
    predicted = ask_prototypes(prototypes, CORNERS)
    assert predicted.isfinite().all()
    assert_close(predicted.sum(-1), torch.ones(3))


def test_prototypes_start_as_centroids_of_their_own_class():
    store = clusters(60)
    layout = centroids(store, 10)
    counts = torch.bincount(layout.labels, minlength=3)
    shares = torch.bincount(store.labels, minlength=3) / 10
    assert ((counts - shares).abs() < 1).all()  # in proportion to the examples
    nearest = torch.cdist(layout.keys, CORNERS).argmin(-1)
    assert torch.equal(nearest, layout.labels)


def test_one_prototype_per_class_is_the_mean_of_the_class():
    store = clusters(30)
    even = store._replace(labels=torch.arange(30) % 3)
    layout = centroids(even, 10)
    means = torch.stack([even.keys[even.labels == c].mean(0) for c in range(3)])
    assert_close(layout.keys, means)


COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any)


def store_of(counts, seed=0, padding=0):
    """A store with so many examples of each class, in random order, and padding at the end."""
    rng = Key(seed).numpy()
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    labels = torch.from_numpy(np.concatenate([labels, rng.integers(0, len(counts), padding)]))
    keys = torch.from_numpy(rng.normal(size=(len(labels), 2))).float()
    return Datastore(keys, labels, torch.arange(len(labels)) < sum(counts))


def prototypes_of(layout, classes):
    return torch.bincount(layout.labels[layout.real], minlength=classes).tolist()


def sainte_lague(counts, seats):
    """One seat for each party by size, then one after another to the highest quotient."""
    given_ = [0] * len(counts)
    for _ in range(seats):
        claims = [
            (0 if given_[c] else 1, Fraction(n, 2 * given_[c] + 1), -c)
            for c, n in enumerate(counts)
            if n
        ]
        given_[-max(claims)[2]] += 1
    return given_


@given(COUNTS, st.integers(1, 9), st.integers(0, 99), st.integers(0, 5))
def test_every_class_has_a_prototype_while_they_last_and_the_largest_classes_come_first(
    counts, factor, seed, padding
):
    budget = -(-sum(counts) // factor)
    shared = prototypes_of(centroids(store_of(counts, seed, padding), factor), len(counts))
    present = [c for c, n in enumerate(counts) if n]
    assert sum(shared) == budget
    assert all(mine <= n for mine, n in zip(shared, counts, strict=True))
    if budget >= len(present):
        assert all(shared[c] for c in present)
    else:
        without = [counts[c] for c in present if not shared[c]]
        assert max(without) <= min(counts[c] for c in present if shared[c])
    assert shared == sainte_lague(counts, budget)


@given(COUNTS, st.integers(1, 9), st.integers(0, 99))
def test_prototypes_of_a_class_start_at_different_examples_of_it(counts, factor, seed):
    store = store_of(counts, seed, padding=3)
    places, real = protonn._shared_out(store, factor)
    assert len(set(places[real].tolist())) == int(real.sum())
    assert store.real[places[real]].all()


def test_a_tiny_client_with_room_for_one_prototype_keeps_its_majority():
    layout = centroids(store_of([2, 1, 1]), 4)
    assert prototypes_of(layout, 3) == [1, 0, 0]
    assert prototypes_of(centroids(store_of([1, 1, 2]), 4), 3) == [0, 0, 1]


def test_stacked_stores_share_out_prototypes_as_each_alone_does():
    stores = [store_of(c, s, 12 - sum(c)) for s, c in enumerate([[2, 1, 1], [0, 0, 5], [4, 4, 4]])]
    stacked = Datastore(*map(torch.stack, zip(*stores, strict=True)))
    together = vmap(lambda store: centroids(store, 3))(stacked)
    for number, store in enumerate(stores):
        for came, alone in zip(together, centroids(store, 3), strict=True):
            assert_close(came[number], alone)


def test_fitting_lowers_the_loss_on_the_store():
    store = clusters(80, spread=2.5)
    losses = [cross_entropy(compressed(store, steps=steps), store) for steps in (0, 5, 20)]
    assert losses[0] > losses[1] > losses[2]


def test_well_separated_classes_lose_nothing():
    small, unseen = compressed(clusters(60)), clusters(60, seed=1)
    predicted = ask_prototypes(small, unseen.keys).argmax(-1)
    assert torch.equal(predicted, unseen.labels)


def test_moving_all_embeddings_changes_nothing():
    store = clusters(20)
    there = compressed(store._replace(keys=store.keys + 100))
    came, expected = (
        ask_prototypes(there, CORNERS + 100),
        ask_prototypes(compressed(store), CORNERS),
    )
    assert_close(came, expected, rtol=0, atol=1e-3)


def test_padding_is_invisible_also_when_it_is_all_there_is():
    stores = [clusters(20, seed=s)._replace(real=torch.arange(20) < n) for s, n in ((1, 9), (2, 0))]
    stacked = Datastore(*map(torch.stack, zip(*stores, strict=True)))
    came = vmap(compressed)(stacked)
    alone = compressed(Datastore(*(leaf[:9] for leaf in stores[0])))
    assert came.real.sum(-1).tolist() == [3, 0]
    for stacked_leaf, leaf in zip(came[:2], alone[:2], strict=True):  # places and label mixtures
        assert_close(stacked_leaf[0, :3], leaf, rtol=0, atol=1e-5)
    assert_close(came.gamma[0], alone.gamma)
    votes = vmap(lambda prototypes: ask_prototypes(prototypes, CORNERS))(came)
    assert votes[1].tolist() == [[0, 0, 0]] * 3  # nobody votes: the model speaks alone


def test_one_example_and_copies_of_one_example_are_served():
    for store in (clusters(1), clusters(8)._replace(keys=torch.ones(8, 2))):
        assert ask_prototypes(compressed(store), CORNERS).isfinite().all()
