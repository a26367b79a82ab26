"""FedRoD: a balanced generic head, and a personal head whose scores are added."""

import math

import pytest
import torch
from arithmetic import BACKENDS
from torch.func import vmap
from torch.nn.functional import one_hot
from toys import assert_same
from two_layers import PRODUCT, differ, finish, products

import motet
from motet import Blocks, FedAvg, Sgd
from motet._core.tree import pick, zeros_like
from motet._engine.backends.stacking import stack_padded
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError
from motet.methods._bases.balanced_softmax import balanced_prior, label_counts
from motet.methods._fedrod import FedRoD, TwoHeads
from motet.task import Batch
from motet.testing._worlds import TinyNet, ragged, ragged_data

BOTH = pytest.mark.parametrize("backend", BACKENDS)


class Scores(torch.nn.Module):
    """A linear layer on two inputs, without bias."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 3, bias=False)

    def forward(self, x):
        return self.head(x)


SCORES = motet.Task(Scores)


def phases(world, method, clients):
    setting = motet.run(method, world.task, world.data, rounds=0).setting
    return [setting.data(client, method.plans(), 0) for client in clients]


def test_the_loss_is_the_balanced_softmax_of_one_head_plus_the_plain_one_of_both():
    generic = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    personal = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.0, 1.0]])
    x, one = torch.tensor([[1.0, 0.0]]), torch.ones(1)
    batch = Batch(x, torch.tensor([0]), one, torch.tensor(0))
    prior = torch.tensor([math.log(2), 0.0, -1e9])  # classes with 2, 1 and no examples
    loss = TwoHeads(SCORES)({"head.weight": generic, "own/head.weight": personal}, batch, prior)
    balanced = 2 * math.exp(1.0) / (2 * math.exp(1.0) + math.exp(0.0))
    plain = math.exp(1.5) / (math.exp(1.5) + math.exp(0.0) + math.exp(3.0))
    assert loss.value.item() == pytest.approx(-math.log(balanced) - math.log(plain), rel=1e-6)


@BOTH
def test_one_round_by_hand_with_an_absent_class(backend):
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    data = from_arrays({"a": (x, torch.tensor([0, 0, 1]))}, classes=3)
    method = FedRoD(optimizer=Sgd(lr=0.1), batch_size=None, gamma=1.0)
    start = torch.tensor([[0.3, -0.2], [0.1, 0.4], [0.7, 0.5]])
    init = {"head.weight": start}
    run = motet.run(method, SCORES, data, rounds=1, backend=backend, init=init)
    scores, right = x @ start.T, one_hot(torch.tensor([0, 0, 1]), 3)
    seen = torch.tensor([2.0, 1.0, 0.0]) * scores.exp()
    slope = (seen / seen.sum(-1, keepdim=True) - right).T @ x / 3
    torch.testing.assert_close(run.server["head.weight"], start - 0.1 * slope)
    assert torch.equal(run.server["head.weight"][2], start[2])  # the absent class stays
    residual = (scores.softmax(-1) - right).T @ x / 3
    torch.testing.assert_close(run.clients["a"]["own/head.weight"], -0.1 * residual)


def test_a_class_that_a_client_has_not_is_left_out_without_an_infinity():
    # log 0 is minus infinity, and times the weight 0 of padding not a number: a known mistake.
    batches = phases(ragged(), FedRoD(), ["single"])[0]["train"]  # which has only class 0
    prior = balanced_prior(batches, 3, 2.0)
    assert prior[0] == pytest.approx(2 * math.log(5))
    padded = Batch(
        torch.ones(2, 2), torch.tensor([0, 2]), torch.tensor([1.0, 0.0]), torch.tensor(0)
    )
    model = {"head.weight": torch.ones(3, 2), "own/head.weight": torch.zeros(3, 2)}
    loss = TwoHeads(SCORES)(model, padded, prior)
    assert loss.value.item() == pytest.approx(math.log(3))  # the balanced one is 0


@BOTH
def test_clients_of_one_class_and_of_one_example_leave_everything_finite(backend):
    world = ragged()
    run = finish(FedRoD(), world, backend, rounds=3)
    for state in (run.server, *(run.clients[c] for c in world.data.clients)):
        assert all(leaf.isfinite().all() for leaf in state.values())


def test_labels_are_counted_without_the_padding_of_a_stack():
    world, method = ragged(), FedRoD()
    clients = ("many", "few", "one", "single")
    stacked = stack_padded(phases(world, method, clients))["train"]
    counted = vmap(lambda batches: label_counts(batches, 3))(stacked)
    for client, counts in zip(clients, counted, strict=True):
        y = world.data.examples(client, "train").y
        assert counts.tolist() == torch.bincount(y, minlength=3).tolist()


def test_labels_of_sequences_are_counted_at_every_position():
    batches = phases(ragged(), FedRoD(), ["few"])[0]["train"]
    y = torch.tensor([[0, 1], [1, 1], [2, 0]])
    batches = batches._replace(y=y, size=torch.tensor(2))
    assert label_counts(batches, 3).tolist() == [1, 3, 0]


@BOTH
def test_with_gamma_0_the_shared_model_is_fedavgs(backend):
    world, settings = ragged(), {"epochs": 2, "batch_size": 4}
    rod = finish(FedRoD(gamma=0.0, **settings), world, backend, cohort=3)
    fedavg = finish(FedAvg(**settings), world, backend, cohort=3)
    assert_same(rod.server, fedavg.server)
    x = world.data.examples("many", "test").x
    assert_same(rod.predict("many", x, "after_broadcast"), fedavg.predict("many", x))
    assert "gamma=0" in rod.warnings[0]


@BOTH
def test_the_personal_loss_reaches_neither_the_body_nor_the_generic_head(backend):
    # Letting it train the body is a known mistake; a shared bound on gradients would be another.
    world, method = ragged(), FedRoD(optimizer=Sgd(lr=0.1, momentum=0.9, clip=0.05))
    usual = finish(method, world, backend)
    odd = {name: leaf + 3.0 for name, leaf in usual.clients["many"].items()}
    others = dict.fromkeys(world.data.clients, odd)
    assert_same(finish(method, world, backend, init_clients=others).server, usual.server)


@BOTH
def test_prediction_adds_the_scores_of_both_heads(backend):
    # Predicting with the personal head alone is a known mistake.
    world = ragged()
    run = finish(FedRoD(), world, backend)
    x = world.data.examples("many", "test").x
    own = {k.removeprefix("own/"): v for k, v in run.clients["many"].items()}
    generic, personal = (world.task.outputs(m, x) for m in (run.server, run.server | own))
    torch.testing.assert_close(run.predict("many", x), (generic + personal).softmax(-1))
    torch.testing.assert_close(run.predict("many", x, "after_broadcast"), generic.softmax(-1))
    assert differ({"": generic + personal}, {"": personal})


@BOTH
def test_a_new_client_starts_at_the_generic_model_and_trains_its_head_alone(backend):
    world = ragged()
    own = world.data.examples("few", "train")
    untrained = finish(FedRoD(adapt_epochs=0), world, backend, cohort=2)
    generic = world.task.predict(untrained.server, own.x)
    torch.testing.assert_close(untrained.adapt(*own).predict(own.x), generic)
    run = finish(FedRoD(), world, backend, cohort=2)
    newcomer = run.adapt(*own).personal
    assert_same(pick(newcomer, run.server), run.server)
    head = {k: v for k, v in newcomer.items() if k not in run.server}
    assert differ(head, zeros_like(head))


def test_gamma_and_the_personal_optimizer_change_the_update():
    world = ragged()
    usual = finish(FedRoD(), world, rounds=1)
    assert differ(usual.server, finish(FedRoD(gamma=0.5), world, rounds=1).server)
    other = finish(FedRoD(personal_optimizer=Sgd(lr=0.5)), world, rounds=1)
    assert_same(other.server, usual.server)
    assert differ(other.clients["many"], usual.clients["many"])
    assert not usual.warnings
    assert differ(usual.server, finish(FedAvg(), world, rounds=1).server)


def test_a_personal_part_of_two_layers_starts_at_0_and_still_learns():
    task = motet.Task(TinyNet)
    run = motet.run(FedRoD(head=Blocks(last=2)), task, ragged_data(), rounds=2)
    kept = run.clients["many"]
    assert differ(kept, run.setting.fresh_client("many"))
    assert kept["own/head.weight"].abs().sum() > 0


def test_what_it_cannot_do_is_refused():
    with pytest.raises(CapabilityError, match="cross_entropy"):
        motet.run(FedRoD(), PRODUCT, products(a=(1, 2, 1)), rounds=1)
    with pytest.raises(RequestError, match="0 or more"):
        FedRoD(gamma=-1.0)
    with pytest.raises(CapabilityError, match="last layer"):
        finish(FedRoD(head=("body",)), ragged(), rounds=0)
