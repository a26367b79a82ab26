"""Kinds of tasks end to end: they learn, backends agree, wrong combinations are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet import Adam, FedAvg, Local, Task
from motet._core.criteria import CRITERIA, cross_entropy, masked_cross_entropy, ordinal
from motet.data import Split, from_arrays
from motet.errors import DataError, RequestError
from motet.metrics._registry import DEFAULTS
from motet.task import DiscreteHazard

RNG = np.random.default_rng(0)
SIZES = {"a": 24, "b": 31, "c": 17}
TIMES = (1.0, 2.0, 4.0)


def federation(target, **options):
    """Make clients whose targets are a function of inputs and noise."""
    clients = {}
    for client, size in SIZES.items():
        x = RNG.normal(size=(size, 3)).astype(np.float32)
        clients[client] = (x, target(x, RNG.normal(size=(size, 3))))
    return from_arrays(clients, split=Split(0.2, 0.3), **options)


def survival(x, noise):
    death = np.exp(0.7 - x[:, 0] + 0.3 * noise[:, 0])
    censored = np.exp(1.2 + noise[:, 1])
    event = death <= censored
    return np.stack([np.minimum(death, censored), event], 1).astype(np.float32)


def padded(x, noise):
    y = np.stack([(x[:, 0] > 0), (x[:, 1] > 0), (x[:, 2] > 0)], 1).astype(np.int64)
    y[noise > 0.8] = -100
    y[:, 0] = np.abs(y[:, 0]) % 2  # every sequence has a target
    return y


class PerToken(nn.Module):
    """Score every position of a sequence by its own input."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2)

    def forward(self, x):
        return self.head(x.unsqueeze(-1))


def linear(outputs):
    return lambda: nn.Linear(3, outputs)


WORLDS = {
    "binary": (lambda x, n: (x[:, 0] + n[:, 0] > 0).astype(np.int64), linear(2), "cross_entropy"),
    "binary, one logit": (
        lambda x, n: (x[:, 0] + n[:, 0] > 0).astype(np.int64),
        linear(1),
        "binary_cross_entropy",
    ),
    "binary, real targets": (
        lambda x, n: (x[:, 0] + n[:, 0] > 0).astype(np.float32),
        linear(1),
        "binary_cross_entropy",
    ),
    "multiclass": (
        lambda x, n: np.digitize(x[:, 0], [-0.5, 0.5]).astype(np.int64),
        linear(3),
        "cross_entropy",
    ),
    "ordinal": (
        lambda x, n: np.digitize(x[:, 0], [-1, 0, 1]).astype(np.int64),
        linear(3),
        "ordinal",
    ),
    "multilabel": (lambda x, n: (x + n > 0).astype(np.int64), linear(3), "multi_label"),
    "multilabel, real targets": (
        lambda x, n: (x + n > 0).astype(np.float32),
        linear(3),
        "multi_label",
    ),
    "regression": (lambda x, n: (2 * x[:, 0]).astype(np.float32), linear(1), "mse"),
    "regression, two values": (lambda x, n: x[:, :2] * 2, linear(2), "mae"),
    "survival": (survival, linear(3), DiscreteHazard(TIMES)),
    "sequence": (padded, PerToken, "masked_cross_entropy"),
}


@pytest.fixture(scope="module", params=WORLDS, ids=list(WORLDS))
def world(request):
    target, build, loss = WORLDS[request.param]
    kind = request.param.partition(",")[0]
    options = {"classes": 4} if kind == "ordinal" else {}
    return kind, Task(build, loss), federation(target, **options)


def run(task, data, rounds, backend="serial", **options):
    method = FedAvg(optimizer=Adam(lr=0.05), epochs=3, batch_size=8)
    return motet.run(method, task, data, rounds=rounds, backend=backend, **options)


def test_a_task_learns_and_is_scored_by_all_its_metrics(world):
    kind, task, data = world
    # A recall is named by its class, and the 5 most likely of a few classes are always right.
    names = [name for name in motet.metrics.names(kind) if name not in ("recall", "top_5")]
    before, after = (run(task, data, n, metrics=names).evaluate() for n in (0, 6))
    assert [table.metric for table in after.metrics] == names
    assert after.metric == names[0]
    usual = DEFAULTS[kind]
    first, last = before.by(usual), after.by(usual)
    assert (last.mean > first.mean) == last.higher_is_better
    assert last.loss < first.loss
    for table in after.metrics:
        assert len(table.rows) + len(table.undefined) == len(SIZES)
        assert all(math.isfinite(row.value) for row in table.rows)


