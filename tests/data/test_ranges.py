"""A federation of ranges: clients without number, and nothing made before it is needed."""

import numpy as np
import pytest
from torch.testing import assert_close

import motet
from motet._core.keys import Key
from motet.data import from_arrays, from_ranges
from motet.data._numbered import Numbered, in_order
from motet.errors import DataError, RequestError

STARTS = [0, 5, 9, 16]


def arrays():
    rng = Key(0).numpy()
    return rng.standard_normal((16, 3)).astype("float32"), rng.integers(0, 2, 16)


def ranges(**more):
    return from_ranges(*arrays(), STARTS, val=1, test=2, **more)


def test_clients_own_the_rows_between_their_starts():
    x, y = arrays()
    data = ranges()
    assert tuple(data.clients) == ("0", "1", "2")
    assert data.sizes("train") == {"0": 2, "1": 1, "2": 4}
    assert_close(data.examples("1", "train").x.numpy(), x[5:6])
    assert data.examples("1", "val").y.tolist() == y[6:7].tolist()
    assert data.examples("2", "test").y.tolist() == y[14:16].tolist()
    assert data.rows.owner_of(6) == (1, 1)


def test_rows_in_a_file_are_the_rows_of_the_array(tmp_path):
    x, y = arrays()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = from_ranges(tmp_path / "x.npy", str(tmp_path / "y.npy"), STARTS, val=1, test=2)
    for client in data.clients:
        for split in ("train", "val", "test"):
            for mine, theirs in zip(
                data.examples(client, split), ranges().examples(client, split), strict=True
            ):
                assert_close(mine, theirs, rtol=0, atol=0)
    assert data.hash == ranges().hash
    assert data.examples("1", "train").x.shape == (1, 3)
    assert data.select(["2"]).examples("2", "train").y.tolist() == y[9:13].tolist()


def test_a_run_on_ranges_is_the_run_on_the_same_arrays():
    x, y = arrays()
    pairs = {str(c): (x[a:b], y[a:b]) for c, (a, b) in enumerate([(0, 5), (5, 9), (9, 16)])}
    cut = {"train": slice(0, -3), "val": slice(-3, -2), "test": slice(-2, None)}
    given = {s: {c: (x[rows], y[rows]) for c, (x, y) in pairs.items()} for s, rows in cut.items()}
    task = motet.Task(
        lambda: motet.models.build("logistic", shape=(3,), classes=2), "cross_entropy"
    )
    scores = [
        motet.run(motet.FedAvg(), task, data, rounds=2, cohort=2).evaluate().rows
        for data in (ranges(), from_arrays(**given))
    ]
    assert scores[0] == scores[1]


def test_a_million_clients_are_numbers_until_they_are_asked_for():
    ids = Numbered(1_000_000)
    assert (ids[0], ids[-1], ids[41:43]) == ("000000", "999999", ("000041", "000042"))
    assert in_order(ids) is ids
    assert "000041" in ids
    for stranger in ("41", "1000000", "00004\uff11", "-00041", "", 41):
        assert stranger not in ids
    with pytest.raises(IndexError):
        ids[1_000_000]


def test_ids_are_in_order_by_themselves():
    ids = Numbered(1001)
    assert sorted(ids) == list(ids)


def test_an_unknown_client_is_refused():
    with pytest.raises(RequestError, match='no client is called "7"'):
        ranges().size("7", "train")


@pytest.mark.parametrize("starts", [[0, 5, 9], [1, 5, 16], [0, 16, 9], [0, 3, 16], [16], [[0, 16]]])
def test_starts_that_fit_nothing_are_refused(starts):
    with pytest.raises(DataError, match="starts must"):
        from_ranges(*arrays(), starts, val=1, test=2)


def test_a_manifest_knows_the_same_ranges_again():
    data, other = ranges(), from_ranges(*arrays(), STARTS, val=2, test=1)
    assert ranges().verify(data.manifest()).hash == data.hash
    with pytest.raises(DataError, match="clients or splits differ"):
        other.verify(data.manifest())
    assert np.array_equal(data.rows.sizes.sum(axis=0), [7, 3, 6])
