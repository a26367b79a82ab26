"""What is said about a division that may not be what was meant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import motet
from motet import data
from motet._compare.references import why_unsuited
from motet.data import from_arrays
from motet.data._divide import divide
from motet.data._partition import IID, Dirichlet, Latent, Pathological
from motet.data._raw import Raw
from motet.data._remarks import is_nearly_iid, remarks


def federation(partition, *, telling=0.0, rows=600, classes=10, seed=0):
    """Ten classes, and inputs that tell more or less about them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    x = (rng.normal(size=(rows, 12)) + telling * np.eye(classes, 12)[y]).astype(np.float32)
    raw = Raw(x=x, y=y, classes=classes)
    return divide(raw, partition, data.Split(0.0, 0.2), name="made up", seed=seed, source={})


def embedded(x):
    return x[:, :10]


def latent(embed=None, groups=5):
    return Latent(clients=10, groups=groups, embed=embed)


def test_raw_inputs_that_say_nothing_about_labels_give_a_warning_with_the_measured_emd():
    made = federation(latent())
    (told,) = remarks(made)
    assert f"label EMD {made.heterogeneity().mean_emd:.2f}" in told
    for words in ("clusters the raw inputs", "nearly IID", "embed=", "dirichlet"):
        assert words in told


def test_raw_inputs_that_separate_labels_are_said_to_be_raw_but_not_nearly_iid():
    (told,) = remarks(federation(latent(), telling=30.0))
    assert "clusters the raw inputs" in told
    assert "nearly IID" not in told


def test_an_embedding_that_separates_labels_needs_no_remark():
    assert remarks(federation(latent(embedded), telling=30.0)) == []


def test_an_embedding_that_separates_nothing_is_told_of_too():
    (told,) = remarks(federation(latent(embedded)))
    assert "nearly IID" in told
    assert "clusters the raw inputs" not in told


@pytest.mark.parametrize("partition", [IID(clients=10), Dirichlet(clients=10, alpha=0.3)])
def test_other_partitions_are_what_their_names_say(partition):
    assert remarks(federation(partition)) == []


@given(st.integers(2, 40), st.integers(2, 12), st.integers(0, 20))
def test_chance_alone_is_nearly_iid_however_small_the_clients(clients, classes, seed):
    made = federation(IID(clients=clients), classes=classes, seed=seed)
    assert is_nearly_iid(made, made.heterogeneity())


@given(st.integers(3, 12), st.integers(0, 20))
def test_one_or_two_classes_of_many_are_not(clients, seed):
    partition = Pathological(clients=5 * clients, classes=2)
    made = federation(partition, rows=2000, seed=seed)
    assert not is_nearly_iid(made, made.heterogeneity())


def test_a_run_warns_and_no_method_is_left_out_for_it():
    made = federation(latent())
    task = motet.Task(lambda: motet.models.MLP((12,), 10))
    run = motet.run(motet.FedAvg(), task, made, rounds=0, backend="serial")
    assert run.warnings == tuple(remarks(made))
    assert why_unsuited(motet.FedAvg(), task, made) == ""


def test_regression_has_no_labels_to_measure():
    pair = (np.zeros((4, 1), np.float32), np.zeros(4, np.float32))
    assert remarks(from_arrays({"a": pair}, test={"a": pair})) == []


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (300.0, True)])
def test_targets_that_make_training_diverge_are_told_with_the_remedy(scale, warned):
    rng = np.random.default_rng(0)
    sites = {
        site: (rng.normal(size=(20, 2)).astype(np.float32), scale * rng.random(20, np.float32))
        for site in ("north", "south")
    }
    federation = motet.data.from_arrays(train=sites, split=motet.data.Split(val=0.1, test=0.2))
    told = " ".join(remarks(federation))
    assert ("large for a network" in told and "--lr 0.001" in told) is warned