def test_stacked_clients_learn_what_single_ones_do(world):
    _, task, data = world
    alone = run(task, data, 2).evaluate()
    stacked = run(task, data, 2, backend="vectorized", mode="stack").evaluate()
    assert stacked.values == pytest.approx(alone.values, abs=1e-4)
    assert stacked.loss == pytest.approx(alone.loss, rel=1e-3)


def test_predictions_have_the_form_that_metrics_expect(world):
    kind, task, data = world
    federated = run(task, data, 1)
    x = data.examples("a", "test").x
    p = federated.predict("a", x)
    if kind in ("binary", "multiclass", "ordinal", "sequence"):
        assert torch.allclose(p.sum(-1), torch.ones(p.shape[:-1]), atol=1e-5)
        assert p.min() >= 0
    if kind == "ordinal":
        assert p.shape == (len(x), 4)
    if kind == "survival":
        assert p.shape == (len(x), len(TIMES))
        assert (p.diff(dim=1) <= 0).all()


def test_default_metrics_give_the_numbers_they_always_gave(world):
    kind, task, data = world
    table = run(task, data, 1).evaluate()
    assert table.metric == DEFAULTS[kind]
    assert not table.also


# -- losses ------------------------------------------------------------------


def test_padding_changes_neither_the_loss_nor_its_gradient():
    outputs = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.tensor([[0, 1, 2, 0, 1]] * 4)
    assert torch.equal(masked_cross_entropy(outputs, y), cross_entropy(outputs, y))
    y[1, 3:] = -100
    masked = masked_cross_entropy(outputs, y)
    short = cross_entropy(outputs[1:2, :3], y[1:2, :3])
    assert torch.allclose(masked[1], short[0])
    (gradient,) = torch.autograd.grad(masked.sum(), outputs)
    assert (gradient[1, 3:] == 0).all()
    y[2] = -1
    assert masked_cross_entropy(outputs, y)[2] == 0  # nothing but padding


def test_the_ordinal_loss_is_the_log_loss_of_its_probabilities():
    outputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 3, 0])
    p = CRITERIA["ordinal"].probabilities(outputs)
    assert torch.allclose(p.sum(1), torch.ones(6, dtype=torch.float64))
    assert torch.allclose(ordinal(outputs, y), -p[torch.arange(6), y].log())


# -- wrong combinations ---------------------------------------------------------


def classes(x, noise):
    return (x[:, 0] > 0).astype(np.int64)


REFUSED = [
    (classes, linear(2), "binary_cross_entropy", "one output, got 2"),
    (classes, linear(3), "multi_label", r"shape \[examples, labels\]"),
    (lambda x, n: x, linear(3), "multi_label", "expects targets 0 and 1, but row"),
    (lambda x, n: (x > 0).astype(np.int64), linear(2), "multi_label", "3 outputs"),
    (lambda x, n: x[:, 0], linear(3), "ordinal", "one whole number per example"),
    (classes, linear(3), "ordinal", r"1 outputs \(steps between classes\)"),
    (lambda x, n: x[:, 0], linear(2), "mse", "expects a network with 1 outputs"),
    (lambda x, n: x[:, :2], linear(1), "mse", "expects a network with 2 outputs"),
    (classes, linear(3), DiscreteHazard(TIMES), r"targets \(time, event\)"),
    (survival, linear(2), DiscreteHazard(TIMES), r"3 outputs \(time bins\)"),
    (lambda x, n: x[:, :2], linear(3), DiscreteHazard(TIMES), "a time is 0 or more"),
    (lambda x, n: (x > 0).astype(np.float32), linear(1), "binary_cross_entropy", "multi_label"),
    (lambda x, n: x[:, 0], linear(1), "binary_cross_entropy", "expects targets 0 and 1"),
    (padded, PerToken, "cross_entropy", "masked_cross_entropy"),
]


@pytest.mark.parametrize(("target", "build", "loss", "said"), REFUSED)
def test_a_wrong_combination_is_refused_before_round_1(target, build, loss, said):
    with pytest.raises(DataError, match=said):
        run(Task(build, loss), federation(target), 0)


def test_a_metric_that_no_client_can_have_is_refused_before_round_1():
    data = from_arrays(
        {c: (np.zeros((9, 3), np.float32), np.full(9, i % 2)) for i, c in enumerate("ab")},
        split=Split(0.2, 0.3),
        classes=2,
    )
    with pytest.raises(DataError, match="none of 2 clients has"):
        run(Task(linear(2)), data, 0, metrics=["auroc"])
    assert run(Task(linear(2)), data, 0, metrics=["log_loss"]).metrics[0].name == "log_loss"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metrics": ["rmse"]}, "is for regression tasks, and this one is binary"),
        ({"metrics": "auroc"}, r"expects a list, such as \['auroc'\]"),
        ({"weigh": "size"}, 'weigh= is "clients" or "examples"'),
    ],
)
def test_a_wrong_metric_is_refused_before_round_1(options, said):
    with pytest.raises(RequestError, match=said):
        run(Task(linear(2)), federation(classes), 0, **options)


