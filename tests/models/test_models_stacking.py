"""Every network, stacked over clients under vmap, computes what a loop over clients computes."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

from motet import models
from motet._core.keys import Key
from motet.task import Task

CLIENTS, BATCH = 3, 4

TINY = {
    "logistic": ("logistic", (5,), 3, {}),
    "mlp": ("mlp", (2, 3), 3, {"hidden": [4, 4]}),
    "mcmahan-cnn": ("mcmahan-cnn", (1, 5, 4), 3, {"hidden": 8}),
    "fomo-cnn": ("fomo-cnn", (3, 18, 18), 3, {}),
    "emnist-cnn": ("emnist-cnn", (1, 7, 6), 3, {}),
    "small-cnn": ("small-cnn", (1, 8, 8), 3, {}),
    "sensor-cnn": ("sensor-cnn", (12, 2), 3, {}),
    "resnet-18": ("resnet-18", (1, 6, 6), 3, {"width": 8}),
    "resnet-18 imagenet": ("resnet-18", (3, 16, 16), 3, {"width": 8, "stem": "imagenet"}),
    "resnet-18 adapters": ("resnet-18", (1, 6, 6), 3, {"width": 8, "adapters": True}),
    "resnet-18 batch": ("resnet-18", (1, 8, 8), 3, {"width": 8, "norm": "batch"}),
    "resnet-34": ("resnet-34", (1, 6, 6), 3, {"width": 8}),
    "mobilenet-v1": ("mobilenet-v1", (3, 8, 8), 3, {"width": 0.25}),
    "mobilenet-v1 group": ("mobilenet-v1", (3, 8, 8), 3, {"width": 0.25, "norm": "group"}),
    "mobilenet-v2": ("mobilenet-v2", (3, 8, 8), 3, {"width": 0.25}),
    "mobilenet-v2 group": ("mobilenet-v2", (3, 8, 8), 3, {"width": 0.25, "norm": "group"}),
    "vgg-11": ("vgg-11", (1, 32, 32), 3, {"width": 8, "hidden": 16}),
    "char-lstm": ("char-lstm", (6,), 5, {"hidden": 7}),
    "char-lstm last": ("char-lstm", (6,), 5, {"hidden": 7, "predict": "last"}),
    "word-lstm": ("word-lstm", (6,), 5, {"hidden": 7, "embedding": 3}),
    "transformer": ("transformer", (6,), 5, {"width": 8, "feedforward": 16, "adapters": 2}),
    "transformer last": (
        "transformer",
        (6,),
        5,
        {"width": 8, "feedforward": 16, "predict": "last", "tied": False},
    ),
}
TOKENS = {"char-lstm", "word-lstm", "transformer"}


def build(name, shape, classes, options):
    return models.build(name, shape=shape, classes=classes, **options).train()


def draw_clients(case, clients=CLIENTS):
    """Draw each client's own parameters and buffers."""
    task = Task(build=lambda: build(*case))
    states = [task.init(Key(client)) for client in range(clients)]
    # Doubles, so that a difference is a mistake and not rounding.
    states = [{k: v.double() if v.is_floating_point() else v for k, v in s.items()} for s in states]
    parameters = [task.trainable(state) for state in states]
    return parameters, [{k: v for k, v in s.items() if task.is_buffer(k)} for s in states]


def examples(generator, name, shape, classes, options):
    if name not in TOKENS:
        x = torch.randn(CLIENTS, BATCH, *shape, generator=generator, dtype=torch.float64)
        return x, torch.randint(classes, (CLIENTS, BATCH), generator=generator)
    x = torch.randint(classes, (CLIENTS, BATCH, *shape), generator=generator)
    return x, x[..., -1] if options.get("predict") == "last" else x.roll(1, -1)


def stack(trees):
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def gradient_and_buffers(network):
    """Make a function of one client: (parameters, buffers, x, y) -> gradient, updated buffers."""

    def loss(parameters, buffers, x, y):
        # Copies, because batch normalisation writes into the buffers it is given.
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        scores = functional_call(network, parameters | buffers, (x,))
        return F.cross_entropy(scores.flatten(0, -2), y.flatten()), buffers

    return grad(loss, has_aux=True)


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_stacked_gradients_and_buffers_equal_a_loop(case):
    parameters, buffers = draw_clients(case)
    x, y = examples(torch.Generator().manual_seed(0), *case)
    one = gradient_and_buffers(build(*case))

    stacked = vmap(one)(stack(parameters), stack(buffers), x, y)
    looped = [one(*client) for client in zip(parameters, buffers, x, y, strict=True)]

    for i, part in enumerate(stacked):
        expected = stack([result[i] for result in looped])
        torch.testing.assert_close(part, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_every_parameter_has_a_gradient(case):
    [parameters], [buffers] = draw_clients(case, clients=1)
    x, y = examples(torch.Generator().manual_seed(1), *case)
    grads, _ = gradient_and_buffers(build(*case))(parameters, buffers, x[0], y[0])
    assert not {name for name, gradient in grads.items() if not gradient.any()}


def test_batch_statistics_of_one_client_do_not_reach_another():
    case = TINY["resnet-18 batch"]
    parameters, buffers = map(stack, draw_clients(case))
    x, y = examples(torch.Generator().manual_seed(0), *case)
    run = vmap(gradient_and_buffers(build(*case)))

    _, before = run(parameters, buffers, x, y)
    _, after = run(parameters, buffers, torch.cat([x[:-1], 5 * x[-1:]]), y)

    name = "stem.norm.running_var"
    torch.testing.assert_close(after[name][:-1], before[name][:-1])
    assert not torch.allclose(after[name][-1], before[name][-1])


def test_every_network_is_tried():
    assert {name for name, *_ in TINY.values()} == set(models.names())
