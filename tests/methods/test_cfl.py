"""CFL: splits by the direction of updates."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Key, Mean, Sgd
from motet.errors import RequestError
from motet.methods._bases.cluster_tree import bipartition, cosines, plant, split
from motet.methods._cfl import CFL
from motet.testing._worlds import TinyNet, quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def sides(groups, size=40):
    """Clients by name; each group has a border between the classes of its own."""

    def draw(client, direction, split):
        rng = Key(0).fold("sides", client, split).numpy()
        x = rng.normal(size=(size, 4)).astype(np.float32)
        return x, (x @ np.asarray(direction, np.float32) > 0).astype(np.int64)

    def everybody(split):
        return {c: draw(c, d, split) for d, members in groups.items() for c in members}

    return motet.data.from_arrays(everybody("train"), everybody("val"), everybody("test"))


OPPOSITE = {(1, 0, 0, 0): ("a1", "b1", "c1"), (-1, 0, 0, 0): ("a2", "b2", "c2")}
EAGER = CFL(warmup=5, settled=0.5, optimizer=Sgd(lr=0.5), batch_size=None, steps=5)


@BOTH
@pytest.mark.parametrize("never", [{"settled": 0.0}, {"restless_above": 1e9}, {"clusters": 1}])
def test_without_a_split_it_is_fedavg_with_equal_weights(backend, never):
    world = ragged()
    fedavg = FedAvg(reduce=Mean(weights="uniform"))
    one = run(CFL(warmup=0, **never), world, backend, 3, cohort=4)
    other = run(fedavg, world, backend, 3, cohort=4)
    root = {name: value[0] for name, value in one.server.models.items()}
    assert_close(root, other.server, rtol=0, atol=1e-6)


@BOTH
def test_two_groups_that_contradict_each_other_are_told_apart(backend):
    data = sides(OPPOSITE)
    *_, last = motet.rounds(EAGER, motet.Task(TinyNet), data, rounds=12, backend=backend)
    clusters = [set(members) for members in last.notes["clusters"].values()]
    for one in clusters:
        assert len({name[1] for name in one}) == 1, "a cluster mixes the two groups"
    assert last.run.evaluate().mean > 0.9
    fedavg = motet.run(FedAvg(optimizer=Sgd(lr=0.5)), motet.Task(TinyNet), data, rounds=12)
    assert fedavg.evaluate().mean < 0.7


def test_the_leaves_are_a_partition_of_all_clients_after_several_splits():
    # Using positions inside the sub-cluster as client ids loses clients at the second split.
    quarters = {
        (1, 0, 0, 0): ("a", "e", "i"),
        (-1, 0, 0, 0): ("b", "f", "j"),
        (0, 1, 0, 0): ("c", "g", "k"),
        (0, -1, 0, 0): ("d", "h", "l"),
    }
    data = sides(quarters)
    *_, last = motet.rounds(EAGER, motet.Task(TinyNet), data, rounds=25)
    members = sorted(name for cluster in last.notes["clusters"].values() for name in cluster)
    assert members == sorted(data.clients)
    assert len(last.notes["clusters"]) >= 3
    groups = [set(names) for names in quarters.values()]
    for cluster in last.notes["clusters"].values():
        assert any(set(cluster) <= group for group in groups)


@BOTH
def test_a_client_is_sent_the_model_of_its_own_cluster(backend):
    data = sides(OPPOSITE)
    done = motet.run(EAGER, motet.Task(TinyNet), data, rounds=12, backend=backend)
    for position, client in enumerate(sorted(data.clients)):
        node = int(done.server.leaf[position])
        own = {name: value[node] for name, value in done.server.models.items()}
        assert_close(done.personal(client), own, rtol=0, atol=0)


@BOTH
def test_a_new_client_walks_down_to_its_own_group(backend):
    data, task = sides(OPPOSITE), motet.Task(TinyNet)
    others = data.select([c for c in data.clients if c != "b2"])
    done = motet.run(EAGER, task, others, rounds=12, backend=backend)
    x, y = data.examples("b2", "train")
    right = (done.adapt(x, y).predict(x).argmax(1) == y).float().mean()
    assert right > 0.85


def test_a_cluster_that_agrees_is_not_split():
    data = sides({(1, 0, 0, 0): ("a", "b", "c", "d")})
    method = CFL(warmup=0, optimizer=Sgd(lr=0.1), batch_size=None, steps=5)
    *_, last = motet.rounds(method, motet.Task(TinyNet), data, rounds=8)
    assert len(last.notes["clusters"]) == 1


def test_pairs_that_are_alike_forbid_a_cut():
    data = sides(OPPOSITE)
    strict = CFL(warmup=5, settled=0.5, alike=-2.0, optimizer=Sgd(lr=0.5), batch_size=None, steps=5)
    *_, last = motet.rounds(strict, motet.Task(TinyNet), data, rounds=12)
    assert len(last.notes["clusters"]) == 1


def test_the_norm_of_an_update_is_over_all_of_it():
    # The largest coordinate instead of the norm makes eps_2 unreachable: a known mistake.
    updates = torch.ones(3, 100, dtype=torch.float64)
    updates[1] *= -1
    method = CFL(settled_below=5.0, restless_above=9.0)
    assert method._wants_to_split(updates)
    assert not CFL(settled_below=5.0, restless_above=11.0)._wants_to_split(updates)


def test_the_cut_follows_the_directions():
    updates = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.0], [-1.0, 0.1]]).double()
    second = bipartition(cosines(updates))
    assert second[0] == second[1] != second[2] == second[3]


def test_children_start_from_their_parents_model_and_the_tree_fills_up():
    grown = plant({"w": torch.tensor([3.0])}, {"w": torch.tensor([3.0])}, clients=4, leaves=2)
    grown.models["w"][0] = 7.0
    after = split(grown, 0, [0, 2], [1, 3])
    assert after.models["w"].tolist() == [[7.0], [7.0], [7.0]]
    assert after.leaf.tolist() == [1, 2, 1, 2]
    assert after.leaves() == [1, 2]
    assert not after.has_room()
    assert grown.leaf.tolist() == [0, 0, 0, 0]


def test_impossible_knobs_are_refused_and_idle_ones_announced():
    with pytest.raises(RequestError, match="1 or more"):
        CFL(clusters=0)
    with pytest.raises(RequestError, match="0 or more"):
        CFL(settled=-1.0)
    world = quadratic({"a": [1.0]})
    assert "FedAvg" in run(CFL(settled=0.0), world, rounds=0).warnings[0]
    assert not run(CFL(), world, rounds=0).warnings
