"""FedFomo as a method: FOMO-1 through both backends, its invariants, its switches, its clients."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import FedFomo, Local, Mean, Sgd, Task
from motet._core import tree
from motet._engine.federation import start
from motet._engine.run_spec import down_for
from motet.data import from_arrays
from motet.errors import RequestError
from motet.methods._fedfomo.exchange import Client
from motet.methods._fedfomo.mixing import distance, first_order_weights, mix, shares
from motet.testing import check_method
from motet.testing._worlds import quadratic


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


# --- FOMO-1: three clients whose models are points in the plane ----------------------------------


class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.theta.expand(len(x), 2)


def half_squared_distance(outputs, y):
    return 0.5 * (outputs - y).square().sum(-1)


POINT = Task(Point, loss=half_squared_distance, kind="values")
HILL = Task(Point, loss=lambda outputs, y: -half_squared_distance(outputs, y), kind="values")
START = {"theta": torch.zeros(2)}
MODELS = {"a": (1.0, 0.0), "b": (0.5, 2.0), "c": (3.0, 4.0)}
PAPER_ROW = (1.5, 0.1819017, -1.1)


def points(targets):
    return {c: (np.zeros((1, 1), np.float32), np.float32([at])) for c, at in targets.items()}


def fomo_1(backend="serial", task=POINT, target=(1.0, 1.0), **fields):
    """Client a before its next update: theta^(t-1) = (0, 0), and everybody's model uploaded."""
    method = FedFomo(**({"models": 3, "explore": 0.0, "steps": 0} | fields))
    targets = points(dict.fromkeys(MODELS, target))
    run = start(method, task, from_arrays(targets, targets), rounds=2, backend=backend)
    bank = {"theta": torch.tensor(list(MODELS.values()))}
    run.server = run.server._replace(models=bank, uploaded=torch.ones(3, dtype=torch.bool))
    for client, theta in MODELS.items():
        run.setting.store.put(client, Client(START, {"theta": torch.tensor(theta)}))
    return run


def updated(run, client="a"):
    """Where a client's next local training starts."""
    run.advance()
    return run.clients[client].previous["theta"]


def assert_digits(came, expected):
    assert_close(came.double(), torch.tensor(expected).double(), rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("norm", "theta"),
    [("l2", (0.8666218, 0.5335130)), ("l1", (0.8846154, 0.4615385)), ("l2sq", (0.925, 0.3))],
)
def test_fomo_1_comes_out_of_both_backends(backend, norm, theta):
    assert_digits(updated(fomo_1(backend, norm=norm)), theta)


@pytest.mark.parametrize(
    ("rule", "row"), [("paper", PAPER_ROW), ("release", (1.2958911, 0.4350693, -2.6309604))]
)
def test_the_affinity_row_of_fomo_1_follows_the_chosen_rule(backend, rule, row):
    run = fomo_1(backend, affinity=rule)
    run.advance()
    assert_close(run.server.affinity[0], torch.tensor(row).double(), rtol=0, atol=1e-5)


def test_where_nothing_helps_a_client_reverts_and_throws_its_training_away(backend):
    assert updated(fomo_1(backend, target=(-1.0, -1.0))).tolist() == [0, 0]


def test_fallback_current_keeps_the_trained_model_instead(backend):
    run = fomo_1(backend, target=(-1.0, -1.0), fallback="current")
    assert updated(run).tolist() == [1, 0]


def test_eq_14_comes_out_of_both_backends(backend):
    run = fomo_1(backend, weighting="leave_one_out")
    assert_digits(updated(run), (0.9076923, 0.3692308))
    assert_digits(run.server.affinity[0], (2.65625, 0.375, -0.59375))


@pytest.mark.parametrize(("fallback", "theta"), [("revert", (1.5, 2.0)), ("current", (1.0, 0.0))])
def test_eq_14_falls_back_to_the_plain_average_or_the_own_model(backend, fallback, theta):
    # Below a hilltop every average that leaves one out is lower than the plain one, at the top.
    run = fomo_1(backend, HILL, (1.5, 2.0), weighting="leave_one_out", fallback=fallback)
    assert_digits(updated(run), theta)
    assert float(run.server.affinity[0, 1:].max()) < 0


