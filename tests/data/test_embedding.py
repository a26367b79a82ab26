"""Latent groups by an embedding: a function, or a network that is trained for this."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motet._core.keys import Key
from motet.config import experiment_from_dict
from motet.data import Latent, Raw, Trained, dataset, load, rebuild
from motet.data._subset import Subset
from motet.errors import CapabilityError, RequestError
from motet.models import _embedding


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path / "cache"))


def digits(rows: int = 500) -> Raw:
    return Subset(limit=rows).of(dataset("digits").load(), Key(0))


def purity(groups: np.ndarray, y: np.ndarray) -> float:
    return sum(np.bincount(y[groups == g]).max() for g in np.unique(groups)) / len(y)


TRAINED = Trained(network="mlp", accuracy=0.99, epochs=40, lr=0.1, batch_size=32)


def test_a_trained_network_finds_groups_that_raw_inputs_do_not_show(monkeypatch):
    raw = digits()
    plain = Latent(clients=10, groups=10).strata(raw, Key(0))
    trained = Latent(clients=10, groups=10, embed=TRAINED).strata(raw, Key(0))
    assert purity(trained, raw.y) > purity(plain, raw.y) + 0.05
    monkeypatch.setattr(_embedding, "learned_features", None)  # it must not be called again
    again = Latent(clients=10, groups=10, embed=TRAINED).strata(raw, Key(0))
    assert np.array_equal(again, trained)


def test_a_function_by_its_path_is_that_function():
    raw = digits(200)
    named = Latent(clients=4, groups=3, embed="numpy:abs").strata(raw, Key(0))
    given = Latent(clients=4, groups=3, embed=np.abs).strata(raw, Key(0))
    assert np.array_equal(named, given)


def test_a_config_holds_an_embedding_and_the_manifest_brings_it_back():
    table = {"kind": "trained", "network": "logistic", "accuracy": 0.1, "epochs": 9}
    partition = {"name": "latent", "clients": 3, "groups": 2, "embed": table}
    tables = {"method": {"name": "local"}, "data": {"limit": 150, "partition": partition}}
    experiment = experiment_from_dict(tables)
    assert experiment.data.partition.embed == Trained(network="logistic", accuracy=0.1, epochs=9)
    written = json.loads(json.dumps(experiment.to_dict()))
    assert experiment_from_dict(written) == experiment
    data = experiment.federation()
    assert rebuild(json.loads(json.dumps(data.manifest()))).hash == data.hash


@pytest.mark.parametrize(
    ("embed", "complaint"),
    [
        (
            Trained(network="mlp", accuracy=1.0, epochs=1, lr=0.0),
            "reached an accuracy of .* in 1 ep",
        ),
        ("mpl", 'no network is called "mpl"; did you mean "mlp"'),
        ("no.such.module:function", "cannot be imported"),
        ("numpy:no_such_function", "cannot be imported"),
        ("numpy:pi", '"numpy:pi" is not a function'),
        (lambda x: x[:1], "one vector per row, got 1 for 150 rows"),
        (lambda x: 3, "one vector per row, got a number for 150 rows"),
        (lambda x: x.flatten(1), r"failed on a NumPy array of shape \(150, .*: TypeError: order"),
        (lambda x: x * np.nan, "finite numbers; row 0 has a NaN"),
        ("vgg-11", r"embed\.network: vgg-11 needs images of at least 32 x 32 pixels"),
        (lambda x: x * 0, "groups=2 need as many different vectors, .* 1 group, .* by embed"),
    ],
)
def test_an_embedding_that_does_not_work_is_refused(embed, complaint):
    with pytest.raises(RequestError, match=complaint):
        load("digits", Latent(clients=3, groups=2, embed=embed), limit=150)


def test_data_without_classes_train_no_network():
    values = Raw(x=np.zeros((9, 4), np.float32), y=np.zeros(9, np.float32))
    with pytest.raises(CapabilityError, match="these data have no class per row"):
        Latent(clients=2, groups=2, embed="mlp").strata(values, Key(0))


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"accuracy": 1.5}])
def test_settings_of_the_training_are_checked(wrong):
    [name] = wrong
    with pytest.raises(RequestError, match=rf"embed\.{name} must be"):
        Trained(**wrong)
