"""The federation that every backend reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.data import Federation, Normalize, from_arrays
from motet.errors import RequestError


def tiny(order="abc", **options) -> Federation:
    """Three clients whose inputs differ in their first digit."""
    number = {"a": 10, "b": 20, "c": 30}
    cell = {c: np.full((2, 1), number[c], np.float32) for c in "abc"}
    return from_arrays(
        train={c: (cell[c], np.array([0, 1])) for c in order},
        val={c: (cell[c][:1] + 1, np.array([0])) for c in order},
        test={c: (cell[c][:1] + 2, np.array([1])) for c in order},
        **options,
    )


def test_examples_are_the_clients_own():
    data = tiny()
    assert data.examples("b", "train").x.tolist() == [[20.0], [20.0]]
    assert data.examples("b", "test").x.tolist() == [[22.0]]
    assert data.examples("b", "test").y.tolist() == [1]
    assert (data.size("b", "train"), data.size("b", "val")) == (2, 1)
    assert data.sizes("train") == {"a": 2, "b": 2, "c": 2}


def test_the_order_of_listing_changes_only_the_order_of_listing():
    one, two = tiny("abc"), tiny("cab")
    assert two.clients == ("c", "a", "b")
    assert one.hash == two.hash
    assert one.retarget(seed=3).hash == two.retarget(seed=3).hash
    assert torch.equal(one.examples("a", "val").x, two.examples("a", "val").x)


def test_a_missing_split_is_empty_tensors_of_the_right_shape_and_type():
    data = from_arrays(train={"a": (np.zeros((2, 3, 4), np.uint8), np.array([0, 1]))})
    x, y = data.examples("a", "test")
    assert (x.shape, x.dtype) == ((0, 3, 4), torch.float32)
    assert (y.shape, y.dtype) == ((0,), torch.int64)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (np.uint8, torch.float32),
        (np.float64, torch.float32),
        (np.float16, torch.float32),
        (np.dtype(">f4"), torch.float32),
        (np.bool_, torch.float32),
        (np.int16, torch.int64),
        (np.int64, torch.int64),
    ],
)
def test_inputs_become_floats_and_tokens_stay_integers(stored, read):
    data = from_arrays(train={"a": (np.ones((2, 2), stored), np.array([0, 1]))})
    assert data.examples("a", "train").x.dtype == read


def test_images_are_scaled_and_normalized_per_channel():
    image = np.zeros((1, 2, 1, 1), np.uint8)
    image[0, 1] = 255
    normalize = Normalize(mean=(0.5, 0.75), std=(0.5, 0.25))
    data = from_arrays(train={"a": (image, np.array([0]))}, normalize=normalize)
    assert data.examples("a", "train").x.flatten().tolist() == [-1.0, 1.0]


def test_one_mean_serves_all_channels():
    x = np.array([[1.0, 3.0]])
    data = from_arrays(train={"a": (x, np.array([0]))}, normalize=Normalize((1.0,), (2.0,)))
    assert data.examples("a", "train").x.tolist() == [[0.0, 1.0]]


def test_reading_examples_leaves_the_arrays_alone():
    x = np.array([[1.0, 3.0]], np.float32)
    data = from_arrays(train={"a": (x, np.array([0]))}, normalize=Normalize((1.0,), (2.0,)))
    data.examples("a", "train").x.add_(7)
    assert x.tolist() == [[1.0, 3.0]]


def test_float_targets_are_regression():
    data = from_arrays(train={"a": (np.zeros((2, 1)), np.array([0.5, 2.0]))})
    assert data.classes is None
    assert data.examples("a", "train").y.dtype == torch.float32


def test_select_keeps_some_clients_and_their_rows():
    data = tiny().select(["c", "a"])
    assert data.clients == ("c", "a")
    assert data.examples("c", "val").x.tolist() == [[31.0]]
    with pytest.raises(RequestError, match='no client is called "b"'):
        data.size("b", "train")


@pytest.mark.parametrize("chosen", [[], ["a", "a"]])
def test_select_needs_each_client_once(chosen):
    with pytest.raises(RequestError, match="at least one client and each only once"):
        tiny().select(chosen)


def test_a_wrong_client_or_split_is_answered_with_the_nearest():
    data = from_arrays(train={"hospital-1": (np.zeros((1, 1)), np.array([0]))})
    with pytest.raises(RequestError, match='did you mean "hospital-1"'):
        data.examples("hospital1", "train")
    with pytest.raises(RequestError, match="known: test, train, val"):
        data.size("hospital-1", "validation")


def test_the_nearest_client_is_found_among_many():
    cell = (np.zeros((1, 1)), np.array([0]))
    data = from_arrays(train={f"phone-{number:03d}": cell for number in range(200)})
    with pytest.raises(RequestError, match='among 200; did you mean "phone-177"'):
        data.size("phone_177", "train")


def test_retarget_moves_val_and_test_together_and_no_client_keeps_its_own():
    data, moved = tiny(), tiny().retarget(seed=1)
    for client in data.clients:
        val, test = moved.examples(client, "val").x, moved.examples(client, "test").x
        assert torch.equal(moved.examples(client, "train").x, data.examples(client, "train").x)
        assert torch.equal(test, val + 1)
        assert not torch.equal(val, data.examples(client, "val").x)
    judged = sorted(float(moved.examples(client, "val").x) for client in data.clients)
    assert judged == [11.0, 21.0, 31.0]


def test_retarget_has_no_fixed_point_for_any_seed():
    data = tiny()
    for seed in range(20):
        moved = data.retarget(seed=seed)
        assert all(moved.examples(c, "val").x != data.examples(c, "val").x for c in "abc")


def test_retarget_may_keep_fixed_points_if_asked():
    data = tiny()
    kept = [data.retarget(seed=seed, fixed_points=True).hash == data.hash for seed in range(30)]
    assert any(kept)
    assert not all(kept)


def test_retarget_by_pairs_sets_whose_data_each_client_is_evaluated_on():
    moved = tiny().retarget(pairs={"a": "b", "b": "a"})
    assert float(moved.examples("a", "test").x) == 22.0
    assert float(moved.examples("c", "test").x) == 32.0


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [({"a": "b"}, "on one side only: a, b"), ({"a": "z", "z": "a"}, 'unknown client "z"')],
)
def test_pairs_that_lose_or_invent_data_are_refused(pairs, sentence):
    with pytest.raises(RequestError, match=sentence):
        tiny().retarget(pairs=pairs)


def test_a_single_client_cannot_be_retargeted():
    with pytest.raises(RequestError, match="at least two, got 1"):
        tiny().select(["a"]).retarget()


def test_a_federation_shows_itself_in_one_line():
    assert repr(tiny()) == (
        "<Federation arrays: 3 clients, 6 train / 3 val / 3 test, x (1,), 2 classes>"
    )