def test_the_own_model_is_a_candidate_whatever_its_affinity(backend):
    run = fomo_1(backend, models=2)
    low = torch.tensor([[-9.0, 1.0, 0.0]], dtype=torch.float64).expand(3, 3)
    run.server = run.server._replace(affinity=low)
    note = run.advance().notes
    assert list(note["shares"]["a"]) == ["a", "b"]
    assert note["shares"]["a"]["a"] == pytest.approx(0.7332435, abs=1e-6)


def test_hierarchical_averages_take_part_in_the_mixture_but_not_in_p(backend):
    run = fomo_1(backend, models=1, hierarchical=1)  # the average (1.5, 2), once
    before = run.server.affinity.clone()
    note = run.advance().notes
    gain = (1 - 0.625) / 2.5
    expected = 0.5 / (0.5 + gain)
    assert note["shares"]["a"] == {"a": pytest.approx(expected, abs=1e-6)}
    off_diagonal = ~torch.eye(3, dtype=torch.bool)
    assert torch.equal(run.server.affinity[off_diagonal], before[off_diagonal])


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_alone_there_is_nobody_to_average_and_hierarchical_changes_nothing(backend, groups):
    world = quadratic({"a": [1.0, 4.0, 2.0]})
    plain, grouped = (
        motet.run(
            FedFomo(hierarchical=hierarchical), world.task, world.data, rounds=3, backend=backend
        )
        for hierarchical in (None, groups)
    )
    assert_close(plain.clients["a"], grouped.clients["a"], rtol=0, atol=0)


# --- a world of labels, in two groups -----------------------------------------------------------


NET = Task(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)))
NORMED = Task(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))
GROUP = {f"c{i}": i % 2 for i in range(6)}


def examples(client, split, size, group=None):
    """Labels 0 and 1 in the first group of clients, 2 and 3 in the second."""
    rng = np.random.default_rng([int(client[1:]), ["train", "val", "test"].index(split)])
    y = rng.integers(0, 2, size) + 2 * (GROUP[client] if group is None else group)
    x = rng.normal(size=(size, 6)).astype(np.float32)
    x[np.arange(size), y] += 1.5
    return x, y


def splits(val_size=12):
    return [
        {client: examples(client, split, size) for client in GROUP}
        for split, size in (("train", 15), ("val", val_size), ("test", 10))
    ]


def world(**changed):
    train, val, test = splits()
    return from_arrays(train, **({"val": val, "test": test} | changed), classes=4)


def fomo(**fields):
    defaults = {"models": 3, "epochs": 2, "batch_size": 5, "optimizer": Sgd(lr=0.1)}
    return FedFomo(**(defaults | fields))


def played(method=None, rounds=3, task=NET, data=None, **settings):
    """Play some rounds; return the run and the rounds' notes."""
    data = world() if data is None else data
    run = start(method or fomo(), task, data, rounds=rounds, **settings)
    return run, [run.advance().notes for _ in range(rounds)]


def next_downloads(run):
    info = run.setting.info(run.rounds_done, tuple(run.clients))
    return run.setting.method.broadcast(run.server, info)


def client_update(run, client, down=None, kept=None, **data):
    """Call `client_update` as the serial backend would."""
    setting = run.setting
    down = down_for(next_downloads(run), client) if down is None else down
    drawn = setting.data(client, setting.method.plans(), run.rounds_done) | data
    kept = setting.client(client) if kept is None else kept
    return setting.method.client_update(down, kept, drawn, setting.task)


