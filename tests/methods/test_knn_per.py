"""kNN-Per in a federation: the mini-example, what must hold, and what it must reduce to."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import FedAvg, Sgd
from motet._core.keys import Key
from motet._core.tree import clone, count_bytes
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError, SelectorError, StructureError
from motet.methods._knn_per import method as knn_per
from motet.methods._knn_per.method import KNNPer
from motet.testing._worlds import batch_norm, ragged


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


# ---- Worlds ------------------------------------------------------------------------------------

KEYS = np.float32([[0, 0], [1, 0], [0, 2], [3, 4]])
LABELS = np.array([0, 1, 1, 2])
QUERY = np.float32([[0, 1]])
LOGITS = {"weight": np.zeros((3, 2)), "bias": [2.0, 0.5, -1.0]}  # the same for every input


def knn_1(method, backend, **splits):
    """Mini-example KNN-1: one client stores four points, the model answers (2, .5, -1)."""
    data = from_arrays({"a": (KEYS, LABELS)}, **splits, test={"a": (QUERY, [1])}, classes=3)
    task = motet.Task(lambda: nn.Linear(2, 3))  # its own head: the representation is the input
    return motet.run(method, task, data, rounds=0, init=LOGITS, backend=backend)


def assert_digits(came, expected, digits=6):
    assert_close(came, torch.tensor([expected]), rtol=0, atol=10**-digits)


class Net(nn.Module):
    """A body and a head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x))


TASK = motet.Task(Net)
SIZES = {"a": 40, "b": 25, "c": 9}
QUERIES = torch.from_numpy(Key(0).fold("queries").numpy().normal(size=(11, 4))).float()


def pairs(split, sizes=SIZES, seed=0):
    """Each client names the classes its own way, so that a global model cannot serve all."""

    def draw(shift, client, size):
        rng = Key(seed).fold(client, split).numpy()
        x = rng.normal(size=(size, 4)).astype(np.float32)
        return x, (x[:, :3].argmax(1) + shift) % 3

    return {c: draw(i, c, n) for i, (c, n) in enumerate(sizes.items())}


def world(**changed):
    return from_arrays(**{s: pairs(s) for s in ("train", "val", "test")} | changed, classes=3)


def serve(method, data=None, *, rounds=2, seed=0, backend="serial", **settings):
    data = world() if data is None else data
    return motet.run(method, TASK, data, rounds=rounds, seed=seed, backend=backend, **settings)


def lambdas(run):
    return {client: float(run.personal(client).lam) for client in run.clients}


# ---- KNN-1 through the whole library -----------------------------------------------------------


@pytest.mark.parametrize(
    ("lam", "expected"),
    [
        (0.25, (0.683152, 0.287513, 0.029334)),
        (0.5, (0.580708, 0.399736, 0.019556)),
        (0.75, (0.478263, 0.511959, 0.009778)),
    ],
)
def test_knn_1_predicts_as_printed(lam, expected, backend):
    assert_digits(knn_1(KNNPer(k=3, lam=lam), backend).predict("a", QUERY), expected)


def test_r1_the_default_says_1_at_lambda_0_8_and_the_release_says_0(backend):
    ours = KNNPer(k=3, lam=0.8)
    release = replace(ours, kernel="gauss_dim", interpolate="logits")
    answers = [int(knn_1(m, backend).predict("a", QUERY).argmax()) for m in (ours, release)]
    assert answers == [1, 0]


def test_the_releases_mix_comes_out_as_probabilities_in_the_same_order(backend):
    release = KNNPer(k=3, lam=0.5, kernel="gauss_dim", interpolate="logits")
    mixed = torch.tensor([1.191826, 0.558174, -0.5])
    assert_digits(knn_1(release, backend).predict("a", QUERY), mixed.softmax(-1).tolist())


