"""Which models FedFomo's server sends: top affinities, exploration, availability, averages."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet._core.keys import Key
from motet.errors import RequestError
from motet.method import RoundInfo
from motet.methods._fedfomo.exchange import NOBODY, Server
from motet.methods._fedfomo.sending import Sending, choose, cluster, exploration

CLIENTS = ("a", "b", "c", "d", "e")
AFFINITY = torch.tensor(
    [
        [1.0, 0.2, 0.9, -0.5, 0.4],
        [0.0, 1.0, 0.0, 0.0, 0.0],
        [0.1, 0.2, 1.0, 0.3, 0.4],
        [0.0, 0.0, 0.0, 1.0, 0.0],
        [5.0, 4.0, 3.0, 2.0, 1.0],
    ],
    dtype=torch.float64,
)


def server(uploaded=CLIENTS, affinity=AFFINITY):
    """A bank where the model of client number n is w = n + 1."""
    return Server(
        models={"w": torch.arange(1.0, 6.0)[:, None]},
        uploaded=torch.tensor([client in uploaded for client in CLIENTS]),
        affinity=affinity,
    )


def info(cohort=CLIENTS, number=0, seed=0):
    return RoundInfo(number, 10, tuple(cohort), CLIENTS, Key(seed).fold("server", number))


def sending(**changes):
    fields = {"models": 3, "explore": 0.0, "decay": 0.05, "weighting": "candidate"}
    return Sending(**(fields | {"hierarchical": None} | changes))


def owners(down):
    return [int(o) for o, valid in zip(down.owners, down.valid, strict=True) if valid]


def test_epsilon_falls_by_steps_and_stays_at_0_from_the_seventh_round():
    chances = [exploration(0.3, 0.05, number) for number in range(8)]
    assert chances == pytest.approx([0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0, 0], abs=1e-12)
    assert chances[6:] == [0, 0]


def test_without_exploration_the_highest_affinities_are_sent():
    down = sending().downloads(server(), info())
    assert owners(down["a"]) == [2, 4]
    assert owners(down["c"]) == [4, 3]
    assert owners(down["e"]) == [0, 1]
    assert [float(slot["w"]) for slot in down["a"].slots] == [3, 5]


def test_the_same_key_sends_the_same_models_and_another_round_may_not():
    rules = sending(explore=1.0, decay=0.0)
    first, again = (rules.downloads(server(), info()) for _ in range(2))
    assert [owners(first[c]) for c in CLIENTS] == [owners(again[c]) for c in CLIENTS]
    others = [rules.downloads(server(), info(number=n))["a"] for n in range(1, 9)]
    assert len({tuple(owners(down)) for down in others}) > 1


def test_what_one_client_gets_depends_on_no_other_client_of_the_cohort():
    rules = sending(explore=0.5)
    together, alone = (rules.downloads(server(), info(cohort)) for cohort in (CLIENTS, ["c"]))
    assert owners(together["c"]) == owners(alone["c"])


def test_clients_draw_from_streams_of_their_own():
    sent = [sending().downloads(server(), info(["x", "y"], number=n)) for n in range(8)]
    assert any(owners(down["x"]) != owners(down["y"]) for down in sent)


def test_equal_affinities_are_not_ordered_by_name():
    row, available = np.zeros(20), np.arange(20)
    chosen = Counter(
        i for seed in range(300) for i in choose(row, available, 4, 0.0, Key(seed).numpy())
    )
    assert set(chosen) == set(range(20))
    assert max(chosen.values()) < 3 * min(chosen.values())


def test_full_exploration_is_uniform():
    row, available = np.linspace(0, 9, 10), np.arange(10)
    chosen = Counter(
        i for seed in range(2000) for i in choose(row, available, 3, 1.0, Key(seed).numpy())
    )
    assert min(chosen.values()) > 520
    assert max(chosen.values()) < 680  # 600 expected, standard deviation 20


def test_exploration_is_decided_slot_by_slot():
    row, available = np.linspace(0, 1, 50), np.arange(50)
    picks = [choose(row, available, 2, 0.5, Key(seed).numpy()) for seed in range(400)]
    greedy = [49, 48]
    mixed = sum((a == 49) != (b in greedy and b != a) for a, b in picks)
    assert 120 < mixed < 280  # one slot greedy and the other random: about half of the time


def test_no_model_is_sent_twice_and_never_the_own_one():
    for seed in range(50):
        down = sending(models=4, explore=0.7).downloads(server(), info(seed=seed))
        for number, client in enumerate(CLIENTS):
            assert len(set(owners(down[client]))) == 3
            assert number not in owners(down[client])


def test_only_uploaded_models_are_sent_and_other_slots_stay_empty():
    down = sending(models=5).downloads(server(uploaded=("b", "d")), info())
    assert sorted(owners(down["a"])) == [1, 3]
    assert owners(down["b"]) == [3]
    assert down["b"].valid.tolist() == [True, False, False, False]
    assert [float(slot["w"]) for slot in down["b"].slots] == [4, 0, 0, 0]
    assert down["b"].owners.tolist() == [3, NOBODY, NOBODY, NOBODY]


def test_downloads_always_have_the_same_shape():
    shapes = {
        tuple(slot["w"].shape for slot in down.slots)
        for uploaded in ((), ("b",), CLIENTS)
        for down in sending(models=4).downloads(server(uploaded=uploaded), info()).values()
    }
    assert shapes == {((1,), (1,), (1,))}


def test_slots_never_outnumber_the_models_there_can_be():
    assert sending(models=5).slots(clients=3) == 2
    assert sending(models=5, weighting="leave_one_out").slots(clients=3) == 3
    assert sending(models=5, hierarchical=2).slots(clients=100) == 4 + 2 + 1


def test_a_stranger_is_sent_any_available_models():
    sent = Counter()
    for seed in range(60):
        down = sending().downloads(server(uploaded=CLIENTS[:4]), info(["stranger"], seed=seed))
        assert down["stranger"].own.tolist() == [NOBODY]
        sent.update(owners(down["stranger"]))
    assert set(sent) == {0, 1, 2, 3}


def test_leave_one_out_sends_averages_of_the_own_model_and_its_peers():
    down = sending(weighting="leave_one_out").downloads(server(), info())["a"]
    assert owners(down) == [0, 2, 4]  # the models 1, 3 and 5, one left out each
    assert [float(slot["w"]) for slot in down.slots] == [4, 3, 2]


def test_leave_one_out_sends_nothing_while_only_one_model_is_there():
    down = sending(weighting="leave_one_out").downloads(server(uploaded=("a",)), info())
    assert not down["a"].valid.any()


def test_clustering_finds_groups_that_like_each_other():
    likes = np.kron(np.eye(3), np.full((4, 4), 5.0))
    labels = cluster(likes, 3, Key(0))
    assert len({tuple(labels[i : i + 4]) for i in (0, 4, 8)}) == 3
    assert all(len(set(labels[i : i + 4])) == 1 for i in (0, 4, 8))


def test_hierarchical_adds_group_averages_and_their_average():
    likes = torch.zeros(5, 5, dtype=torch.float64)
    likes[:2, :2] = likes[2:, 2:] = 9.0
    rules = sending(models=2, hierarchical=2)
    down = rules.downloads(server(affinity=likes), info())["a"]
    averages = [float(s["w"]) for s, o in zip(down.slots, down.owners, strict=True) if o == NOBODY]
    assert sorted(averages) == [1.5, 2.75, 4.0]
    assert [o for o in owners(down) if o != NOBODY] == [1]


def sources(clients, uploaded, seed, **changes):
    """What every client is offered, its own model first, as shares of the clients' models.

    The model of client number n is the n-th unit vector, so a model is what it was made of.
    """
    names = tuple(f"c{number}" for number in range(clients))
    drawn = Key(seed).fold("likes").numpy().normal(0, 2, (clients, clients))
    there = Server({"w": torch.eye(clients)}, torch.tensor(uploaded), torch.tensor(drawn))
    rules = sending(explore=0.3, **changes)
    round_ = RoundInfo(3, 10, (*names, "stranger"), names, Key(seed).fold("server", 3))
    offered = rules.downloads(there, round_)
    assert {len(offered[name].slots) for name in names} == {rules.slots(clients)}
    own = {name: [unit] for name, unit in zip(names, torch.eye(clients), strict=True)}
    return {
        name: own.get(name, [])
        + [slot["w"] for slot, valid in zip(down.slots, down.valid, strict=True) if valid]
        for name, down in offered.items()
    }


FEDERATIONS = st.integers(1, 9).flatmap(
    lambda clients: st.tuples(
        st.just(clients), st.lists(st.booleans(), min_size=clients, max_size=clients)
    )
)


@given(FEDERATIONS, st.integers(1, 6), st.integers(1, 11), st.integers(0, 5))
def test_no_two_candidates_are_made_of_the_same_models(federation, models, groups, seed):
    for offered in sources(*federation, seed, models=models, hierarchical=groups).values():
        for number, one in enumerate(offered):
            assert float(one.sum()) == pytest.approx(1)
            for other in offered[:number]:
                assert float((one - other).abs().max()) > 1e-6


@given(FEDERATIONS, st.integers(1, 6), st.integers(1, 11), st.integers(0, 5))
def test_hierarchical_adds_averages_of_several_clients_and_takes_nothing_away(
    federation, models, groups, seed
):
    plain = sources(*federation, seed, models=models)
    grouped = sources(*federation, seed, models=models, hierarchical=groups)
    several = sum(federation[1]) > 1
    for client, offered in grouped.items():
        singles = [model.tolist() for model in offered if float(model.max()) > 1 - 1e-6]
        assert singles == [model.tolist() for model in plain[client]]
        assert (len(offered) > len(singles)) == several


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"models": 0}, "models= includes the client's own and must be at least"),
        ({"models": 1, "weighting": "leave_one_out"}, "at least 2"),
        ({"explore": 1.5}, "explore= is a chance"),
        ({"decay": -0.1}, "decay= is 0 or more"),
        ({"hierarchical": 0}, "hierarchical= is a number of groups"),
        ({"hierarchical": 2, "weighting": "leave_one_out"}, 'needs weighting="candidate"'),
    ],
)
def test_numbers_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(RequestError, match=sentence):
        sending(**changes)