def flat(state):
    return torch.cat([leaf.double().flatten() for leaf in state.values()])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"weighting": "leave_one_out"},
        {"hierarchical": 2},
        {"norm": "l1", "fallback": "current"},
    ],
)
@pytest.mark.parametrize("task", [NET, NORMED], ids=["plain", "batch norm"])
def test_both_backends_agree(fields, task):
    one, notes = played(fomo(**fields), task=task, cohort=0.5, backend="serial")
    other, same = played(fomo(**fields), task=task, cohort=0.5, backend="vectorized", chunk_size=2)
    assert_close(one.server, other.server, rtol=1e-4, atol=1e-5)
    assert_close(notes, same, rtol=1e-3, atol=1e-4)
    assert one.evaluate().mean == pytest.approx(other.evaluate().mean)


def test_a_client_keeps_its_model_before_and_after_local_training(backend):
    run, _ = played(rounds=1, backend=backend)
    kept = run.clients["c0"]
    assert_close(kept.previous, run.setting.initial)
    assert torch.equal(flat(kept.current), flat(tree.row(run.server.models, 0)))
    assert not torch.equal(flat(kept.current), flat(kept.previous))


def test_the_first_round_is_local_training_from_the_common_model(backend):
    run, _ = played(rounds=1, backend=backend)
    alone = start(Local(epochs=2, batch_size=5), NET, world(), rounds=1, backend=backend)
    alone.advance()
    for client in GROUP:
        assert_close(run.clients[client].current, alone.clients[client])


def test_evaluation_sees_the_model_that_the_next_local_training_starts_from(backend):
    run, _ = played(fomo(explore=0.5), rounds=2, backend=backend)
    served = {client: run.personal(client) for client in GROUP}
    run.advance()
    for client in GROUP:
        assert_close(served[client], run.clients[client].previous)


def test_after_local_is_the_uploaded_model_and_after_broadcast_the_one_before_the_update():
    run, _ = played(rounds=2)
    up, _ = client_update(run, "c0")
    assert_close(run.personal("c0", point="after_local"), up.model)
    assert_close(run.personal("c0", point="after_broadcast"), run.clients["c0"].current)


# --- relation to Local ----------------------------------------------------------------------------


def val_loss(run, state, client):
    x, y = run.setting.federation.examples(client, "val")
    return float(nn.functional.cross_entropy(NET.outputs(state, x), y))


def test_alone_and_improving_fedfomo_is_local_training(backend):
    own_val = world(val={c: examples(c, "train", 15) for c in GROUP})
    settings = {"rounds": 3, "data": own_val, "backend": backend}
    run, _ = played(fomo(models=1, optimizer=Sgd(lr=0.02)), **settings)
    alone = start(
        Local(epochs=2, batch_size=5, optimizer=Sgd(lr=0.02), schedule=fomo().schedule),
        NET,
        own_val,
        rounds=3,
        backend=backend,
    )
    for _ in range(3):
        alone.advance()
    for client in GROUP:
        assert torch.equal(flat(run.clients[client].current), flat(alone.clients[client]))


def test_alone_fedfomo_rolls_back_every_training_that_made_validation_worse():
    """Relation 7: own model only is Local with roll back. High rates make many trainings bad."""
    run = start(fomo(models=1, optimizer=Sgd(lr=3.0)), NET, world(), rounds=6)
    seen = set()
    for _ in range(6):
        before = {client: run.clients[client] for client in GROUP}
        run.advance()
        for client, old in before.items():
            better = val_loss(run, old.current, client) < val_loss(run, old.previous, client)
            kept = old.current if better else old.previous
            assert torch.equal(flat(run.clients[client].previous), flat(kept))
            seen.add(better)
    assert seen == {True, False}


# --- invariants -----------------------------------------------------------------------------------