def test_lambda_is_the_smallest_of_the_grid_that_validation_likes_best(backend):
    # The prediction on (0, 1) flips from 0 to 1 at lambda 0.710758.
    says_1, says_0 = {"a": (QUERY, [1])}, {"a": (QUERY, [0])}
    coarse, fine = KNNPer(k=3), KNNPer(k=3, grid=101)
    assert lambdas(knn_1(coarse, backend, val=says_1)) == pytest.approx({"a": 0.8})
    assert lambdas(knn_1(fine, backend, val=says_1)) == pytest.approx({"a": 0.72})
    assert lambdas(knn_1(coarse, backend, val=says_0)) == {"a": 0}


# ---- Invariants of the method ------------------------------------------------------------------


def test_training_is_fedavg_to_the_last_bit(backend):
    shared = {"optimizer": Sgd(lr=0.2, momentum=0.5), "epochs": 2, "batch_size": 8}
    ours, theirs = (
        serve(method(**shared), backend=backend, cohort=2, seed=3) for method in (KNNPer, FedAvg)
    )
    assert ours.server.keys() == theirs.server.keys()
    assert all(torch.equal(ours.server[name], theirs.server[name]) for name in theirs.server)


@pytest.mark.parametrize("alone", [{"lam": 0.0}, {"capacity": 0}, {"capacity": 0, "lam": 1.0}])
def test_without_neighbours_it_is_its_global_model_to_the_last_bit(alone, backend):
    ours, theirs = (serve(method, backend=backend) for method in (KNNPer(**alone), FedAvg()))
    for client in SIZES:
        assert torch.equal(ours.predict(client, QUERIES), theirs.predict(client, QUERIES))


@pytest.mark.parametrize("pointless", [KNNPer(lam=0.0), KNNPer(capacity=0)])
def test_a_knob_at_its_neutral_value_warns_that_this_is_fedavg(pointless):
    assert any("fedavg" in warning for warning in serve(pointless, rounds=0).warnings)
    assert not serve(KNNPer(), rounds=0).warnings


def test_before_adaptation_and_after_local_training_only_the_network_speaks(backend):
    ours, theirs = (serve(method, backend=backend) for method in (KNNPer(lam=1.0), FedAvg()))
    for point in ("after_broadcast", "after_local"):
        came, expected = (run.predict("a", QUERIES, point) for run in (ours, theirs))
        assert_close(came, expected)


def test_a_stored_example_gets_its_own_label_for_certain(backend):
    run = serve(KNNPer(lam=1.0, k=1), backend=backend)
    x, y = pairs("train")["b"]
    assert_close(run.predict("b", x), torch.eye(3)[y])


def test_classes_a_client_never_saw_get_nothing_from_its_neighbours(backend):
    x, _ = pairs("train")["a"]
    only_two = pairs("train") | {"a": (x, np.arange(len(x)) % 2)}
    run = serve(KNNPer(lam=1.0), world(train=only_two), backend=backend)
    predicted = run.predict("a", QUERIES)
    assert (predicted[:, 2] == 0).all()
    assert_close(predicted.sum(-1), torch.ones(11))


def test_a_store_with_room_for_all_is_the_same_for_every_seed():
    trained = serve(KNNPer(), rounds=1).server
    stores = [
        serve(KNNPer(capacity=c), rounds=0, init=trained, seed=seed).personal("b").memory
        for seed in (0, 1)
        for c in (None, 25, 1000, 1.0)
    ]
    for store in stores[1:]:
        assert all(map(torch.equal, store, stores[0]))


def test_a_small_store_is_a_subset_without_repetition_drawn_by_the_seed(backend):
    numbered = {"a": (np.float32(np.eye(40, 4)), np.arange(40))}  # labels tell who was stored
    data = from_arrays(numbered, classes=40)
    task = motet.Task(lambda: nn.Linear(4, 40))

    def stored(seed):
        method = KNNPer(capacity=10, lam=0.5)
        run = motet.run(method, task, data, rounds=0, seed=seed, backend=backend)
        return tuple(run.personal("a").memory.labels.tolist())

    draws = [stored(seed) for seed in (0, 1, 2, 0)]
    assert all(len(set(draw)) == 10 for draw in draws)
    assert len(set(draws)) == 3
    assert draws[3] == draws[0]


