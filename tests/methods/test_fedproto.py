"""FedProto: prototypes instead of weights."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import Local
from motet._core import tree
from motet.errors import CapabilityError, RequestError
from motet.methods._fedproto import FedProto
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
def test_without_a_pull_it_is_local(backend):
    world = ragged()
    one, local = (run(m, world, backend, 2, cohort=3) for m in (FedProto(lam=0.0), Local()))
    for client in world.data.clients:
        assert_close(one.clients[client], local.clients[client], rtol=0, atol=1e-7)


def test_the_pull_changes_the_second_round_and_not_the_first():
    world = ragged()
    for rounds, differs in ((1, False), (2, True)):
        one, local = (run(m, world, rounds=rounds) for m in (FedProto(lam=5.0), Local()))
        apart = (one.clients["many"]["head.weight"] - local.clients["many"]["head.weight"]).abs()
        assert (apart.max() > 1e-4) == differs


@BOTH
def test_prototypes_are_means_over_all_examples_of_all_clients(backend):
    world = ragged()
    done = run(FedProto(), world, backend, 1)
    z, y = [], []
    for client in world.data.clients:
        x, labels = world.data.examples(client, "train")
        z.append(world.task.features(done.clients[client], x, "head"))
        y.append(labels)
    z, y = torch.cat(z), torch.cat(y)
    for label in range(3):
        assert_close(done.server.means[label], z[y == label].mean(0), rtol=0, atol=1e-5)
        assert done.server.counts[label].item() == pytest.approx(float((y == label).sum()))


def test_only_prototypes_cross_the_network():
    world = ragged()
    (done,) = motet.rounds(FedProto(), world.task, world.data, rounds=1)
    assert done.bytes_up == len(done.cohort) * 4 * (3 * 5 + 3)
    assert tree.count_bytes(done.server) == 4 * (3 * 5 + 3)


@BOTH
def test_the_nearest_prototype_decides_or_the_head_if_asked(backend):
    world = ragged()
    near, head = (run(FedProto(inference=i), world, backend, 2) for i in ("prototype", "head"))
    x = world.data.examples("many", "test").x
    own = near.clients["many"]
    z = world.task.features(own, x, "head")
    nearest = torch.cdist(z, near.server.means).argmin(1)
    assert (near.predict("many", x).argmax(1) == nearest).all()
    assert_close(head.predict("many", x), world.task.predict(head.clients["many"], x))
    assert_close(near.predict("many", x).sum(1), torch.ones(len(x)))


def test_before_the_first_round_the_head_answers():
    world = ragged()
    done = run(FedProto(adapt_epochs=0), world, rounds=0)
    x = world.data.examples("many", "test").x
    assert_close(done.predict("many", x), world.task.predict(done.clients["many"], x))


def test_what_has_no_classes_is_refused():
    with pytest.raises(CapabilityError, match="classification"):
        run(FedProto(), quadratic({"a": [1.0]}), rounds=0)
    with pytest.raises(RequestError, match="head"):
        FedProto(inference="tail")
    with pytest.raises(RequestError, match="0 or more"):
        FedProto(lam=-1)
    assert "Local" in run(FedProto(lam=0.0), ragged(), rounds=0).warnings[0]
