"""What must hold for every partition, any labels, any number of clients and any concentration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet._core.keys import Key
from motet.data import IID, Dirichlet, Latent, Pathological, QuantitySkew, TwoLevelDirichlet
from motet.errors import RequestError

alphas = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
seeds = st.integers(0, 2**31)
KINDS = ("iid", "dirichlet", "two-level", "quantity", "latent")


@st.composite
def labels(draw, most_rows=700):
    """Few labels, some of them rare, in no order."""
    classes = draw(st.integers(1, 6))
    rng = Key(draw(seeds)).numpy()
    weights = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.2, 1.0, 100.0]))))
    return rng.choice(classes, size=draw(st.integers(1, most_rows)), p=weights)


def make(kind, clients, alpha, minimum):
    common = {"clients": clients, "minimum": minimum}
    return {
        "iid": lambda: IID(**common),
        "dirichlet": lambda: Dirichlet(alpha=alpha, **common),
        "two-level": lambda: TwoLevelDirichlet(alpha=alpha, beta=1 / alpha, **common),
        "quantity": lambda: QuantitySkew(alpha=alpha, **common),
        "latent": lambda: Latent(groups=3, **common),
    }[kind]()


@st.composite
def requests(draw):
    """Labels, a number of clients, and a minimum that there is just or easily enough for."""
    found = draw(labels())
    clients = draw(st.integers(1, min(300, len(found))))
    most = len(found) // clients
    return found, clients, draw(st.one_of(st.just(most), st.integers(0, most)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(request=requests(), alpha=alphas, seed=seeds)
def test_every_row_goes_to_one_client_and_every_client_gets_its_minimum(kind, request, alpha, seed):
    labels, clients, minimum = request
    partition = make(kind, clients, alpha, minimum)
    parts = partition.assign(labels, Key(seed), labels // 2)
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert min(len(rows) for rows in parts) >= minimum
    again = partition.assign(labels, Key(seed), labels // 2)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 50), clients=st.integers(1, 300), alpha=alphas)
def test_more_samples_than_there_are_is_refused_with_the_numbers(kind, rows, clients, alpha):
    minimum = rows // clients + 1
    with pytest.raises(RequestError, match=f"need {clients * minimum}; there are {rows}"):
        make(kind, clients, alpha, minimum).assign(np.arange(rows) % 3, Key(0), np.zeros(rows))


@settings(max_examples=80, deadline=None)
@given(labels=labels(), clients=st.integers(1, 300), classes=st.integers(1, 6), seed=seeds)
def test_pathological_is_exact_or_refused_for_a_reason(labels, clients, classes, seed):
    found, stock = np.unique(labels, return_counts=True)
    partition = Pathological(clients=clients, classes=classes)
    possible = classes <= len(found) and np.minimum(stock, clients).sum() >= clients * classes
    if not possible:
        with pytest.raises(RequestError):
            partition.assign(labels, Key(seed))
        return
    parts = partition.assign(labels, Key(seed))
    table = np.stack([(labels[rows][:, None] == found).sum(axis=0) for rows in parts])
    assert ((table > 0).sum(axis=1) == classes).all()
    used = table.sum(axis=0)
    assert ((used == stock) | (used == 0)).all()
    assert (used > 0).all() or clients * classes < len(found)
    for column in table.T:
        shares = column[column > 0]
        assert shares.size == 0 or shares.max() - shares.min() <= 1


@pytest.mark.parametrize("kind", [*KINDS])
def test_another_key_gives_another_division(kind):
    labels = np.arange(300) % 6
    partition = make(kind, 10, 1.0, 1)
    one, two = (partition.assign(labels, Key(seed), labels // 2) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))