def test_the_update_is_eq_3_on_validation_data_for_every_client():
    """The slow, obvious version: losses by hand, distances by hand, mixture by hand."""
    run, _ = played(rounds=2)
    downloads = next_downloads(run)
    for client in GROUP:
        down, kept = downloads[client], run.clients[client]
        models = [kept.current, *down.slots]
        w = first_order_weights(
            torch.tensor(val_loss(run, kept.previous, client)),
            torch.tensor([val_loss(run, model, client) for model in models]),
            torch.stack([distance(model, kept.previous, "l2") for model in models]),
        )
        up, after = client_update(run, client)
        assert_close(up.weights, w, rtol=1e-4, atol=1e-5)
        assert_close(after.previous, mix(models, shares(w), kept.previous), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("models", "weighting"),
    [(1, "candidate"), (2, "candidate"), (4, "candidate"), (2, "leave_one_out")],
)
def test_no_client_ever_evaluates_more_than_m_models(models, weighting):
    method = fomo(models=models, explore=1.0, decay=0.0, weighting=weighting)
    run = start(method, NET, world(), rounds=3, cohort=0.5)
    for _ in range(3):
        sent = next_downloads(run)
        own = 1 if weighting == "candidate" else 0
        assert max(int(down.valid.sum()) + own for down in sent.values()) <= models
        assert max(map(len, run.advance().notes["shares"].values())) <= models


def test_only_models_uploaded_in_earlier_rounds_are_evaluated():
    run = start(fomo(models=6, explore=1.0), NET, world(), rounds=4, cohort=2)
    uploaded = set()
    for _ in range(4):
        done = run.advance()
        for client, evaluated in done.notes["shares"].items():
            assert set(evaluated) - {client} == uploaded - {client}
        uploaded |= set(done.cohort)


def test_p_changes_only_where_a_model_was_evaluated():
    run, _ = played(rounds=1)
    before = run.server.affinity.clone()
    done = run.advance()
    names = sorted(GROUP)
    for i, client in enumerate(names):
        for j, peer in enumerate(names):
            was_evaluated = peer in done.notes["affinity"][client]
            assert (run.server.affinity[i, j] != before[i, j]) == was_evaluated


def test_p_adds_up_raw_weights_also_negative_ones():
    run, _ = played(rounds=2)
    up, _ = client_update(run, "c3")
    expected = run.server.affinity[3].clone()
    expected[up.owners] += up.weights
    assert float(up.weights.min()) < 0
    run.advance()
    assert_close(run.server.affinity[3], expected, rtol=1e-4, atol=1e-5)


def test_p_decides_who_is_sent_and_never_how_much_a_model_counts():
    method = fomo(models=6)  # everybody is sent to everybody
    one, other = (played(method, rounds=2)[0] for _ in range(2))
    other.server = other.server._replace(affinity=-7 * other.server.affinity)
    for run in (one, other):
        run.advance()
    assert_close(one.server.models, other.server.models)


def test_updates_are_simultaneous():
    """A client mixes what peers uploaded before the round, whoever takes part in it and when."""
    run, _ = played(rounds=2)
    bank = tree.clone(run.server.models)
    for client, down in next_downloads(run).items():
        for slot, owner in zip(down.slots, down.owners.tolist(), strict=True):
            assert_close(slot, tree.row(bank, owner), msg=client)
    expected, _ = client_update(run, "c5")
    run.advance()  # c0 to c4 are updated too, before c5 where clients take turns
    assert_close(tree.row(run.server.models, 5), expected.model)


def test_clients_of_a_group_find_each_other(backend):
    run, _ = played(fomo(models=4, explore=0.3), rounds=6, backend=backend)
    group = torch.tensor([GROUP[client] for client in sorted(GROUP)])
    same = (group[:, None] == group) & ~torch.eye(6, dtype=torch.bool)
    other = group[:, None] != group
    within, across = run.server.affinity[same], run.server.affinity[other]
    assert within.mean() > across.mean() + 1
    assert within.median() > 0 > across.median()