def test_a_broken_own_metric_is_refused_before_round_1():
    @motet.metrics.metric(higher_is_better=True)
    def broken(targets, predictions):
        return predictions["positive"]

    with pytest.raises(RequestError, match='"broken" failed'):
        run(Task(linear(2)), federation(classes), 0, metrics=[broken])


def test_an_own_metric_that_fails_at_any_client_is_refused_before_round_1(uneven):
    @motet.metrics.metric(higher_is_better=True)
    def two_classes(targets, predictions):
        assert len(np.unique(targets)) == 2, "one class"
        return 1.0

    with pytest.raises(RequestError, match=r'one class.*client "one-class"'):
        run(Task(linear(2)), uneven, 0, metrics=[two_classes])


@pytest.mark.parametrize(
    "own",
    [
        motet.metrics.metric(lambda t, p: float(np.mean(p[t == 1])), higher_is_better=True),
        "sklearn.metrics:matthews_corrcoef=higher",  # whose name does not tell the direction
    ],
    ids=["lambda", "path"],
)
def test_clients_are_judged_by_an_own_metric(own):
    data, method = federation(classes), FedAvg(batch_size=8)
    table = motet.compare([method], Task(linear(2)), data, rounds=1, seeds=1, metrics=[own])
    assert len(table.verdict().of_sites("fedavg", "local")) == len(SIZES)


# -- what is undefined, and what counts ---------------------------------------------


@pytest.fixture(scope="module")
def uneven():
    """One client with a single class, one small and one large with both."""

    def client(size, positive):
        x = RNG.normal(size=(size, 3)).astype(np.float32)
        y = (np.arange(size) % 2 if positive is None else np.full(size, positive)).astype(np.int64)
        return x, y

    clients = {"one-class": client(20, 1), "small": client(8, None), "large": client(40, None)}
    train = {name: (x[: len(x) // 2], y[: len(y) // 2]) for name, (x, y) in clients.items()}
    test = {name: (x[len(x) // 2 :], y[len(y) // 2 :]) for name, (x, y) in clients.items()}
    return from_arrays(train, val=test, test=test, classes=2)


def test_a_client_without_a_value_is_left_out_counted_and_named(uneven):
    table = run(Task(linear(2)), uneven, 1, metrics=["auroc", "accuracy"]).evaluate()
    assert [row.client for row in table.rows] == ["large", "small"]
    assert [row.client for row in table.undefined] == ["one-class"]
    assert table.mean == pytest.approx(np.mean([row.value for row in table.rows]))
    assert table.summary()["undefined"] == 1
    assert "auroc is undefined for 1 of 3 clients on test data (one-class)" in str(table)
    assert len(table.by("accuracy").rows) == 3
    again = motet.Evaluation.from_dict(table.to_dict())
    assert again == table


def test_clients_count_equally_or_by_their_examples(uneven):
    equal, weighted = (
        run(Task(linear(2)), uneven, 1, weigh=weigh).evaluate() for weigh in ("clients", "examples")
    )
    assert equal.values.tolist() == weighted.values.tolist()
    assert weighted.mean == equal.weighted_mean != equal.mean
    sizes = [row.examples for row in equal.rows]
    assert weighted.mean == pytest.approx(np.average(equal.values, weights=sizes))


def test_the_deciding_metric_chooses_the_round_and_the_trial(uneven):
    lower = motet.metrics.metric(lambda t, p: float(p.mean()), higher_is_better=False, name="low")
    higher = motet.metrics.metric(lambda t, p: float(p.mean()), higher_is_better=True, name="high")
    chosen = {}
    for metric in (lower, higher):
        found = motet.compare(
            [Local(optimizer=Adam(lr=0.05))],
            Task(linear(2)),
            uneven,
            rounds=4,
            evaluate_every=1,
            choose="validation",
            tune=motet.Search(space={"optimizer.lr": [0.05, 0.3]}, kind="grid"),
            metrics=[metric],
        )
        row = found.of("local")[0]
        seen = [look.mean for look in row.curve]
        best = min(seen) if metric is lower else max(seen)
        assert row.chosen_round == 1 + seen.index(best)
        assert row.evaluation.mean == best  # validation and test data are the same here
        trials = [t["mean"] for t in found.tried if t["label"] == "local"]
        chosen[metric.name] = (row.evaluation.mean, trials, row.tuned)
    for name, pick in (("low", min), ("high", max)):
        _, trials, tuned = chosen[name]
        assert tuned["optimizer.lr"] == [0.05, 0.3][trials.index(pick(trials))]
