"""FedPer against arithmetic, FedAvg and Local, and the laws of its two parts."""

import hashlib
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from two_layers import PRODUCT

import motet
from motet import Blocks, FedAvg, FedPer, Local, Sgd
from motet._core.tree import count_bytes
from motet.errors import CapabilityError, RequestError, SelectorError
from motet.models import ResNet18, SmallCNN
from motet.models._surgery.ablations import linear_base


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


class Net(nn.Module):
    """Three blocks, the first two with batch normalisation."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6))
        self.second = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.second(self.first(x).relu()).relu())


NET = motet.Task(Net)
NORM_STATISTICS = {name for name in NET.names if NET.is_buffer(name)}


def per_1():
    """The mini-example: (x, y, n, w_P) = (1, 2, 1, .5) and (2, 1, 3, -1), w_B = 1."""
    data = motet.data.from_arrays(
        {"1": (torch.ones(1), 2 * torch.ones(1)), "2": (2 * torch.ones(3), torch.ones(3))}
    )
    return data, {"1": {"head": 0.5}, "2": {"head": -1.0}}


def ragged(sizes=(7, 5, 9), seed=0, names="abc"):
    rng = np.random.default_rng(seed)
    train = {}
    for client, size in zip(names, sizes, strict=True):
        x = rng.normal(size=(size, 4)).astype(np.float32)
        train[client] = (x, (x @ rng.normal(size=(4, 3))).argmax(1))
    return train


def federation(train):
    return motet.data.from_arrays(train, test=train, classes=3)


def finish(method, task, data, backend="serial", rounds=2, **settings):
    return motet.run(method, task, data, rounds=rounds, backend=backend, **settings)


def digest(state):
    return {k: hashlib.sha256(v.detach().numpy().tobytes()).hexdigest() for k, v in state.items()}


def assert_same(a, b, atol=0.0):
    assert_close(a.server, b.server, atol=atol, rtol=0)
    for client in a.clients:
        assert_close(a.clients[client], b.clients[client], atol=atol, rtol=0)


# ---- PER-1, to the printed digits --------------------------------------------------------------


@pytest.mark.parametrize(
    ("head_epochs", "first", "second", "base"),
    [
        (0, (1.075, 0.65), (0.4, -0.4), 0.56875),
        (1, (1.08775, 0.785), (0.856, -0.04), 0.9139375),
    ],
)
def test_per_1_and_its_fine_tuning_variant(head_epochs, first, second, base, backend):
    data, heads = per_1()
    method = FedPer(batch_size=None, optimizer=Sgd(lr=0.1), head_epochs=head_epochs)
    settings = {"init": {"base": 1.0}, "init_clients": heads}
    before = finish(method, PRODUCT, data, backend, rounds=0, **settings)
    for client, expected in (("1", first), ("2", second)):
        trained = before.personal(client, point="after_local")
        assert (float(trained["base"]), float(trained["head"])) == pytest.approx(expected, abs=1e-7)
    run = finish(method, PRODUCT, data, backend, rounds=1, **settings)
    assert float(run.server["base"]) == pytest.approx(base, abs=1e-7)
    assert float(run.clients["1"]["head"]) == pytest.approx(first[1], abs=1e-7)
    assert float(run.clients["2"]["head"]) == pytest.approx(second[1], abs=1e-7)


def test_the_base_is_weighted_by_examples(backend):
    """Values 1, 2, 4 with 10, 20, 70 examples make 3.3."""
    sizes = {"a": (10, 1.0), "b": (20, 2.0), "c": (70, 4.0)}
    data = motet.data.from_arrays(
        {c: (torch.ones(n), value * torch.ones(n)) for c, (n, value) in sizes.items()}
    )
    # One step at rate 1 from base 0, head 1, x 1: the base becomes y.
    method = FedPer(batch_size=None, optimizer=Sgd(lr=1.0), head_init="common")
    run = finish(method, PRODUCT, data, backend, rounds=1, init={"base": 0.0, "head": 1.0})
    assert float(run.server["base"]) == pytest.approx(3.3, abs=1e-6)


# ---- Reductions --------------------------------------------------------------------------------


@pytest.mark.parametrize("personal", [(), Blocks(last=0)])
def test_without_personalization_layers_it_is_fedavg_with_its_statistics(personal, backend):
    data, settings = federation(ragged()), {"epochs": 2, "batch_size": 4}
    run = finish(FedPer(personal=personal, **settings), NET, data, backend)
    assert_same(run, finish(FedAvg(**settings), NET, data, backend))
    assert set(run.server) >= NORM_STATISTICS
    assert any("fedavg" in warning for warning in run.warnings)


def test_with_every_layer_personal_it_is_local_and_nothing_is_sent(backend):
    data, settings = federation(ragged()), {"epochs": 2, "batch_size": 4}
    everything = FedPer(personal=Blocks(last=3), head_init="common", **settings)
    run = finish(everything, NET, data, backend)
    assert_same(run, finish(Local(**settings), NET, data, backend))
    last = run.advance()
    assert (last.bytes_up, last.bytes_down, run.server) == (0, 0, {})


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
def test_equal_clients_with_equal_heads_train_as_one(blocks, backend):
    """On identical data and full batches, every K_P is FedAvg is centralised training."""
    one = ragged(sizes=(8,), names="a")["a"]
    data = federation(dict.fromkeys("abc", one))
    method = FedPer(personal=Blocks(last=blocks), head_init="common", batch_size=None, epochs=2)
    run = finish(method, NET, data, backend, rounds=3)
    alone = finish(Local(batch_size=None, epochs=2), NET, federation({"a": one}), rounds=3)
    for client in data.clients:
        model = run.personal(client, point="after_broadcast")
        assert_close(model, alone.personal("a", point="after_broadcast"), atol=1e-6, rtol=0)


# ---- The two parts -----------------------------------------------------------------------------


def test_heads_differ_after_a_round_and_the_base_is_one(backend):
    data = federation(ragged())
    run = finish(FedPer(head_init="common"), NET, data, backend, rounds=1)
    models = [run.personal(client, point="after_broadcast") for client in data.clients]
    assert not torch.equal(models[0]["head.weight"], models[1]["head.weight"])
    assert torch.equal(models[0]["first.0.weight"], models[1]["first.0.weight"])


def test_a_head_knows_nothing_of_other_clients_data_in_the_first_round(backend):
    train = ragged()
    changed = train | {"b": ragged(seed=9)["b"]}
    heads = [
        finish(FedPer(), NET, federation(t), backend, rounds=1).clients["a"]
        for t in (train, changed)
    ]
    assert digest(heads[0]) == digest(heads[1])


def test_aggregation_does_not_touch_a_head(backend):
    data = federation(ragged())
    before = finish(FedPer(), NET, data, backend, rounds=0)
    trained = before.personal("a", point="after_local")
    kept = finish(FedPer(), NET, data, backend, rounds=1).clients["a"]
    # A client alone and a client in a stack agree to rounding.
    assert_close(kept, {k: v for k, v in trained.items() if k in kept}, rtol=1e-6, atol=1e-7)


def test_doubling_every_client_changes_nothing_and_a_twin_is_a_double_weight(backend):
    train = ragged(sizes=(6, 4), names="ab")
    doubled = {c: (np.concatenate([x, x]), np.concatenate([y, y])) for c, (x, y) in train.items()}
    method = FedPer(batch_size=None, head_init="common")

    def base(train):
        return finish(method, NET, federation(train), backend, rounds=1).server["first.0.weight"]

    assert_close(base(doubled), base(train), atol=1e-6, rtol=0)
    twins = {"a": train["a"], "a2": train["a"], "b": train["b"]}
    heavier = {"a": doubled["a"], "b": train["b"]}
    assert_close(base(twins), base(heavier), atol=1e-6, rtol=0)


def test_the_order_in_which_clients_are_listed_is_irrelevant(backend):
    train = ragged()
    backwards = dict(reversed(train.items()))
    runs = [finish(FedPer(batch_size=4), NET, federation(t), backend) for t in (train, backwards)]
    assert_same(runs[0], runs[1], atol=1e-7)


def test_only_the_base_is_sent_and_the_server_holds_no_head(backend):
    data = federation(ragged())
    run = finish(FedPer(personal=Blocks(last=2)), NET, data, backend)
    private = NET.select(Blocks(last=2))
    assert set(run.server) == set(NET.names) - private
    assert set(run.clients["a"]) == private
    sent = run.advance()
    assert sent.bytes_up == sent.bytes_down == 3 * count_bytes(run.server)
    for kept in run.clients.values():
        for leaf in (kept["head.weight"], kept["second.0.weight"]):
            assert not any(torch.equal(leaf, shared) for shared in run.server.values())


def test_a_client_that_skips_a_round_keeps_its_head(backend):
    data = federation(ragged())
    before = {}
    for done in motet.rounds(FedPer(), NET, data, rounds=4, cohort=1, backend=backend):
        after = {client: digest(done.run.clients[client]) for client in data.clients}
        for client in before:
            assert (after[client] != before[client]) == (client in done.cohort)
        before = after


@pytest.mark.parametrize("norm", ["average", "local_stats", "local_layers"])
def test_the_head_only_epoch_leaves_every_bit_of_the_base_alone(norm, backend):
    """Also its running statistics, wherever the policy keeps them."""
    heavy = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)
    method = FedPer(head_epochs=2, norm=norm, optimizer=heavy, steps=0, batch_size=4)
    run = finish(method, NET, federation(ragged()), backend, rounds=0)
    for client in "abc":
        before = digest(run.personal(client, point="after_broadcast"))
        after = digest(run.personal(client, point="after_local"))
        assert {k for k in before if before[k] != after[k]} == {"head.weight", "head.bias"}


# ---- Where heads come from ---------------------------------------------------------------------


def test_heads_are_drawn_for_each_client_unless_they_are_common():
    data = federation(ragged())
    own = finish(FedPer(), NET, data, rounds=0).clients
    common = finish(FedPer(head_init="common"), NET, data, rounds=0).clients
    assert not torch.equal(own["a"]["head.weight"], own["b"]["head.weight"])
    assert torch.equal(common["a"]["head.weight"], common["b"]["head.weight"])
    again = finish(FedPer(), NET, data, rounds=0, backend="vectorized").clients
    assert digest(own["a"]) == digest(again["a"])


def test_blocks_count_from_the_end_as_the_paper_counts():
    """K_P = 1 is the classifier, K_P = 2 adds the last basic block of a ResNet."""
    task = motet.Task(lambda: ResNet18((3, 8, 8), 10, width=8))
    assert task.select(Blocks(last=1)) == {"head.weight", "head.bias"}
    last_block = {name for name in task.names if name.startswith("stage4.1.")}
    assert task.select(Blocks(last=2)) == {"head.weight", "head.bias"} | last_block


def test_a_new_client_draws_a_head_and_trains_it_on_a_frozen_base(backend):
    run = finish(FedPer(), NET, federation(ragged()), backend)
    served = run.adapt(*ragged(seed=4)["a"])
    assert digest({k: served.personal[k] for k in run.server}) == digest(run.server)
    start = run.setting.fresh_client("(new client)")
    assert not torch.equal(served.personal["head.weight"], start["head.weight"])


# ---- The ablation: a linear layer instead of the base ------------------------------------------


def test_a_linear_layer_takes_the_place_of_the_base(backend):
    build = linear_base(Net, shape=(4,), keep=Blocks(last=2))
    task = motet.Task(build)
    assert task.select(Blocks(last=2)) == NET.select(Blocks(last=2))
    assert set(task.names) - task.select(Blocks(last=2)) == {
        "linear_base.linear.weight",
        "linear_base.linear.bias",
    }
    state, x = task.init(motet.Key(0)), torch.randn(3, 4)
    middle = x @ state["linear_base.linear.weight"].T + state["linear_base.linear.bias"]
    net = Net().eval()
    net.load_state_dict({k: v for k, v in state.items() if "linear_base" not in k}, strict=False)
    expected = net.head(net.second(middle).relu())
    assert_close(task.outputs(state, x), expected)
    run = finish(FedPer(personal=Blocks(last=2)), task, federation(ragged()), backend)
    assert set(run.server) == {"linear_base.linear.weight", "linear_base.linear.bias"}


def test_the_linear_layer_makes_the_image_that_the_kept_block_reads():
    network = linear_base(
        lambda: ResNet18((3, 8, 8), 10, width=8), shape=(3, 8, 8), keep=Blocks(last=2)
    )()
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
    kept = [path for path, _ in network.named_children()]
    assert kept == ["linear_base", "stage4", "head"]


def test_networks_without_a_base_are_built_without_tracing(monkeypatch):
    """Tracing patches all modules of the process, and heads are drawn while others train."""
    build = linear_base(Net, shape=(4,))
    monkeypatch.setattr(torch.fx.Tracer, "trace", None)
    task = motet.Task(build)
    run = motet.run(
        FedPer(), task, federation(ragged()), rounds=2, backend="vectorized", chunk_size=1
    )
    assert not torch.equal(run.clients["a"]["head.weight"], run.clients["b"]["head.weight"])


def test_a_task_without_a_base_can_be_sent_to_a_worker():
    network = partial(SmallCNN, (1, 8, 8), 3)
    task = motet.Task(linear_base(network, shape=(1, 8, 8), keep=Blocks(last=2)))
    arrived = pickle.loads(pickle.dumps(task))
    state, x = task.init(motet.Key(0)), torch.ones(2, 1, 8, 8)
    assert torch.equal(arrived.outputs(state, x), task.outputs(state, x))


def test_the_ablation_draws_nothing_from_torchs_own_generator():
    before = torch.get_rng_state()
    linear_base(Net, shape=(4,))
    assert torch.equal(torch.get_rng_state(), before)


class Bypass(nn.Module):
    """The head reads the first layer too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.first(x)
        return self.head(self.second(x) + x)


