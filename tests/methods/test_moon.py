"""MOON against arithmetic and FedAvg, and what it remembers."""

from __future__ import annotations

import math

import pytest
import torch
from arithmetic import BACKENDS, BOWL, NORMED, bowls, classes, differ, finish, uploads
from toys import assert_close, assert_same

import motet
from motet import FedAvg, Key, Sgd
from motet._core import tree
from motet.errors import RequestError, SelectorError
from motet.methods._moon import Contrasted, Moon
from motet.task import Batch


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Two(torch.nn.Module):
    """Two coordinates turned into two, and a head."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 2, bias=False)
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.body(x))


TWO = motet.Task(Two)
SETTINGS = {"epochs": 2, "batch_size": 4}


def turned(state, matrix):
    return state | {"body.weight": torch.tensor(matrix)}


def batch_of(x, weight):
    x = torch.tensor(x)
    zero = torch.zeros(len(x), dtype=torch.int64)
    return Batch(x, zero, torch.tensor(weight), torch.tensor(0))


def cosine(a, b):
    return sum(p * q for p, q in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def test_the_contrast_is_the_papers_formula():
    """z, z_glob, z_prev of two examples by hand; a third one is padding."""
    state = TWO.init(Key(0))
    now, received, last = (
        turned(state, m)
        for m in ([[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]])
    )
    batch = batch_of([[1.0, 2.0], [3.0, -1.0], [9.0, 9.0]], [1.0, 1.0, 0.0])
    came = Contrasted(TWO, "head", 2.0, 0.5)(now, batch, received, last).value
    terms = []
    for z, near, far in (((1, 4), (3, 2), (2, -1)), ((3, -2), (2, -1), (-1, -3))):
        towards, away = math.exp(cosine(z, near) / 0.5), math.exp(cosine(z, far) / 0.5)
        terms.append(-math.log(towards / (towards + away)))
    expected = float(TWO.loss(now, batch).value) + 2.0 * sum(terms) / 2
    assert float(came) == pytest.approx(expected, abs=1e-5)


def test_the_representation_is_the_one_that_the_loss_was_made_of():
    """In training mode: normalised by the batch, with the statistics moved once."""
    state, (x, y) = NORMED.init(Key(0)), classes((6,)).examples("c0", "train")
    batch = Batch(x, y, torch.ones(6), torch.tensor(0))
    loss, z = NORMED.loss_and_features(state, batch, "head")
    plain = NORMED.loss(state, batch)
    assert torch.equal(loss.value, plain.value)
    assert_same(loss.buffers, plain.buffers)
    hidden = torch.nn.functional.batch_norm(
        x @ state["body.0.weight"].T,
        None,
        None,
        state["body.1.weight"],
        state["body.1.bias"],
        training=True,
    )
    torch.testing.assert_close(z, hidden.tanh())


def test_without_the_contrast_it_is_fedavg_to_the_last_bit(backend):
    run = finish(Moon(mu=0.0, **SETTINGS), NORMED, classes(), backend, rounds=3)
    assert_same(run.server, finish(FedAvg(**SETTINGS), NORMED, classes(), backend, rounds=3).server)


def test_a_clients_first_round_is_fedavgs_also_when_it_comes_late(backend):
    """z_prev is z_glob then, not what the initial model would make of it."""
    run = finish(Moon(mu=5.0, **SETTINGS), NORMED, classes(), backend, rounds=2, cohort=2)
    newcomers = [c for c in run.clients if not bool(run.clients[c]["seen"])]
    assert newcomers
    init = {"init": run.server, "backend": backend}
    avg = finish(FedAvg(**SETTINGS), NORMED, classes(), rounds=0, **init)
    avg.rounds_done = run.rounds_done  # the same batches
    for client in newcomers:
        came = run.personal(client, point="after_local")
        assert_close(came, avg.personal(client, point="after_local"), 1e-6)


def test_the_default_is_not_fedavg(backend):
    run = finish(Moon(**SETTINGS), NORMED, classes(), backend, rounds=2)
    assert differ(
        run.server, finish(FedAvg(**SETTINGS), NORMED, classes(), backend, rounds=2).server
    )


@pytest.mark.parametrize("knob", [{"mu": 3.0}, {"tau": 2.0}, {"features": "body.1"}], ids=str)
def test_every_knob_changes_the_second_round(knob, backend):
    plain = finish(Moon(**SETTINGS), NORMED, classes(), backend, rounds=2)
    turned_knob = finish(Moon(**SETTINGS, **knob), NORMED, classes(), backend, rounds=2)
    assert differ(plain.server, turned_knob.server)


def test_a_client_moves_towards_the_global_representation_and_off_its_last():
    data = classes((12, 9))
    pulled, free = (
        finish(Moon(mu=mu, epochs=8, batch_size=None, optimizer=Sgd(lr=0.3)), NORMED, data)
        for mu in (5.0, 0.0)
    )
    x = data.examples("c0", "train").x

    def likeness(run):
        z, near, far = (
            NORMED.features(model, x, "head")
            for model in (
                run.personal("c0", point="after_local"),
                pulled.server,
                tree.slot("previous", pulled.clients["c0"]),
            )
        )
        compare = torch.nn.functional.cosine_similarity
        return float((compare(z, near) - compare(z, far)).mean())

    assert likeness(pulled) > likeness(free) + 0.01


def test_a_client_remembers_the_model_it_sent_last(backend):
    sent = uploads(Moon(**SETTINGS), NORMED, classes(), backend=backend)
    run = finish(Moon(**SETTINGS), NORMED, classes(), backend, rounds=1)
    for client in run.clients:
        assert_close(tree.slot("previous", run.clients[client]), sent[client], 1e-6)
        assert bool(run.clients[client]["seen"])
    run.cohort = 1
    before, present = dict(run.clients), run.advance().cohort
    for client in before.keys() - set(present):
        assert_same(before[client], run.clients[client])


def test_nothing_but_the_model_travels():
    moon, avg = (finish(m, NORMED, classes(), rounds=0) for m in (Moon(), FedAvg()))
    first, second = moon.advance(), avg.advance()
    assert (first.bytes_down, first.bytes_up) == (second.bytes_down, second.bytes_up)
    for point in ("after_broadcast", "after_local", "after_adapt"):
        assert set(moon.personal("c0", point=point)) == set(NORMED.names)


def test_a_representation_of_zeros_has_a_gradient():
    """A cosine with nothing is 0, not NaN: units that are all dead must not end the run."""
    state = turned(TWO.init(Key(0)), [[0.0, 0.0], [0.0, 0.0]])
    batch = batch_of([[1.0, 2.0]], [1.0])
    loss = Contrasted(TWO, "head", 1.0, 0.5)
    slope = torch.func.grad(lambda s: loss(s, batch, state, state).value)(state)
    assert all(leaf.isfinite().all() for leaf in slope.values())


def test_contrasts_that_mean_nothing_are_alarms():
    def warnings(task, data, **options):
        return finish(Moon(**options), task, data, rounds=0).warnings

    assert any("mu=0 is fedavg" in w for w in warnings(NORMED, classes(), mu=0.0))
    assert any("data themselves" in w for w in warnings(NORMED, classes(), features="body.0"))
    assert any("data themselves" in w for w in warnings(BOWL, bowls(a=(1.0, 1.0))))
    assert not warnings(NORMED, classes())


def test_a_module_that_does_not_exist_and_impossible_knobs_are_refused():
    with pytest.raises(SelectorError, match='no module is called "haed"; did you mean "head"'):
        finish(Moon(features="haed"), NORMED, classes(), rounds=0)
    for knobs in ({"mu": -1.0}, {"tau": 0.0}):
        with pytest.raises(RequestError, match="mu= is 0 or more and tau= above 0"):
            Moon(**knobs)