@pytest.mark.parametrize(("capacity", "stored"), [(0.4, (16, 10, 4)), (12, (12, 12, 9))])
def test_capacity_is_a_count_or_a_fraction_of_what_the_client_has(capacity, stored, backend):
    run = serve(KNNPer(capacity=capacity, lam=0.5), rounds=0, backend=backend)
    real = [int(run.personal(client).memory.real.sum()) for client in SIZES]
    assert tuple(real) == stored


def test_the_store_does_not_change_from_round_to_round():
    state = TASK.init(Key(5))
    method = KNNPer(capacity=5, optimizer=Sgd(lr=0.0))  # nothing is learnt, only rounds pass
    runs = [serve(method, rounds=rounds, init=state) for rounds in (0, 3)]
    came, expected = (run.personal("a").memory for run in runs)
    assert_close(came, expected)


def test_embeddings_are_those_of_evaluation_mode_and_leave_buffers_alone(backend):
    task, data = batch_norm().task, batch_norm().data
    run = motet.run(KNNPer(), task, data, rounds=1, backend=backend)
    before = clone(run.server)
    first, second = (run.personal("many").memory for _ in range(2))
    assert all(map(torch.equal, first, second))
    x = data.examples("many", "train").x
    expected = task.features(run.server, x, "head")
    assert_close(first.keys, expected)
    assert all(torch.equal(run.server[name], before[name]) for name in before)


def test_r11_evaluating_twice_gives_the_same(backend):
    run = serve(KNNPer(capacity=8), backend=backend)
    assert run.evaluate() == run.evaluate()


def test_r9_selection_never_reads_test_labels(backend):
    def shuffled(split):
        mixed = Key(1).numpy()
        return {c: (x, mixed.permutation(y)) for c, (x, y) in pairs(split).items()}

    chosen = lambdas(serve(KNNPer(), backend=backend))
    assert lambdas(serve(KNNPer(), world(test=shuffled("test")), backend=backend)) == chosen
    # The check can fail: validation labels do matter.
    assert lambdas(serve(KNNPer(), world(val=shuffled("val")), backend=backend)) != chosen


def test_one_clients_store_is_nothing_to_another(backend):
    state = serve(KNNPer(), rounds=1).server
    x, y = pairs("train")["b"]
    data = world(train=pairs("train") | {"b": (x + 1, (y + 1) % 3)})
    runs = [serve(KNNPer(), d, rounds=0, init=state, backend=backend) for d in (world(), data)]
    came, expected = (run.predict("a", QUERIES) for run in runs)
    assert torch.equal(came, expected)
    assert not torch.equal(*(run.predict("b", QUERIES) for run in runs))


@pytest.mark.parametrize(
    "method",
    [
        KNNPer(k=50),
        KNNPer(capacity=3, kernel="gauss_dim"),
        KNNPer(interpolate="logits"),
        KNNPer(prototypes=4, prototype_steps=3),
    ],
    ids=["k", "capacity", "logits", "prototypes"],
)
def test_r12_odd_clients_are_served_without_nan(method, backend):
    odd = ragged()  # one example, one class, no validation data, ...
    run = motet.run(method, odd.task, odd.data, rounds=2, backend=backend)
    for client in odd.data.clients:
        predicted = run.predict(client, QUERIES)
        assert predicted.isfinite().all()
        assert_close(predicted.sum(-1), torch.ones(11))
        assert 0 <= float(run.personal(client).lam) <= 1


def test_without_validation_data_a_client_judges_by_leaving_one_out(backend):
    # On a line with alternating labels the nearest other point is always wrong: 0 is the best
    # lambda. Were each point its own neighbour, lambda 1 would look perfect.
    x = np.float32([[0.0], [1.0], [2.1], [3.3]])
    data = from_arrays({"a": (x, np.array([0, 1, 0, 1]))}, classes=2)
    task = motet.Task(lambda: nn.Linear(1, 2))
    init = {"weight": np.zeros((2, 1)), "bias": [1.0, 0.0]}
    run = motet.run(KNNPer(k=1), task, data, rounds=0, init=init, backend=backend)
    assert lambdas(run) == {"a": 0}