def test_a_client_whose_target_has_moved_finds_the_other_group():
    """Trained on labels 0 and 1, judged on 2 and 3: who wants that, federates with the others."""
    data = world().retarget(pairs={"c0": "c1", "c1": "c0"})
    run, notes = played(fomo(models=6), rounds=4, data=data)
    shares_of_c0 = notes[-1]["shares"]["c0"]
    assert sum(share for peer, share in shares_of_c0.items() if GROUP[peer] == 1) > 0.9
    moved = run.evaluate(clients=["c0"]).mean
    alone = start(Local(epochs=2, batch_size=5), NET, data, rounds=4)
    for _ in range(4):
        alone.advance()
    assert moved > alone.evaluate(clients=["c0"]).mean + 0.3


def test_validation_labels_decide_the_choice_but_never_train():
    """R9's other half: the labels that should matter do, in the weights, not in the gradient."""
    _, val, _ = splits()
    flipped = world(val={c: (x, (y + 2) % 4) for c, (x, y) in val.items()})
    notes, changed = (played(data=d, rounds=2)[1] for d in (world(), flipped))
    assert notes[1]["shares"] != changed[1]["shares"]
    first, also_first = (played(data=d, rounds=1)[0] for d in (world(), flipped))
    assert torch.equal(flat(first.server.models), flat(also_first.server.models))


def test_shuffled_test_labels_change_no_choice_and_no_model():
    """R9: who was sent, what it weighed and what came of it are the same to the last bit."""
    _, _, test = splits()
    rng = np.random.default_rng(0)
    shuffled = world(test={c: (x, rng.permutation(3 - y)) for c, (x, y) in test.items()})
    (one, notes), (other, same) = (played(data=d, cohort=0.5) for d in (world(), shuffled))
    assert notes == same
    for client in GROUP:
        assert torch.equal(flat(one.personal(client)), flat(other.personal(client)))
    assert one.evaluate().mean != other.evaluate().mean


def test_the_cohort_changes_from_round_to_round():
    train = {f"c{i:03}": (np.float32([[i] * 6]), np.array([i % 4])) for i in range(100)}
    run = start(fomo(steps=0, epochs=None), NET, from_arrays(train), rounds=100, cohort=0.1)
    cohorts = [run.advance().cohort for _ in range(100)]
    assert {len(cohort) for cohort in cohorts} == {10}
    assert len(set(cohorts)) > 90
    assert set().union(*cohorts) == set(train)


# --- poisoned models, statistics, missing data -------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_poisoned_model_gets_no_share_and_leaves_no_trace(backend, bad):
    run, _ = played(rounds=1, backend=backend, method=fomo(models=6))
    bank = {name: leaf.clone() for name, leaf in run.server.models.items()}
    for leaf in bank.values():
        leaf[2] = bad
    run.server = run.server._replace(models=bank)
    note = run.advance().notes
    for client in set(GROUP) - {"c2"}:
        assert note["shares"][client]["c2"] == 0
        assert torch.isfinite(flat(run.clients[client].current)).all()
    assert torch.isfinite(run.server.affinity).all()


def test_a_diverged_upload_is_not_offered_to_anybody():
    run, _ = played(rounds=1)
    uploads = {client: client_update(run, client)[0] for client in GROUP}
    broken = tree.tree_map(lambda leaf: leaf * float("nan"), uploads["c2"].model)
    uploads["c2"] = uploads["c2"]._replace(model=broken)
    info = run.setting.info(1, tuple(GROUP))
    old, new = run.server, run.setting.method.server_update(run.server, uploads, info, NET)
    assert_close(tree.row(new.models, 2), tree.row(old.models, 2))
    assert_close(tree.row(new.models, 3), uploads["c3"].model)


def test_a_client_that_diverged_goes_back_to_where_it_came_from():
    run, _ = played(rounds=1)
    kept = run.clients["c0"]
    diverged = kept._replace(current=tree.tree_map(lambda leaf: leaf * float("nan"), kept.current))
    down = down_for(next_downloads(run), "c0")
    nobody = down._replace(valid=torch.zeros_like(down.valid))
    _, after = client_update(run, "c0", down=nobody, kept=diverged)
    assert torch.equal(flat(after.previous), flat(kept.previous))


