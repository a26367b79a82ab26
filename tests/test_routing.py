"""Routed networks: the mini-examples to their digits, and what holds for any network."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from torch.testing import assert_close

from motet import Task
from motet._core.keys import Key
from motet.analysis import RouteShare, RoutingShares
from motet.analysis._routing_shares import client_shares
from motet.errors import CapabilityError, RequestError, SelectorError
from motet.methods._flow.routing import (
    Routing,
    draw_policy,
    mix,
    places,
    regulariser,
    route_weights,
    routed_state,
    routed_steps,
    routed_task,
)
from motet.methods._flow.routing.network import routed_names
from motet.models import LSTM, MLP, CharLSTM, EmnistCNN, Transformer

PLAIN = Routing(hidden=())  # a linear policy: every bias is a logit
IMAGES = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
VECTORS = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(0, 7, (5, 6), generator=torch.Generator().manual_seed(2))
NETWORKS = {
    "mlp": (lambda: MLP((4,), 3, hidden=(6,)), VECTORS),
    "cnn with dropout": (lambda: EmnistCNN((1, 8, 8), 3, dropout=(0.25, 0.5)), IMAGES),
    "lstm": (lambda: CharLSTM((6,), 7, embedding=3, hidden=4, layers=2), TOKENS),
    "tied transformer": (
        lambda: Transformer((6,), 7, layers=2, heads=2, width=8, feedforward=8),
        TOKENS,
    ),
    "one layer": (lambda: nn.Linear(4, 3), VECTORS),
}


@pytest.fixture(params=NETWORKS)
def world(request):
    build, x = NETWORKS[request.param]
    return Task(build).seeing(x), x


def models(task):
    return task.init(Key(0)), task.init(Key(1))


def drawn(task, routing):
    return draw_policy(routed_task(task, routing), Key(2))


def decided(task, routing, *, shared, local):
    """Make a policy that gives every instance, layer and step these two logits."""
    assert routing.hidden == ()
    policy = {name: torch.zeros_like(value) for name, value in drawn(task, routing).items()}
    for name, value in policy.items():
        if name.endswith("bias"):
            value.copy_(torch.tensor([shared, local]).repeat(len(value) // 2))
    return policy


def run_routed(task, routing, parts, x, *, hard=False):
    return routed_task(task, routing, hard=hard).call(routed_state(*parts), x)


# ---- the mini-examples, to the printed digits --------------------------------------------------


def test_flow_1_mixes_the_outputs_of_both_layers():
    task = Task(lambda: nn.Sequential(nn.Linear(2, 2, bias=False))).seeing(torch.zeros(1, 2))
    shared = {"0.weight": torch.eye(2)}
    local = {"0.weight": torch.tensor([[0.0, 1.0], [1.0, 0.0]])}
    policy = decided(task, PLAIN, shared=math.log(0.25), local=math.log(0.75))
    out, _ = run_routed(task, PLAIN, (shared, local, policy), torch.tensor([[2.0, 1.0]]))
    assert_close(out, torch.tensor([[1.25, 1.75]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("recurrence", "expected"),
    [("poster", (0.862811, -0.203248)), ("release", (0.862811, -0.234267))],
)
def test_flow_2_the_posters_recurrence_and_the_releases(recurrence, expected):
    to_shared = iter([0.5, 0.25])

    def route(*_):
        p = next(to_shared)
        return torch.tensor([[p, 1 - p]], dtype=torch.float64)

    steps = routed_steps(
        lambda x, h: (torch.tanh(0.5 * h[0] + x),),
        lambda x, h: (torch.tanh(-0.5 * h[0] + 2 * x),),
        route,
        [torch.full((1, 1), x, dtype=torch.float64) for x in (1.0, 0.0)],
        (torch.zeros(1, 1, dtype=torch.float64),),
        recurrence=recurrence,
    )
    assert [float(state[0]) for state, _ in steps] == pytest.approx(expected, abs=5e-7)


def test_the_release_reads_both_new_states_and_the_poster_the_mixed_old_one():
    seen = {"poster": [], "release": []}
    for recurrence, read in seen.items():

        def route(x, *states, read=read):
            read.append([float(h) for (h,) in states])
            return torch.tensor([[0.5, 0.5]])

        cells = (lambda x, h: (h[0] + 1,), lambda x, h: (h[0] + 3,))
        start = (torch.zeros(1, 1),)
        routed_steps(*cells, route, [None, None], start, recurrence=recurrence)
    assert seen["poster"] == [[0.0], [2.0]]
    assert seen["release"] == [[1.0, 3.0], [3.0, 6.0]]


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1.0, (0.731059, 0.268941)), (0.1, (0.999955, 0.000045)), (10.0, (0.524979, 0.475021))],
)
def test_flow_3_the_temperature_of_the_softmax(temperature, expected):
    weights = route_weights(torch.tensor([1.0, 0.0], dtype=torch.float64), temperature, hard=False)
    assert weights.tolist() == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("p", "charge"), [(0.8, 0.4463), (0.2, 3.2189)])
def test_the_regulariser_charges_for_the_route_that_is_not_favoured(p, charge):
    to_shared = {"layer": torch.tensor([[p]])}
    assert float(regulariser(to_shared)) == pytest.approx(charge, abs=5e-5)
    other = {"layer": torch.tensor([[1 - p]])}
    assert float(regulariser(other, "local")) == pytest.approx(charge, abs=5e-5)


def test_the_regulariser_is_finite_for_a_route_never_taken():
    charge = regulariser({"layer": torch.zeros(1, 1)})
    assert float(charge) == pytest.approx(-math.log(1e-6))


def test_the_regulariser_averages_over_layers_and_steps_but_not_over_instances():
    one, two = torch.tensor([[0.8, 0.2], [1.0, 1.0]]), torch.tensor([[0.5], [1.0]])
    charges = regulariser({"lstm": one, "head": two})
    expected = (0.5 * (0.446287 + 3.218876) + 1.386294) / 2
    assert charges.tolist() == pytest.approx([expected, 0.0], abs=1e-4)


# ---- routes ------------------------------------------------------------------------------------

LOGITS = st.floats(-30, 30, width=32)


@given(LOGITS, LOGITS, st.floats(0.05, 20))
def test_routes_sum_to_one_and_a_hard_one_is_never_both_nor_none(a, b, temperature):
    logits = torch.tensor([a, b])
    soft = route_weights(logits, temperature, hard=False)
    assert float(soft.sum()) == pytest.approx(1, abs=1e-6)
    assert ((soft >= 0) & (soft <= 1)).all()
    hard = route_weights(logits, temperature, hard=True)
    assert hard.tolist() == ([1.0, 0.0] if a >= b else [0.0, 1.0])


def test_a_soft_route_takes_something_of_both():
    soft = route_weights(torch.tensor([[3.0, -3.0], [-3.0, 3.0]]), 1.0, hard=False)
    assert ((soft > 0) & (soft < 1)).all()


def test_a_tie_goes_to_the_shared_route_and_not_to_zero():
    assert route_weights(torch.zeros(2), 1.0, hard=True).tolist() == [1.0, 0.0]


def test_a_diverged_local_layer_does_not_spoil_an_instance_routed_past_it():
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    shared, local = torch.ones(2, 3), torch.tensor([[math.nan] * 3, [2.0] * 3])
    mixed = mix(weights, shared, local, hard=True)
    assert mixed.tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "above 0"),
        ({"lam": -1.0}, "0 or more"),
        ({"favour": "both"}, '"global" or "local"; got "both"'),
        ({"recurrence": "paper"}, '"poster" or "release"'),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(RequestError, match=message):
        Routing(**wrong)


# ---- routed networks ---------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True])
def test_all_shared_is_the_shared_model_and_all_local_the_local_one(world, hard):
    task, x = world
    routing = replace(PLAIN, layers=every_layer(task))
    shared, local = models(task)
    for logits, expected in (((1e3, -1e3), shared), ((-1e3, 1e3), local)):
        policy = decided(task, routing, shared=logits[0], local=logits[1])
        # Embeddings are never routed, so both models get the same ones.
        mine = {k: expected[k] if "embedding" in k else v for k, v in shared.items()}
        out, _ = run_routed(task, routing, (mine, local, policy), x, hard=hard)
        assert_close(out, task.outputs(expected, x), atol=1e-6, rtol=0)


def every_layer(task):
    """Name all that can be routed: beside a recurrent layer, the head."""
    return ("lstm", "head") if hasattr(task.skeleton, "lstm") else None


def test_two_equal_models_answer_as_one_whatever_the_policy(world):
    task, x = world
    shared, _ = models(task)
    for hard in (False, True):
        out, _ = run_routed(task, Routing(), (shared, shared, drawn(task, Routing())), x, hard=hard)
        assert_close(out, task.outputs(shared, x), atol=1e-6, rtol=1e-5)


def test_two_equal_models_teach_the_policy_nothing(world):
    task, x = world
    routing = Routing()
    shared, _ = models(task)
    routed = routed_task(task, routing)
    policy = {k: v.requires_grad_() for k, v in drawn(task, routing).items()}
    out, _ = routed.call(routed_state(shared, shared, policy), x)
    out.square().sum().backward()
    assert all(p.grad is None or p.grad.abs().max() < 1e-5 for p in policy.values())


def test_routes_belong_to_the_instance(world):
    """Permuting a batch permutes routes and outputs, and the other instances do not matter."""
    task, x = world
    parts = (*models(task), drawn(task, Routing()))
    out, routes = run_routed(task, Routing(), parts, x)
    order = torch.tensor([3, 1, 4, 0, 2])
    permuted, permuted_routes = run_routed(task, Routing(), parts, x[order])
    alone, _ = run_routed(task, Routing(), parts, x[2:3])
    assert_close(permuted, out[order], atol=1e-6, rtol=1e-5)
    assert_close(permuted_routes, {k: v[order] for k, v in routes.items()}, atol=1e-6, rtol=1e-5)
    assert_close(alone, out[2:3], atol=1e-6, rtol=1e-5)


def test_instances_take_different_routes(world):
    task, x = world
    _, routes = run_routed(task, Routing(), (*models(task), drawn(task, Routing())), x)
    assert all(len(route.unique()) > 1 for route in routes.values())


def test_routing_twice_is_the_same_also_with_dropout_in_the_network(world):
    task, x = world
    parts = (*models(task), drawn(task, Routing()))
    first, second = (run_routed(task, Routing(), parts, x, hard=True) for _ in range(2))
    assert_close(first, second, atol=0, rtol=0)


def test_an_undecided_policy_averages_linear_layers():
    task = Task(lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))).seeing(VECTORS)
    shared, local = models(task)
    policy = decided(task, PLAIN, shared=0.0, local=0.0)
    out, _ = run_routed(task, PLAIN, (shared, local, policy), VECTORS)
    average = {k: (shared[k] + local[k]) / 2 for k in shared}
    assert_close(out, task.outputs(average, VECTORS))


@pytest.mark.parametrize("recurrence", ["poster", "release"])
def test_a_routed_lstm_is_two_torch_cells_mixed_at_every_step(recurrence):
    build, _ = NETWORKS["lstm"]
    task, routing = Task(build).seeing(TOKENS), Routing(recurrence=recurrence)
    shared, local = models(task)
    policy = drawn(task, routing)
    out, routes = run_routed(task, routing, (shared, local, policy), TOKENS)

    x = shared["embedding.weight"][TOKENS]
    for layer in range(2):
        cells = [torch_cell(model, layer) for model in (shared, local)]
        state = own = (torch.zeros(5, 4), torch.zeros(5, 4))
        outputs, taken = [], []
        for x_t in x.unbind(1):
            new = cells[0](x_t, state)
            own = cells[1](x_t, state if recurrence == "poster" else own)
            read = [state[0]] if recurrence == "poster" else [new[0], own[0]]
            p = reference_policy(policy, layer, torch.cat([x_t, *read], 1)).softmax(1)[:, :1]
            state = tuple(p * a + (1 - p) * b for a, b in zip(new, own, strict=True))
            outputs.append(state[0])
            taken.append(p[:, 0])
        x = torch.stack(outputs, 1)
        assert_close(routes[f"lstm[{layer}]"], torch.stack(taken, 1))
    assert_close(out, x @ shared["head.weight"].T + shared["head.bias"])


def torch_cell(model, layer):
    inputs = model[f"lstm.weight_ih_l{layer}"].shape[1]
    cell = nn.LSTMCell(inputs, 4)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cell.load_state_dict({name: model[f"lstm.{name}_l{layer}"] for name in names})
    return cell.requires_grad_(False)


def reference_policy(policy, layer, x):
    for number in (0, 2, 4):
        name = f"steps_0.{layer}.{number}"
        x = x @ policy[f"{name}.weight"].T + policy[f"{name}.bias"]
        x = x.relu() if number < 4 else x
    return x


def test_the_routed_network_is_differentiated_for_the_policy_alone():
    """Phase isolation needs no flags: what is no argument has no gradient."""
    build, x = NETWORKS["mlp"]
    task = Task(build).seeing(x)
    shared, local = models(task)
    routed, policy = routed_task(task, Routing()), drawn(task, Routing())

    def loss(policy):
        return routed.call(routed_state(shared, local, policy), x)[0].square().sum()

    grads = torch.func.grad(loss)(policy)
    assert grads.keys() == policy.keys()
    assert any(g.abs().max() > 0 for g in grads.values())


def test_names_of_the_routed_network_do_not_clash_with_a_networks_own():
    class Awkward(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.local, self.policy = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return self.policy(self.local(self.shared(x)))

    task = Task(Awkward).seeing(VECTORS)
    shared, local = models(task)
    policy = decided(task, PLAIN, shared=-1e3, local=1e3)
    out, routes = run_routed(task, PLAIN, (shared, local, policy), VECTORS, hard=True)
    assert list(routes) == ["shared", "local", "policy"]
    assert_close(out, task.outputs(local, VECTORS))


def test_a_routed_network_may_be_made_inside_vmap():
    """A worker may first meet it there: nothing is drawn when it is made."""
    build, x = NETWORKS["cnn with dropout"]
    task = Task(build).seeing(x)
    parts = routed_state(*models(task), drawn(task, Routing()))
    task = Task(build).seeing(x)  # nobody has routed this one yet
    stacked = vmap(lambda x: routed_task(task, Routing(), hard=True).call(parts, x)[0])(x[None])
    assert_close(stacked[0], routed_task(task, Routing(), hard=True).call(parts, x)[0])


def test_a_task_that_has_seen_no_input_is_refused():
    with pytest.raises(CapabilityError, match="seeing"):
        routed_task(Task(NETWORKS["mlp"][0]), Routing())


# ---- which layers ------------------------------------------------------------------------------


def names(network, layers=None):
    return [place.name for place in places(network, layers)]


def test_blocks_are_routed_by_default_and_norms_with_their_block():
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    assert names(network) == ["0+1", "3"]


def test_recurrent_layers_are_routed_alone_and_embeddings_never():
    assert names(NETWORKS["lstm"][0]()) == ["lstm"]
    assert names(NETWORKS["tied transformer"][0]()) == ["layers.0", "layers.1", "head"]


def test_a_network_without_modules_inside_is_one_layer():
    assert names(nn.Linear(3, 2)) == ["network"]


def test_a_recurrent_layer_and_the_head_can_be_routed_together():
    build, x = NETWORKS["lstm"]
    task, routing = Task(build).seeing(x), Routing(layers=("lstm", "head"))
    _, routes = run_routed(task, routing, (*models(task), drawn(task, routing)), x)
    assert {name: tuple(route.shape) for name, route in routes.items()} == {
        "head": (5, 1),
        "lstm[0]": (5, 6),
        "lstm[1]": (5, 6),
    }


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (("haed",), 'did you mean "head"'),
        (("",), "no module is called"),
        (("body", "body.0"), '"body.0" would be routed twice'),
        (("head", "head"), '"head" would be routed twice'),
    ],
)
def test_layers_that_cannot_be_meant_are_refused(layers, message):
    with pytest.raises(SelectorError, match=message):
        places(MLP((4,), 3), layers)


def test_a_list_of_layers_is_never_called_so_it_cannot_be_routed():
    network = NETWORKS["tied transformer"][0]()
    with pytest.raises(SelectorError, match=r'name its members, as "layers\.0"'):
        places(network, ("layers",))


def test_torchs_own_recurrent_layers_are_refused_with_the_one_to_use():
    with pytest.raises(CapabilityError, match=r"motet\.models\.LSTM"):
        places(nn.Sequential(nn.LSTM(3, 4)), None)


def test_a_network_without_parameters_is_refused():
    with pytest.raises(CapabilityError, match="nothing to route"):
        places(nn.ReLU(), None)


def test_tokens_without_an_embedding_are_refused():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            return self.head(x.float())

    with pytest.raises(CapabilityError, match="no embedding"):
        routed_task(Task(Counts).seeing(TOKENS), Routing())


def test_a_layer_that_does_not_return_one_row_per_instance_is_refused():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = LSTM(3, 4, num_layers=2)

        def forward(self, x):
            return self.lstm(x)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Wrapped()

        def forward(self, x):
            return self.encoder(x)[0]

    x = torch.zeros(5, 6, 3)
    task = Task(Network).seeing(x)
    routing = Routing(layers=("encoder",))
    with pytest.raises(CapabilityError, match="one row per instance"):
        run_routed(task, routing, (*models(task), drawn(task, routing)), x)


def test_only_tensors_of_routed_layers_are_named_as_routed():
    task = Task(NETWORKS["lstm"][0])
    assert all(name.startswith("lstm.") for name in routed_names(task, Routing()))
    assert routed_names(task, Routing(layers=("head",))) == {"head.weight", "head.bias"}
    assert routed_names(Task(lambda: nn.Linear(4, 3)), Routing()) == {"weight", "bias"}


# ---- shares ------------------------------------------------------------------------------------


def test_shares_count_local_routes_by_layer_and_class():
    routes = {"body": torch.tensor([[1.0], [0.0], [0.0]]), "head": torch.ones(3, 1)}
    rows = tuple(client_shares("a", routes, torch.tensor([0, 0, 2])))
    assert rows == (
        RouteShare("a", "body", 0, 0.5, 2),
        RouteShare("a", "body", 2, 1.0, 1),
        RouteShare("a", "head", 0, 0.0, 2),
        RouteShare("a", "head", 2, 0.0, 1),
    )
    table = RoutingShares("val", rows)
    assert table.by("layer") == pytest.approx({"body": 2 / 3, "head": 0.0})
    assert table.by("label") == pytest.approx({0: 0.25, 2: 0.5})
    assert table.by("client") == pytest.approx({"a": 1 / 3})
    assert "by layer: body 0.667, head 0.000" in str(table)


def test_shares_of_sequences_count_the_time_step_of_each_label():
    routes = {"lstm[0]": torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "head": torch.tensor([[1.0], [0]])}
    rows = client_shares("a", routes, torch.tensor([[5, 6], [6, 6]]))
    assert {(r.layer, r.label): (r.share, r.examples) for r in rows} == {
        ("lstm[0]", 5): (0.0, 1),
        ("lstm[0]", 6): (1.0, 3),
        ("head", 5): (0.0, 1),
        ("head", 6): (pytest.approx(2 / 3), 3),
    }


def test_shares_of_one_label_per_sequence_average_over_time():
    (row,) = client_shares("a", {"lstm[0]": torch.tensor([[1.0, 0.0]])}, torch.tensor([3]))
    assert row == RouteShare("a", "lstm[0]", 3, 0.5, 1)


def test_shares_of_a_regression_have_no_class():
    (row,) = client_shares("a", {"head": torch.tensor([[1.0], [0.0]])}, None)
    assert row == RouteShare("a", "head", None, 0.5, 2)