def test_a_base_that_is_read_from_elsewhere_cannot_be_replaced():
    with pytest.raises(CapabilityError, match="read first directly"):
        linear_base(Bypass, shape=(4,), keep="second")


@pytest.mark.parametrize(
    ("keep", "says"), [(Blocks(last=3), "no base to replace"), ("haed", 'did you mean "head"')]
)
def test_an_ablation_that_keeps_nothing_sensible_is_refused(keep, says):
    with pytest.raises(SelectorError, match=says):
        linear_base(Net, shape=(4,), keep=keep)


# ---- Refusals ----------------------------------------------------------------------------------


def test_a_typo_in_the_personalization_layers_lists_the_names():
    with pytest.raises(SelectorError, match='did you mean "head"'):
        finish(FedPer(personal=("haed",)), NET, federation(ragged()))


def test_more_blocks_than_the_model_has_are_refused():
    with pytest.raises(SelectorError, match="more blocks than the model has"):
        finish(FedPer(personal=Blocks(last=9)), NET, federation(ragged()))


def test_an_unknown_head_init_is_refused_at_once():
    with pytest.raises(RequestError, match="independent"):
        FedPer(head_init="random")
    with pytest.raises(RequestError, match="0 or more"):
        replace(FedPer(), head_epochs=-1)