def test_statistics_are_mixed_by_share_and_counters_come_from_the_largest(backend):
    run, _ = played(fomo(steps=0, epochs=None, models=6), rounds=1, task=NORMED, backend=backend)
    generator = torch.Generator().manual_seed(0)

    def noisy(leaf):
        if leaf.is_floating_point():
            return leaf + 0.1 * torch.randn(leaf.shape, generator=generator).abs()
        return torch.arange(10, 16)

    bank = tree.tree_map(noisy, run.server.models)
    run.server = run.server._replace(models=bank)
    note = run.advance().notes["shares"]["c0"]
    assert max(note.values()) > 0
    parts = torch.tensor([note[client] for client in sorted(GROUP)])
    mixed = run.clients["c0"].previous
    assert_close(mixed["1.running_mean"], (parts[:, None] * bank["1.running_mean"]).sum(0))
    assert mixed["1.num_batches_tracked"] == 10 + int(parts.argmax())


def test_distances_ignore_statistics():
    run, _ = played(rounds=1, task=NORMED)
    down, kept = down_for(next_downloads(run), "c0"), run.clients["c0"]
    same = {k: v if NORMED.is_buffer(k) else kept.previous[k] for k, v in kept.current.items()}
    up, _ = client_update(run, "c0", down=down, kept=kept._replace(current=same))
    assert up.weights[0] == 0  # parameters equal to the baseline's: no distance, no weight


def test_judging_models_leaves_their_statistics_untouched():
    run, _ = played(rounds=1, task=NORMED)
    down = down_for(next_downloads(run), "c0")
    before = tree.clone(down)
    client_update(run, "c0", down=down)
    assert all(map(torch.equal, tree.leaves(before), tree.leaves(down)))


def test_a_client_without_validation_data_trains_alone(backend):
    _, val, _ = splits()
    del val["c0"]
    data = world(val=val)
    run, notes = played(rounds=3, data=data, backend=backend)
    alone = start(
        Local(epochs=2, batch_size=5, schedule=fomo().schedule),
        NET,
        data,
        rounds=3,
        backend=backend,
    )
    for _ in range(3):
        alone.advance()
    assert_close(run.clients["c0"].current, alone.clients["c0"])
    assert_close(run.personal("c0"), alone.clients["c0"])
    assert set(notes[-1]["shares"]["c0"].values()) == {0}
    assert run.server.affinity[0].tolist() == [1, 0, 0, 0, 0, 0]


# --- clients that never trained ------------------------------------------------------------------


def test_a_new_client_is_served_from_the_models_that_suit_it(backend):
    run, _ = played(fomo(models=6), rounds=5, backend=backend)
    for group, client in ((0, "c0"), (1, "c1")):
        x, y = examples(client, "train", 12)
        seen = run.adapt(x, y).predict(examples(client, "test", 40)[0])
        right = (seen.argmax(-1).numpy() == examples(client, "test", 40)[1]).mean()
        assert right > 0.8, group


def test_a_new_client_without_epochs_gets_a_mixture_of_helpful_models():
    run, _ = played(fomo(models=6, adapt_epochs=0), rounds=4)
    x, y = examples("c0", "train", 12)
    personal = run.adapt(x, y).personal
    losses = [
        float(
            nn.functional.cross_entropy(NET.outputs(state, torch.as_tensor(x)), torch.as_tensor(y))
        )
        for state in (personal, run.setting.initial)
    ]
    assert losses[0] < 0.7 * losses[1]


def test_a_new_client_changes_nothing_at_the_server():
    run, _ = played(rounds=2)
    before = tree.clone(run.server)
    run.adapt(*examples("c0", "train", 12))
    assert_close(run.server, before)


def test_a_registered_client_that_never_trained_is_served_by_its_validation_data(backend):
    run, _ = played(fomo(models=6), rounds=2, cohort=2, backend=backend)
    absent = [client for client in GROUP if client not in run.setting.store]
    assert absent
    for client in absent:
        served, initial = run.personal(client), run.setting.initial
        assert val_loss(run, served, client) < val_loss(run, initial, client)


