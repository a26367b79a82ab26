"""Who can use whose model, and who contributes: in a world where both are known."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import motet
from motet._compare.cross_sites import TITLE
from motet._verdict.contributions import contributions_text, described
from motet.data import from_arrays
from motet.errors import RequestError

CLIENTS = ("a0", "a1", "b0", "b1")


def two_languages(names=CLIENTS):
    """Clients whose names start with b name the two classes the other way round."""
    rng, splits = np.random.default_rng(0), {"train": {}, "test": {}}
    for name in names:
        y = np.arange(140) % 2
        x = (rng.normal(size=(140, 5)) + 1.2 * (2 * y[:, None] - 1)).astype(np.float32)
        named = 1 - y if name.startswith("b") else y
        splits["train"][name] = (x[:60], named[:60])
        splits["test"][name] = (x[60:], named[60:])
    return from_arrays(**splits)


def compared(data, **options):
    task = motet.Task(build=lambda: nn.Linear(5, 2))
    method = motet.FedAvg(optimizer=motet.Sgd(lr=0.3), steps=5, batch_size=None)
    return motet.compare([method], task, data, rounds=3, seeds=2, **options)


@pytest.fixture(scope="module")
def crossed():
    return compared(two_languages(), cross_site=True)


def matrix_of(table, label):
    (study,) = [s for s in table.of(label)[0].studies if s.title == TITLE]
    assert study.data["names"] == list(CLIENTS)
    (frame,) = study.data["frames"]
    return np.array(frame["values"], float)


def test_models_are_of_use_to_clients_that_name_classes_alike(crossed):
    found = matrix_of(crossed, "local")
    for row, owner in enumerate(CLIENTS):
        for column, client in enumerate(CLIENTS):
            alike = owner[0] == client[0]
            assert (found[row, column] > 0.8) == alike
            assert (found[row, column] < 0.2) == (not alike)


def test_the_diagonal_is_what_clients_get_from_their_own_models(crossed):
    for label in crossed.labels:
        own = [score.value for score in crossed.of(label)[0].evaluation.rows]
        assert np.diag(matrix_of(crossed, label)) == pytest.approx(own)


def test_one_model_for_all_has_equal_rows(crossed):
    found = matrix_of(crossed, "fedavg")
    assert found == pytest.approx(np.tile(found[:1], (4, 1)))


def test_a_client_with_other_labels_harms_the_others():
    table = compared(two_languages(("a0", "a1", "a2", "b0")), leave_one_out=True)
    found = {one["site"]: one for one in table.contributions}
    assert set(found) == {"a0", "a1", "a2", "b0"}
    assert found["b0"]["gain"] == min(one["gain"] for one in found.values())
    assert found["b0"]["gain"] < 0
    assert all(one["clients"] == 3 for one in found.values())
    again = motet.Comparison.from_dict(table.to_dict())
    assert [dict(one) for one in again.contributions] == [dict(o) for o in table.contributions]
    assert "Clients left out one at a time" in table.table()


def test_a_federation_of_two_has_nobody_to_leave_out():
    with pytest.raises(RequestError, match="at least 3 clients, got 2"):
        compared(two_languages(("a0", "b0")), leave_one_out=True)


def test_a_cohort_of_everybody_cannot_be_drawn_without_one():
    with pytest.raises(RequestError, match="use a fraction"):
        compared(two_languages(), leave_one_out=True, cohort=4)


def test_contributions_are_told_by_their_grade(crossed):
    rows = [
        {"site": "a", "label": "m", "gain": 0.1, "low": 0.05, "high": 0.2, "grade": "sure"},
        {"site": "b", "label": "m", "gain": 0.0, "low": -0.1, "high": 0.1, "grade": "none"},
        {"site": "c", "label": "m", "gain": -0.1, "low": -0.2, "high": 0.0, "grade": "probable"},
    ]
    rows = [{**row, "clients_better": 2, "clients": 3} for row in rows]
    assert described(rows) == (
        "Clients left out one at a time under m: the others gain from a; the others lose from c."
    )
    text = contributions_text(replace(crossed, contributions=tuple(rows)))
    assert "+10.0 ▲" in text
    assert "-10.0 ▽" in text
    assert max(map(len, text.splitlines())) <= 80
