import numpy as np
import pytest

from motet._core.keys import Key
from motet._training.batching import NO_EXAMPLE, Plan, draw
from motet.errors import CapabilityError, RequestError


def order_of(plan, size, seed=0):
    return draw(plan, size, Key(seed), Key(seed).fold("parts"))


def test_every_example_is_in_a_step_with_the_same_chance_and_by_itself():
    steps, size = 3000, 40
    order = order_of(Plan(steps=steps, batch_size=10, sampling="poisson"), size)
    taken = np.zeros((steps, size))
    np.put_along_axis(taken, order.rows, (order.weight == 1).astype(float), axis=1)
    deviation = np.sqrt(0.25 * 0.75 / steps)
    assert np.abs(taken.mean(0) - 0.25).max() < 5 * deviation
    sizes = taken.sum(1)
    assert abs(sizes.var() / (size * 0.25 * 0.75) - 1) < 0.15  # not of one size, as shuffling gives
    together = np.corrcoef(taken.T)[np.triu_indices(size, 1)]
    assert np.abs(together).max() < 5 / np.sqrt(steps)


def test_there_are_as_many_steps_as_with_shuffling():
    for size in (1, 7, 32, 100):
        shuffled, sampled = (
            Plan(epochs=2, batch_size=10, sampling=how) for how in ("shuffle", "poisson")
        )
        assert sampled.length(size) == shuffled.length(size) == len(order_of(sampled, size).rows)


def test_a_client_with_fewer_examples_than_a_batch_takes_all_of_them():
    order = order_of(Plan(steps=5, batch_size=10, sampling="poisson"), 4)
    assert order.weight.tolist() == [[1.0] * 4] * 5
    assert Plan(batch_size=10, sampling="poisson").chance(4) == 1


def test_a_step_that_drew_nobody_is_still_a_step():
    order = order_of(Plan(steps=200, batch_size=1, sampling="poisson"), 3)
    drew_nobody = ~(order.weight == 1).any(1)
    assert drew_nobody.any()
    assert (order.weight[drew_nobody].max(1) == np.float32(NO_EXAMPLE)).all()


def test_the_width_is_fixed_and_large_enough():
    plan = Plan(steps=2000, batch_size=32, sampling="poisson")
    order = order_of(plan, 5000)
    assert order.rows.shape[1] == plan.width(5000) == 85
    assert (order.weight == 1).sum(1).max() < 85


def test_a_sample_beyond_the_bound_stops_the_run(monkeypatch):
    monkeypatch.setattr("motet._training.batching._bound", lambda expected: expected)
    with pytest.raises(CapabilityError, match="another seed"):
        order_of(Plan(steps=50, batch_size=5, sampling="poisson"), 100)


def test_no_two_streams_rounds_or_clients_share_a_key_for_noise():
    starts = {
        int(draw(Plan(stream=s, sampling="poisson"), 9, Key(0).fold(n), Key(1)).key[0])
        for s in ("train", "head")
        for n in range(50)
    }
    assert len(starts) == 100
    assert max(starts) > 2**40  # drawn from many, or clients would soon meet


def test_only_known_ways_of_sampling_are_accepted():
    with pytest.raises(RequestError, match='"shuffle" or "poisson"'):
        Plan(sampling="bernoulli")
