"""Tasks: an architecture and a loss, as pure functions of a state."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
import torch
from torch import nn
from toys import assert_same

import motet
from motet import Key, Task
from motet.errors import CapabilityError, RequestError, StructureError
from motet.task import Batch, Loss
from motet.testing import batch_norm, dropout


def batch(x, y, weight=None, key=0):
    x = torch.as_tensor(x, dtype=torch.float32)
    weight = torch.ones(len(x)) if weight is None else torch.tensor(weight)
    return Batch(x, torch.as_tensor(y), weight, torch.tensor(key))


X = Key(0).numpy().normal(size=(6, 4)).astype("float32")
Y = np.array([0, 1, 2, 0, 1, 2])


def test_equal_keys_give_equal_weights_and_different_keys_different_ones():
    task = Task(build=lambda: nn.Linear(4, 3))
    assert_same(task.init(Key(1)), task.init(Key(1)))
    assert not torch.equal(task.init(Key(1))["weight"], task.init(Key(2))["weight"])


def test_drawing_weights_leaves_torchs_generator_where_it_was():
    before = torch.get_rng_state()
    Task(build=lambda: nn.Linear(4, 3)).init(Key(1))
    assert torch.equal(before, torch.get_rng_state())


def test_weights_do_not_depend_on_the_thread_that_draws_them():
    task = Task(build=lambda: nn.Linear(40, 30))
    drawn: dict[int, dict] = {}
    threads = [
        threading.Thread(target=lambda i=i: drawn.update({i: task.init(Key(i))})) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        assert_same(drawn[i], task.init(Key(i)))


def test_a_state_is_parameters_and_saved_buffers_but_no_dropout_keys():
    assert set(batch_norm().task.names) - batch_norm().task.parameters == {
        "body.1.running_mean",
        "body.1.running_var",
        "body.1.num_batches_tracked",
    }
    assert dropout().task.buffers == frozenset()


def test_buffers_are_known_also_inside_a_slot():
    task = batch_norm().task
    assert task.is_buffer("local/body.1.running_mean")
    assert not task.is_buffer("local/body.1.weight")
    assert set(task.trainable(task.init(Key(0)))) == task.parameters


@pytest.mark.parametrize(
    ("loss", "outputs", "y", "expected"),
    [
        ("cross_entropy", [[0.0, 0.0]], [1], np.log(2)),
        ("binary_cross_entropy", [[0.0]], [1], np.log(2)),
        ("binary_cross_entropy", [[2.0]], [0], np.log1p(np.exp(2))),
        ("mse", [[3.0]], [1.0], 4.0),
        ("mse", [[3.0, 0.0]], [[1.0, 0.0]], 2.0),
        ("mae", [[3.0]], [1.0], 2.0),
    ],
)
def test_named_losses_are_what_they_say(loss, outputs, y, expected):
    task = Task(build=nn.Identity, loss=loss)
    assert task.loss({}, batch(outputs, y)).value.item() == pytest.approx(expected, abs=1e-6)


def test_sequences_are_scored_at_every_position():
    task = Task(build=nn.Identity)
    scores = torch.tensor([[[9.0, 0.0], [0.0, 0.0]]])  # [batch, time, class]
    expected = (np.log1p(np.exp(-9)) + np.log(2)) / 2
    came = task.loss({}, batch(scores, [[0, 1]])).value.item()
    assert came == pytest.approx(expected, abs=1e-6)


def test_weight_zero_examples_do_not_enter_the_loss():
    task = Task(build=lambda: nn.Linear(4, 3))
    state = task.init(Key(0))
    few = task.loss(state, batch(X[:2], Y[:2]))
    padded = task.loss(state, batch(X[:4], Y[:4], weight=[1.0, 1.0, 0.0, 0.0]))
    assert padded.value.item() == pytest.approx(few.value.item(), abs=1e-7)
    assert task.loss(state, batch(X[:2], Y[:2], weight=[0.0, 0.0])).value.item() == 0


def test_a_loss_by_callable_gives_one_value_per_example():
    task = Task(build=nn.Identity, loss=lambda out, y: (out[:, 0] - y).abs(), kind="values")
    assert task.loss({}, batch([[1.0], [5.0]], [0.0, 0.0])).value.item() == 3


def test_a_penalty_is_added_and_a_factor_multiplied_without_losing_the_buffers():
    loss = Loss(torch.tensor(2.0), {"mean": torch.ones(1)})
    for changed, expected in ((loss + 1, 3), (1 + loss, 3), (loss * 4, 8), (4 * loss, 8)):
        assert changed.value.item() == expected
        assert changed.buffers is loss.buffers


def test_the_loss_writes_its_statistics_into_copies():
    task = batch_norm().task
    state = task.init(Key(0))
    before = {k: v.clone() for k, v in state.items()}
    loss = task.loss(state, batch(X, Y))
    assert_same(before, state)
    assert loss.buffers["body.1.num_batches_tracked"].item() == 1
    assert not torch.equal(loss.buffers["body.1.running_mean"], state["body.1.running_mean"])


def test_evaluation_touches_no_statistics_and_does_not_see_the_other_examples():
    task = batch_norm().task
    state = task.init(Key(0))
    before = {k: v.clone() for k, v in state.items()}
    together = task.predict(state, torch.tensor(X))
    alone = torch.cat([task.predict(state, torch.tensor(X[i : i + 1])) for i in range(6)])
    torch.testing.assert_close(together, alone)
    assert_same(before, state)


def test_one_example_is_normalised_by_the_running_statistics():
    task = batch_norm().task
    state = task.init(Key(0))
    loss = task.loss(state, batch(X[:1], Y[:1]))
    expected = task.evaluation_loss(state, batch(X[:1], Y[:1]))
    assert loss.value.item() == pytest.approx(expected.item(), abs=1e-7)
    assert_same(loss.buffers, {k: state[k] for k in task.buffers})


def test_probabilities_come_from_scores_and_values_stay_values():
    x = torch.tensor([[1.0, -1.0]])
    assert Task(build=nn.Identity).predict({}, x).sum().item() == pytest.approx(1)
    binary = Task(build=nn.Identity, loss="binary_cross_entropy")
    torch.testing.assert_close(binary.predict({}, torch.zeros(2, 1)), torch.full((2, 2), 0.5))
    assert torch.equal(Task(build=nn.Identity, loss="mse").predict({}, x), x)


def test_features_are_the_input_of_a_module_per_example():
    task = motet.testing.ragged().task
    state = task.init(Key(0))
    seen = task.features(state, torch.tensor(X), "head")
    expected = nn.functional.linear(seen, state["head.weight"], state["head.bias"])
    torch.testing.assert_close(expected, task.outputs(state, torch.tensor(X)))
    assert seen.shape == (6, 5)


def test_a_state_with_a_missing_part_is_refused_instead_of_filled():
    task = motet.testing.ragged().task
    body = {k: v for k, v in task.init(Key(0)).items() if k.startswith("body")}
    for use in (task.outputs, lambda s, x: task.features(s, x, "head")):
        with pytest.raises(StructureError, match=r"head\.weight.*are missing"):
            use(body, torch.tensor(X))


def test_double_precision_networks_keep_their_type():
    task = Task(build=lambda: nn.Linear(4, 3).double())
    state = task.init(Key(0))
    loss = task.loss(
        state, Batch(torch.tensor(X).double(), torch.tensor(Y), torch.ones(6), torch.tensor(0))
    )
    assert loss.value.dtype == torch.float64


def test_merging_takes_numbers_arrays_and_tensors_by_name():
    task = Task(build=lambda: nn.Linear(2, 1))
    merged = task.merge(task.init(Key(0)), {"weight": [[1, 2]], "bias": np.array([3.0])})
    assert_same(merged, {"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([3.0])})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"wieght": [[1.0, 2.0]]}, r"init= names \['wieght'\].*it has \['bias', 'weight'\]"),
        ({"weight": [1.0]}, r"weight has shape \(1, 2\), but \(1,\) was handed over"),
    ],
)
def test_initial_values_that_do_not_fit_are_refused(given, sentence):
    task = Task(build=lambda: nn.Linear(2, 1))
    with pytest.raises(StructureError, match=sentence):
        task.merge(task.init(Key(0)), given)


def test_an_unknown_loss_is_refused_with_the_nearest_name():
    with pytest.raises(RequestError, match='did you mean "cross_entropy"'):
        Task(build=nn.Identity, loss="crossentropy")


def test_statistics_that_count_in_python_are_refused_at_once():
    with pytest.raises(CapabilityError, match=r"momentum=None.*give it a momentum"):
        Task(build=lambda: nn.BatchNorm1d(3, momentum=None))


def test_tied_weights_are_one_parameter_in_both_places():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4, bias=False)
            self.outer = nn.Linear(4, 4, bias=False)
            self.outer.weight = self.inner.weight

        def forward(self, x):
            return self.outer(self.inner(x))

    task = Task(build=Tied)
    state = {"inner.weight": 2 * torch.eye(4)}
    assert task.names == ("inner.weight",)
    torch.testing.assert_close(task.outputs(state, torch.tensor(X)), 4 * torch.tensor(X))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: 3, "must return an nn.Module, got an object of type int"),
        (lambda: nn.Linear, "must return an nn.Module, got the class Linear"),
        (nn.Linear(2, 2), "Write build=lambda: MyNetwork"),
        (lambda: nn.Sequential(nn.LazyLinear(2)), '"0.weight" belongs to a lazy layer'),
        (lambda: nn.Linear(2, 2, dtype=torch.cfloat), '"weight" holds complex numbers'),
    ],
)
def test_what_is_no_trainable_network_is_refused_with_the_remedy(build, sentence):
    with pytest.raises(StructureError, match=re.escape(sentence)):
        Task(build=build)


def test_a_lazy_network_that_has_seen_an_input_is_an_ordinary_one():
    def build() -> nn.Module:
        network = nn.Sequential(nn.LazyLinear(2))
        network(torch.zeros(1, 3))
        return network

    assert Task(build=build).init(Key(0))["0.weight"].shape == (2, 3)