def test_clients_with_and_without_validation_data_are_stacked_together():
    val = {c: pair for c, pair in pairs("val").items() if c != "b"}
    runs = [serve(KNNPer(), world(val=val), backend=b) for b in ("serial", "vectorized")]
    for client in SIZES:
        came, expected = (run.predict(client, QUERIES) for run in runs)
        assert_close(came, expected)
    scored, expected = (run.evaluate() for run in runs)  # all clients in one stack
    assert_close(torch.tensor(scored.values), torch.tensor(expected.values))


def test_looking_at_examples_in_parts_changes_nothing(monkeypatch):
    run = serve(KNNPer())
    whole = run.predict("a", QUERIES)
    monkeypatch.setattr(knn_per, "LOOK_AT_ONCE", 3)
    assert_close(run.predict("a", QUERIES), whole)


# ---- What crosses the network ------------------------------------------------------------------


class Spy(KNNPer):
    """kNN-Per that remembers everything that went down or up, or stayed."""

    def client_update(self, down, client, data, task):
        up, kept = super().client_update(down, client, data, task)
        SEEN.append((down, up, kept))
        return up, kept


SEEN: list = []


def test_r7_neither_datastore_nor_lambda_ever_travels():
    SEEN.clear()
    run = serve(Spy(lam=None), trial=False)
    run.evaluate()
    assert len(SEEN) == 6
    for down, up, kept in SEEN:
        assert down.keys() == up.keys() == set(TASK.names)
        assert kept == {}
    assert run.server.keys() == set(TASK.names)


def test_r7_it_costs_the_bytes_of_fedavg(backend):
    ours, theirs = (
        next(motet.rounds(m, TASK, world(), rounds=1, backend=backend))
        for m in (KNNPer(), FedAvg())
    )
    assert (ours.bytes_down, ours.bytes_up) == (theirs.bytes_down, theirs.bytes_up)
    assert ours.bytes_up == 3 * count_bytes(TASK.init(Key(0)))


# ---- Representations ---------------------------------------------------------------------------


class Anonymous(nn.Sequential):
    """A network without a module called head, whose last parametrised block is `1.0`."""

    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 3), nn.Identity()))


@pytest.mark.parametrize(
    ("build", "features", "width"),
    [
        (Net, "head", 6),
        (Net, "body", 4),
        (Net, "body.1", 6),
        (Anonymous, "head", 6),
        (Anonymous, "input", 4),
        (lambda: nn.Linear(4, 3), "head", 4),
    ],
)
def test_the_representation_is_the_input_of_the_named_module(build, features, width, backend):
    method = KNNPer(features=features)
    run = motet.run(method, motet.Task(build), world(), rounds=0, backend=backend)
    assert run.personal("a").memory.keys.shape == (40, width)


def test_feature_maps_are_flattened():
    task = motet.Task(
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(6, 3)
        )
    )
    run = motet.run(KNNPer(features="2"), task, world(), rounds=0)
    assert run.personal("a").memory.keys.shape == (40, 6)


def test_one_score_for_two_classes_is_served(backend):
    two = {
        s: {c: (x, (y > 0).astype(int)) for c, (x, y) in pairs(s).items()} for s in ("train", "val")
    }
    task = motet.Task(lambda: nn.Linear(4, 1), loss="binary_cross_entropy")
    run = motet.run(KNNPer(), task, from_arrays(**two, classes=2), rounds=1, backend=backend)
    assert_close(run.predict("a", QUERIES).sum(-1), torch.ones(11))


# ---- A new client, and any base ----------------------------------------------------------------


def test_a_new_client_needs_nothing_but_its_examples(backend):
    run = serve(KNNPer(k=1), backend=backend)
    x, y = pairs("train", {"z": 1, "y": 1, "new": 30})["new"]
    newcomer = run.adapt(x, y)
    assert float(newcomer.personal.lam) > 0
    assert newcomer.predict(x).argmax(-1).tolist() == y.tolist()


def test_a_finished_run_of_fedavg_can_be_the_base(backend):
    trained = serve(KNNPer(capacity=8), backend=backend)
    base = serve(FedAvg(), backend=backend)
    served = serve(KNNPer(capacity=8), rounds=0, init=base.server, backend=backend)
    assert lambdas(served) == lambdas(trained)
    for client in SIZES:
        assert torch.equal(served.predict(client, QUERIES), trained.predict(client, QUERIES))