# --- what crosses the network, and what is remembered -----------------------------------------


def test_the_download_holds_m_minus_1_models_and_the_upload_one():
    run, _ = played(fomo(models=4), rounds=1)
    model = tree.count_bytes(run.setting.initial)
    down, (up, _) = next_downloads(run)["c0"], client_update(run, "c0")
    extra = 8 + 3 * (8 + 1)  # own row; owner and flag of each slot
    assert tree.count_bytes(down) == 3 * model + extra
    assert tree.count_bytes(up) == model + 4 * (8 + 8)  # owner and weight of each model evaluated


def test_leave_one_out_never_sends_a_single_peers_model():
    run, _ = played(fomo(models=4, weighting="leave_one_out"), rounds=2)
    bank = [flat(tree.row(run.server.models, i)) for i in range(6)]
    for down in next_downloads(run).values():
        for slot in down.slots:
            assert min(float((flat(slot) - model).abs().max()) for model in bank) > 1e-4


def test_notes_are_json_and_bounded_and_the_history_of_p_comes_out_of_them():
    method = fomo()
    run, notes = played(method, rounds=4, cohort=0.5)
    notes = json.loads(json.dumps(notes))
    assert all(len(row) <= 3 for note in notes for row in note["affinity"].values())
    history = method.affinity_history(list(GROUP), notes)
    assert history.shape == (5, 6, 6)
    assert np.array_equal(history[0], np.eye(6))
    assert np.allclose(history[-1], run.server.affinity.numpy())


def test_shares_in_the_notes_sum_to_1_or_0():
    _, notes = played(rounds=4)
    for note in notes:
        for row in note["shares"].values():
            assert sum(row.values()) == pytest.approx(1) or set(row.values()) == {0}


def test_the_gradient_count_leaves_validation_out():
    run = start(fomo(epochs=2), NET, world(), rounds=1)
    assert run.advance().gradients == 2 * 15 * 6


# --- hyperparameters ----------------------------------------------------------------------------


def test_the_defaults_are_the_papers():
    method = FedFomo()
    assert (method.models, method.explore, method.decay) == (5, 0.3, 0.05)
    assert method.optimizer == Sgd(lr=0.1, momentum=0.0, weight_decay=1e-4)
    assert method.plans()["train"].epochs == 5
    assert method.schedule(10, 20) == pytest.approx(0.99**10)
    assert method.plans()["val"].split == "val"


def test_steps_replace_the_default_epochs():
    plan = FedFomo(steps=7).plans()["train"]
    assert (plan.steps, plan.epochs) == (7, None)


def test_as_released_is_the_authors_code():
    method = FedFomo.as_released(groups=3, models=10)
    assert (method.norm, method.affinity, method.hierarchical) == ("l1", "release", 3)
    assert method.models == 10


@pytest.mark.parametrize(
    "fields",
    [{"norm": "l3"}, {"affinity": "raw"}, {"fallback": "keep"}, {"weighting": "eq3"}],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        FedFomo(**fields)


def test_a_mean_of_uploads_is_refused():
    with pytest.raises(RequestError, match="single uploads"):
        FedFomo(reduce=Mean())


def test_pointless_settings_are_warned_about():
    assert "roll back" in FedFomo(models=1).check(NET, list(GROUP))[0]
    assert "groups of one client each" in FedFomo(hierarchical=6).check(NET, list(GROUP))[0]
    assert FedFomo(hierarchical=2).check(NET, list(GROUP)) == []


@pytest.mark.slow
def test_the_authors_rules_keep_the_promises_of_a_method():
    # Their P divides by a sum of weights; where that is near 0, rounding is all that is left.
    stacked = ["serial_equals_vectorized", "chunk_size_changes_nothing"]
    assert check_method(FedFomo.as_released(groups=2, epochs=1), skip=stacked)