# ---- Both backends, and the conformance suite --------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        KNNPer(),
        KNNPer(capacity=4),
        KNNPer(capacity=0.5, prototypes=2, prototype_steps=3),
        KNNPer(norm="local_stats"),
    ],
    ids=["all", "count", "prototypes", "local statistics"],
)
def test_stacked_clients_are_served_as_single_ones(method):
    odd = batch_norm()
    runs = [
        motet.run(method, odd.task, odd.data, rounds=2, backend=b) for b in ("serial", "vectorized")
    ]
    scored, expected = (run.evaluate() for run in runs)
    assert_close(torch.tensor(scored.values), torch.tensor(expected.values))
    for client in odd.data.clients:
        came, expected = (run.predict(client, QUERIES) for run in runs)
        assert_close(came, expected, rtol=0, atol=1e-5)


# ---- What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"lam": 1.5},
        {"k": 0},
        {"capacity": -1},
        {"capacity": 1.5},
        {"kernel": "cosine"},
        {"interpolate": "labels"},
        {"grid": 1},
        {"prototypes": 1},
        {"scale": -1.0},
    ],
    ids=str,
)
def test_a_value_that_means_nothing_is_refused_at_construction(wrong):
    with pytest.raises(RequestError, match=next(iter(wrong))):
        KNNPer(**wrong)


def test_a_module_that_does_not_exist_is_refused_with_the_names_that_do():
    with pytest.raises(SelectorError, match="did you mean"):
        serve(KNNPer(features="bodi"), rounds=0)


def test_values_cannot_be_voted_on():
    data = from_arrays({"a": (np.zeros((3, 2), np.float32), np.zeros(3, np.float32))})
    task = motet.Task(lambda: nn.Linear(2, 1), loss="mse")
    with pytest.raises(CapabilityError, match="votes on one class per example"):
        motet.run(KNNPer(), task, data, rounds=0)


def test_logits_of_one_score_cannot_be_mixed():
    task = motet.Task(lambda: nn.Linear(4, 1), loss="binary_cross_entropy")
    two = {c: (x, (y > 0).astype(int)) for c, (x, y) in pairs("train").items()}
    with pytest.raises(CapabilityError, match="two outputs"):
        motet.run(KNNPer(interpolate="logits"), task, from_arrays(two, classes=2), rounds=0)


def test_a_network_that_scores_every_position_is_refused_with_the_way_out():
    words = np.zeros((4, 6), np.int64)
    data = from_arrays({"a": (words, words)}, classes=5)
    task = motet.Task(lambda: motet.models.CharLSTM((6,), 5, hidden=3, layers=1))
    with pytest.raises(CapabilityError, match=r"6 positions.*last"):
        motet.run(KNNPer(), task, data, rounds=0)


def test_windows_of_text_are_served_from_the_last_states_as_in_the_paper(backend):
    words = np.arange(24).reshape(4, 6) % 5
    data = from_arrays({"a": (words, words[:, 0])}, classes=5)
    network = partial(motet.models.CharLSTM, (6,), 5, hidden=3, layers=2, predict="last")
    method = KNNPer(features="states")
    run = motet.run(method, motet.Task(network), data, rounds=0, backend=backend)
    assert run.personal("a").memory.keys.shape == (4, 2 * 3 + 2 * 3)
    assert_close(run.predict("a", words).sum(-1), torch.ones(4))


class Silent(Net):
    """A network that uses its head's weights, but never calls it."""

    def forward(self, x):
        return nn.functional.linear(self.body(x), self.head.weight)


def test_a_module_that_is_never_called_has_no_input_and_is_refused():
    with pytest.raises(StructureError, match="never calls"):
        motet.run(KNNPer(), motet.Task(Silent), world(), rounds=0)


def test_the_predictor_is_no_single_network():
    with pytest.raises(CapabilityError, match="more than one network"):
        serve(KNNPer(), rounds=0).model("a")
