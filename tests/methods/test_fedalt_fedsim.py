"""FedAlt and FedSim against arithmetic, each other, and what they must reduce to."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import Adam, Blocks, FedAlt, FedAvg, FedPer, FedRep, FedSim, LGFedAvg, Local, Mean, Sgd
from motet._core.schedules import Linear
from motet._core.tree import count_bytes, pick
from motet.errors import CapabilityError, RequestError, SelectorError

UNIFORM = Mean(weights="uniform")
BOTH = pytest.mark.parametrize("method", [FedAlt, FedSim])


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


# ---- Worlds ------------------------------------------------------------------------------------


class Line(nn.Module):
    """u x + v."""

    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.zeros(()))
        self.v = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.u * x + self.v


class SumOfTwo(nn.Module):
    """Two outputs, one from u and one from v: its squared error is separable."""

    def __init__(self):
        super().__init__()
        self.u = nn.Linear(3, 1)
        self.v = nn.Linear(3, 1)

    def forward(self, x):
        return torch.cat([self.u(x), self.v(x)], 1)


class Net(nn.Module):
    """A body with batch normalisation, and a head with some too."""

    def __init__(self, *, norm=True):
        super().__init__()
        # Normalisation takes a bias away again: it would have no gradient.
        self.body = nn.Linear(4, 6, bias=not norm)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        last = nn.BatchNorm1d(5) if norm else nn.Identity()
        self.neck = nn.Sequential(nn.Linear(6, 5, bias=not norm), last)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.neck(self.norm(self.body(x)).relu()).relu())


class FixedHead(nn.Module):
    """`Net` without normalisation, its neck and head held fixed as buffers."""

    def __init__(self, fixed):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.neck, self.head = _Fixed(fixed, "neck.0"), _Fixed(fixed, "head")

    def forward(self, x):
        return self.head(self.neck(self.body(x).relu()).relu())


class _Fixed(nn.Module):
    def __init__(self, values, path):
        super().__init__()
        self.register_buffer("weight", values[f"{path}.weight"].clone())
        self.register_buffer("bias", values[f"{path}.bias"].clone())

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def half_squared_error(outputs, y):
    return 0.5 * (outputs - y).square()


LINE = motet.Task(Line, loss=half_squared_error, kind="values")
PLAIN = motet.Task(lambda: Net(norm=False))
NORMED = motet.Task(Net)
V = ("neck", "head")


def alt_1(repeat_first=1):
    """The mini-example: x = (1, 2), y = (3, 1)."""
    first = torch.ones(repeat_first)
    return motet.data.from_arrays(
        {"1": (first, 3 * first), "2": (torch.tensor([2.0]), torch.tensor([1.0]))}
    )


def ragged(sizes=(7, 5, 9), seed=0):
    """Clients of unequal size, each with its own labelling rule."""
    rng = np.random.default_rng(seed)
    train = {}
    for i, size in enumerate(sizes):
        x = rng.normal(size=(size, 4)).astype(np.float32)
        train[f"c{i}"] = (x, (x @ rng.normal(size=(4, 3))).argmax(1))
    return motet.data.from_arrays(train, test=train, classes=3)


def line_run(method, backend, rounds=1, **world):
    settings = {"batch_size": None, "optimizer": Sgd(lr=0.1), "personal": ("v",)} | world
    data = alt_1(settings.pop("repeat_first", 1))
    return motet.run(method(**settings), LINE, data, rounds=rounds, backend=backend)


def personal_values(run):
    return [float(run.clients[c]["v"]) for c in ("1", "2")]


def uploads(run):
    """Each client's u after local training, before the server averages."""
    return [float(run.personal(c, point="after_local")["u"]) for c in ("1", "2")]


def digest(state):
    """Hash every tensor: equal digests are equal bits."""
    return {k: hashlib.sha256(v.detach().numpy().tobytes()).hexdigest() for k, v in state.items()}


def finish(method, task, data, backend="serial", rounds=3, **settings):
    return motet.run(method, task, data, rounds=rounds, backend=backend, **settings)


def assert_same(a, b, atol=1e-6):
    assert_close(a.server, b.server, atol=atol, rtol=0)
    for client in a.clients:
        assert_close(a.clients[client], b.clients[client], atol=atol, rtol=0)


# ---- ALT-1, to the printed digits --------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "after", "v", "uniform", "weighted"),
    [
        (FedSim, (0.30, 0.20), (0.30, 0.10), 0.25, 0.275),
        (FedAlt, (0.27, 0.18), (0.30, 0.10), 0.225, 0.2475),
    ],
)
def test_alt_1_after_one_round(method, after, v, uniform, weighted, backend):
    run = line_run(method, backend, reduce=UNIFORM)
    assert uploads(line_run(method, backend, rounds=0)) == pytest.approx(after, abs=1e-7)
    assert personal_values(run) == pytest.approx(v, abs=1e-7)
    assert float(run.server["u"]) == pytest.approx(uniform, abs=1e-7)
    by_examples = line_run(method, backend, repeat_first=3)
    assert float(by_examples.server["u"]) == pytest.approx(weighted, abs=1e-7)


def test_weights_by_batches_count_batches_not_examples(backend):
    # Client 1: 3 examples in batches of 2 are 2 steps and weight 2; client 2: 1 step, weight 1.
    run = line_run(FedSim, backend, repeat_first=3, batch_size=2, reduce=Mean(weights="batches"))
    assert float(run.server["u"]) == pytest.approx((2 * 0.54 + 0.20) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("method", "u", "v"),
    [(FedSim, 0.4125, (0.545, 0.14)), (FedAlt, 0.376875, (0.5475, 0.145))],
)
def test_alt_1_after_two_rounds(method, u, v, backend):
    run = line_run(method, backend, rounds=2)
    assert float(run.server["u"]) == pytest.approx(u, abs=1e-7)
    assert personal_values(run) == pytest.approx(v, abs=1e-7)


@pytest.mark.parametrize(
    ("method", "after", "v", "u"),
    [
        (FedSim, (0.54, 0.30), (0.54, 0.15), 0.42),
        (FedAlt, (0.4617, 0.2592), (0.57, 0.19), 0.36045),
    ],
)
def test_alt_1_with_two_steps(method, after, v, u, backend):
    run = line_run(method, backend, steps=2)
    assert uploads(line_run(method, backend, rounds=0, steps=2)) == pytest.approx(after, abs=1e-7)
    assert personal_values(run) == pytest.approx(v, abs=1e-7)
    assert float(run.server["u"]) == pytest.approx(u, abs=1e-7)


def test_one_step_of_fedalt_and_fedsim_differ_by_the_product_of_their_rates(backend):
    alt, sim = (uploads(line_run(m, backend, rounds=0)) for m in (FedAlt, FedSim))
    x, residual = np.array([1.0, 2.0]), np.array([-3.0, -1.0])
    assert np.array(alt) - np.array(sim) == pytest.approx(0.1 * 0.1 * x * residual, abs=1e-7)


@pytest.mark.parametrize(
    ("method", "losses"),
    [
        (FedSim, {0: 2.5, 1: 1.540625, 2: 1.043258, 5: 0.452676, 20: 0.018476}),
        (FedAlt, {0: 2.5, 1: 1.582031, 2: 1.079618, 5: 0.460392, 20: 0.018476}),
    ],
)
def test_fedsim_is_ahead_on_alt_1_and_both_end_at_the_same_loss(method, losses):
    for rounds, expected in losses.items():
        run = line_run(method, "serial", rounds=rounds)
        u = float(run.server["u"])
        v1, v2 = personal_values(run)
        loss = 0.25 * ((u + v1 - 3) ** 2 + (2 * u + v2 - 1) ** 2)
        assert loss == pytest.approx(expected, abs=1e-6)


# ---- Laws --------------------------------------------------------------------------------------


def test_fedalt_without_personal_steps_is_fedavg_on_a_model_whose_personal_part_is_fixed(backend):
    data, start = ragged(), PLAIN.init(motet.Key(3))
    frozen = FedAlt(personal=V, personal_steps=0, epochs=2, batch_size=4)
    still = FedSim(personal=V, personal_optimizer=Sgd(lr=0.0), epochs=2, batch_size=4)
    fixed = motet.Task(lambda: FixedHead(start))
    body = pick(start, PLAIN.select("body"))
    expected = finish(FedAvg(epochs=2, batch_size=4), fixed, data, backend, init=body)
    for method in (frozen, still):
        run = finish(method, PLAIN, data, backend, init=start)
        assert_close(run.server, pick(expected.server, run.server), atol=1e-6, rtol=0)
        for client in data.clients:
            assert digest(run.clients[client]) == digest(pick(start, PLAIN.select(V)))


def test_one_full_step_of_fedsim_is_centralised_gradient_descent(backend):
    data, start = ragged(), PLAIN.init(motet.Key(1))
    method = FedSim(personal=V, batch_size=None, optimizer=Sgd(lr=0.2), reduce=UNIFORM)
    run = finish(method, PLAIN, data, backend, rounds=1, init=start)
    leaves = {k: v.clone().requires_grad_() for k, v in start.items()}
    losses = []
    for client in data.clients:
        x, y = data.examples(client, "train")
        own = {k: v for k, v in leaves.items() if k.startswith(("neck", "head"))}
        loss = nn.functional.cross_entropy(
            torch.func.functional_call(Net(norm=False), leaves, x), y
        )
        slopes = torch.autograd.grad(loss, list(own.values()), retain_graph=True)
        stepped = {k: start[k] - 0.2 * g for k, g in zip(own, slopes, strict=True)}
        assert_close(run.clients[client], stepped, atol=1e-6, rtol=0)
        losses.append(loss)
    shared = [leaves[k] for k in run.server]
    mean_slope = torch.autograd.grad(torch.stack(losses).mean(), shared)
    expected = {k: start[k] - 0.2 * g for k, g in zip(run.server, mean_slope, strict=True)}
    assert_close(run.server, expected, atol=1e-6, rtol=0)


def test_on_a_separable_loss_fedalt_and_fedsim_walk_the_same_path(backend):
    rng = np.random.default_rng(0)
    data = motet.data.from_arrays(
        {c: (rng.normal(size=(n, 3)), rng.normal(size=(n, 2))) for c, n in (("a", 5), ("b", 8))}
    )
    task = motet.Task(SumOfTwo, loss="mse")
    common = {"personal": ("v",), "steps": 4, "batch_size": 2, "optimizer": Sgd(lr=0.1)}
    alt = finish(FedAlt(replay=True, **common), task, data, backend)
    sim = finish(FedSim(**common), task, data, backend)
    assert_same(alt, sim)
    shuffled = finish(FedAlt(**common), task, data, backend)
    assert not torch.equal(shuffled.clients["a"]["v.weight"], sim.clients["a"]["v.weight"])


@BOTH
def test_with_an_empty_personal_part_both_are_fedavg_and_say_so(method, backend):
    data = ragged()
    run = finish(method(personal=(), batch_size=4), NORMED, data, backend)
    assert_same(run, finish(FedAvg(batch_size=4), NORMED, data, backend))
    assert any("fedavg" in warning for warning in run.warnings)


@pytest.mark.parametrize("method", [FedAlt(replay=True, personal=("body", "norm", *V)), FedSim])
def test_with_an_empty_shared_part_both_are_local_training(method, backend):
    everything = ("body", "norm", *V)
    method = method if isinstance(method, FedAlt) else FedSim(personal=everything)
    data = ragged()
    run = finish(replace(method, batch_size=4), NORMED, data, backend)
    assert_same(run, finish(Local(batch_size=4), NORMED, data, backend))
    assert run.server == {}
    assert any("local" in warning for warning in run.warnings)


def test_fedsim_with_the_head_as_personal_part_is_fedper(backend):
    data = ragged()
    for task, norm in ((PLAIN, "average"), (NORMED, "average"), (NORMED, "local_stats")):
        sim = FedSim(personal=("head",), epochs=2, batch_size=4, norm=norm)
        per = FedPer(personal=("head",), epochs=2, batch_size=4, norm=norm, head_init="common")
        settings = {"rounds": 3, "cohort": 2, "seed": 5}
        a = finish(sim, task, data, backend, **settings)
        b = finish(per, task, data, backend, **settings)
        assert_same(a, b, atol=0)


def test_the_fine_tuning_variant_of_fedper_is_a_personal_phase_and_then_fedsim(backend):
    data, start = ragged(), PLAIN.init(motet.Key(2))
    variant = FedPer(personal=V, head_epochs=1, batch_size=None, head_init="common")
    expected = finish(variant, PLAIN, data, backend, rounds=1, init=start)
    phase = FedAlt(personal=V, personal_epochs=1, shared_epochs=0, batch_size=None)
    first = finish(phase, PLAIN, data, backend, rounds=1, init=start)
    joint = FedSim(personal=V, batch_size=None)
    heads = {client: first.clients[client] for client in data.clients}
    second = finish(joint, PLAIN, data, backend, rounds=1, init=start, init_clients=heads)
    assert_same(second, expected)


def test_fedrep_is_fedalt_with_its_own_number_of_epochs(backend):
    data = ragged()
    rep = FedRep(personal=("head",), head_epochs=3, epochs=1, batch_size=4)
    alt = FedAlt(personal=("head",), personal_epochs=3, shared_epochs=1, batch_size=4)
    assert_same(finish(rep, NORMED, data, backend), finish(alt, NORMED, data, backend), atol=0)


def test_lg_fedavg_is_fedsim_with_the_lower_layers_as_personal_part(backend):
    data = ragged()
    lg = LGFedAvg(shared=("head",), batch_size=4, reduce=UNIFORM)
    sim = FedSim(personal=("body", "norm", "neck"), batch_size=4, reduce=UNIFORM)
    assert_same(finish(lg, NORMED, data, backend), finish(sim, NORMED, data, backend), atol=0)


@BOTH
def test_a_server_step_of_one_is_plain_averaging(method, backend):
    data = ragged()
    plain = finish(method(personal=V, batch_size=4), NORMED, data, backend)
    stepped = method(personal=V, batch_size=4, server_optimizer=Sgd(lr=1.0))
    assert_same(finish(stepped, NORMED, data, backend), plain)


@BOTH
def test_the_first_step_of_adam_on_the_server_moves_every_coordinate_by_its_rate(method, backend):
    adam = Adam(lr=5e-5)
    run = line_run(method, backend, server_optimizer=adam)
    assert float(run.server["u"]) == pytest.approx(5e-5, rel=1e-4)


# ---- What moves, and what must not -------------------------------------------------------------


@BOTH
def test_the_parts_partition_the_model_and_only_the_shared_part_is_sent(method, backend):
    data = ragged()
    run = next(motet.rounds(method(personal=V), PLAIN, data, rounds=1, backend=backend)).run
    shared, private = set(run.server), set(run.clients["c0"])
    assert shared.isdisjoint(private)
    assert shared | private == set(PLAIN.names)
    bytes_up = 4 * sum(v.numel() for v in run.server.values()) * len(data.clients)
    assert run.advance().bytes_up == bytes_up == count_bytes(run.server) * len(data.clients)


@BOTH
@pytest.mark.parametrize(
    ("personal", "kept"),
    [
        (("input",), ("body.", "norm.")),
        (("head",), ("head.",)),
        (("norm",), ("norm.",)),
        (("neck.1", "head"), ("neck.1.", "head.")),
        (Blocks(last=2), ("neck.", "head.")),
    ],
)
def test_any_part_can_be_personal(method, personal, kept, backend):
    run = finish(method(personal=personal, batch_size=4), NORMED, ragged(), backend, rounds=1)
    private = {name for name in NORMED.names if name.startswith(kept)}
    assert set(run.clients["c0"]) == private
    assert set(run.server) == set(NORMED.names) - private
    assert all(run.clients["c0"][k].isfinite().all() for k in private)


@BOTH
def test_no_personal_tensor_reaches_the_server(method, backend):
    run = finish(method(personal=V), PLAIN, ragged(), backend)
    held = {v.data_ptr() for v in run.server.values()}
    for kept in run.clients.values():
        for leaf in kept.values():
            assert leaf.data_ptr() not in held
            assert not any(torch.equal(leaf, shared) for shared in run.server.values())


@BOTH
def test_clients_that_were_not_sampled_keep_their_personal_part_bit_by_bit(method, backend):
    data = ragged()
    before = {}
    for done in motet.rounds(method(personal=V), PLAIN, data, rounds=4, cohort=1, backend=backend):
        after = {client: digest(done.run.clients[client]) for client in data.clients}
        for client in before:
            changed = after[client] != before[client]
            assert changed == (client in done.cohort)
        before = after


@BOTH
def test_a_client_without_a_gradient_does_not_move_its_personal_part(method, backend):
    fits = torch.tensor([1.0])
    data = motet.data.from_arrays({"fits": (fits, fits * 0), "not": (fits, fits)})
    run = motet.run(method(personal=("v",)), LINE, data, rounds=1, backend=backend)
    assert float(run.clients["fits"]["v"]) == 0
    assert float(run.clients["not"]["v"]) != 0


@pytest.mark.parametrize("norm", ["average", "local_stats", "local_layers"])
def test_each_phase_of_fedalt_changes_its_own_part_and_no_other_bit(norm, backend):
    """Momentum, weight decay and running statistics would each betray themselves here."""
    data = ragged()
    heavy = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)
    method = FedAlt(personal=V, norm=norm, optimizer=heavy, batch_size=4, epochs=2)
    start = finish(method, NORMED, data, backend, rounds=0)
    own_layers = NORMED.select("norm") if norm == "local_layers" else frozenset()
    personal = NORMED.select(V) | own_layers  # statistics of shared layers move with those layers

    def after(**phases):
        run = finish(replace(method, **phases), NORMED, data, backend, rounds=0)
        return {c: digest(run.personal(c, point="after_local")) for c in data.clients}

    first, both = after(shared_epochs=0), after()
    for client in data.clients:
        before = digest(start.personal(client, point="after_broadcast"))
        moved = {k for k in before if first[client][k] != before[k]}
        assert moved == personal
        moved = {k for k in before if both[client][k] != first[client][k]}
        assert moved == set(NORMED.names) - personal


def test_the_gradient_bound_of_the_shared_phase_sees_the_shared_gradient_only(backend):
    """In the authors' code the last gradient of v is still there, and -.25 comes out as -.1768."""
    settings = {"optimizer": Sgd(lr=0.1, clip=0.25), "personal_optimizer": Sgd(lr=0.0)}
    alt = line_run(FedAlt, backend, rounds=0, **settings)
    assert uploads(alt)[0] == pytest.approx(0.1 * 0.25, abs=1e-6)
    # FedSim trains both parts in one phase, so with one optimizer its bound covers both.
    sim = line_run(FedSim, backend, rounds=0, optimizer=Sgd(lr=0.1, clip=0.25))
    assert uploads(sim)[0] == pytest.approx(0.1 * 0.1768, abs=1e-5)


def test_fedalt_reports_both_phases_as_work():
    data = ragged()
    alt = next(motet.rounds(FedAlt(personal=V), PLAIN, data, rounds=1))
    sim = next(motet.rounds(FedSim(personal=V), PLAIN, data, rounds=1))
    assert alt.gradients == 2 * sim.gradients == 2 * 21


def test_each_phase_has_its_own_number_of_steps_and_its_own_rate(backend):
    # v: two steps at rate 0.2 on residuals 3, 2.4; then u: one step at 0.1 on the residual 1.92.
    run = line_run(
        FedAlt, backend, rounds=0, personal_steps=2, shared_steps=1, personal_optimizer=Sgd(lr=0.2)
    )
    trained = run.personal("1", point="after_local")
    assert float(trained["v"]) == pytest.approx(0.6 + 0.48, abs=1e-6)
    assert float(trained["u"]) == pytest.approx(0.192, abs=1e-6)


# ---- The pull on v -----------------------------------------------------------------------------


@BOTH
def test_the_pull_is_c_times_the_squared_distance_without_a_half(method, backend):
    # Step 1 from v_0 = 1: residual -2, pull 0, so v = 1.2. Step 2, u frozen or at rate 0: residual
    # -1.8, pull 2 * 0.5 * 0.2, so v = 1.2 + 0.1 * (1.8 - 0.2).
    u_still = {"shared_steps": 0} if method is FedAlt else {}
    made = method(
        personal=("v",),
        pull=0.5,
        steps=2,
        batch_size=None,
        optimizer=Sgd(lr=0.0),
        personal_optimizer=Sgd(lr=0.1),
        **u_still,
    )
    run = motet.run(made, LINE, alt_1(), rounds=1, backend=backend, init={"v": 1.0})
    assert float(run.clients["1"]["v"]) == pytest.approx(1.36, abs=1e-6)
    # Towards zero the first step feels it too: v = 1 + .1 (2 - 1) = 1.1, then 1.1 + .1 (1.9 - 1.1).
    to_zero = replace(made, pull_to="zero")
    run = motet.run(to_zero, LINE, alt_1(), rounds=1, backend=backend, init={"v": 1.0})
    assert float(run.clients["1"]["v"]) == pytest.approx(1.18, abs=1e-6)


@BOTH
def test_a_strong_pull_holds_v_at_its_start_over_rounds_and_fine_tuning(method, backend):
    start = PLAIN.init(motet.Key(4))
    made = method(personal=V, pull=10.0, batch_size=4, optimizer=Sgd(lr=0.02))
    run = finish(made, PLAIN, ragged(), backend, rounds=4, init=start)
    free = finish(replace(made, pull=0.0), PLAIN, ragged(), backend, rounds=4, init=start)

    def distance(run):
        model = run.personal("c0")
        return sum(float((model[k] - start[k]).square().sum()) for k in PLAIN.select(V))

    assert distance(run) < 0.05 * distance(free)


@BOTH
def test_the_anchor_of_the_pull_stays_at_the_client_and_out_of_the_model(method, backend):
    run = finish(method(personal=V, pull=0.1), NORMED, ragged(), backend)
    assert "start/head.weight" in run.clients["c0"]
    assert not any("start/" in name for name in run.server)
    for point in ("after_broadcast", "after_local", "after_adapt"):
        assert set(run.personal("c0", point=point)) == set(NORMED.names)


# ---- Stateless clients -------------------------------------------------------------------------


@BOTH
def test_stateless_clients_start_from_the_common_v_in_every_round(method, backend):
    data, start = ragged(), PLAIN.init(motet.Key(6))
    forgetful = method(personal=V, keep_personal=False, batch_size=4)
    run = finish(forgetful, PLAIN, data, backend, rounds=2, init=start)
    for client in data.clients:
        assert digest(run.clients[client]) == digest(pick(start, PLAIN.select(V)))
    # The second round is the first round of a stateful method that starts from the same u and v_0.
    # (Full batches, so that both rounds walk the same data.)
    whole = replace(forgetful, batch_size=None)
    first = finish(whole, PLAIN, data, backend, rounds=1, init=start)
    second = finish(whole, PLAIN, data, backend, rounds=2, init=start)
    again = finish(
        replace(whole, keep_personal=True),
        PLAIN,
        data,
        backend,
        rounds=1,
        init=start | first.server,
    )
    assert_close(second.server, again.server, atol=1e-6, rtol=0)


@BOTH
def test_stateless_clients_still_keep_the_statistics_that_a_policy_leaves_with_them(
    method, backend
):
    forgetful = method(personal=V, keep_personal=False, norm="local_stats")
    start = finish(forgetful, NORMED, ragged(), backend, rounds=0).clients["c0"]
    kept = finish(forgetful, NORMED, ragged(), backend, rounds=1).clients["c0"]
    changed = {k for k in kept if not torch.equal(kept[k], start[k])}
    assert changed == {k for k in NORMED.names if k.startswith("norm.") and NORMED.is_buffer(k)}


@BOTH
def test_a_stateless_v_becomes_personal_by_the_final_fine_tuning(method, backend):
    run = finish(method(personal=V, keep_personal=False), PLAIN, ragged(), backend)
    before = [run.personal(c, point="after_broadcast")["head.weight"] for c in ("c0", "c1")]
    after = [run.personal(c)["head.weight"] for c in ("c0", "c1")]
    assert torch.equal(before[0], before[1])
    assert not torch.equal(after[0], after[1])
    with pytest.raises(CapabilityError, match="after_adapt"):
        run.personal("c0", point="after_local")


# ---- Final fine-tuning, and how clients are served ---------------------------------------------


@BOTH
def test_final_fine_tuning_moves_one_clients_v_and_nothing_else(method, backend):
    run = finish(method(personal=V, optimizer=Sgd(lr=0.01)), NORMED, ragged(), backend)
    server, kept = digest(run.server), {c: digest(run.clients[c]) for c in run.clients}
    before = digest(run.personal("c0", point="after_broadcast"))
    tuned = digest(run.personal("c0"))
    assert {k for k in before if before[k] != tuned[k]} == set(NORMED.select(V))
    assert digest(run.server) == server
    assert {c: digest(run.clients[c]) for c in run.clients} == kept


@BOTH
def test_final_fine_tuning_lowers_the_training_loss_and_is_reported_before_and_after(
    method, backend
):
    run = finish(method(personal=V, optimizer=Sgd(lr=0.05)), PLAIN, ragged(), backend)
    before = run.evaluate(split="train", point="after_broadcast")
    after = run.evaluate(split="train", point="after_adapt")
    assert all(a.loss < b.loss for a, b in zip(after.rows, before.rows, strict=True))


@BOTH
def test_without_final_epochs_a_client_is_served_as_training_left_it(method, backend):
    run = finish(method(personal=V, final_epochs=0), PLAIN, ragged(), backend)
    assert digest(run.personal("c0")) == digest(run.personal("c0", point="after_broadcast"))


@BOTH
def test_final_fine_tuning_keeps_its_rate_when_the_schedule_has_decayed_to_nothing(method, backend):
    made = method(personal=("v",), batch_size=None, final_epochs=1, schedule=Linear(warmup=0.1))
    run = motet.run(made, LINE, alt_1(), rounds=5, backend=backend)
    assert run.setting.method.schedule(5, 5) == 0
    u, v = float(run.server["u"]), float(run.clients["1"]["v"])
    assert float(run.personal("1")["v"]) == pytest.approx(v + 0.1 * (3 - u - v), abs=1e-6)


def test_the_linear_schedule_starts_at_nothing_peaks_after_a_tenth_and_ends_near_nothing(backend):
    schedule, total = Linear(warmup=0.1), 500
    assert schedule(0, total) == 0
    assert schedule(50, total) == 1
    assert schedule(total - 1, total) == pytest.approx(1 / (0.9 * total))
    # With a first factor of 0 the first round changes nothing.
    run = line_run(FedAlt, backend, schedule=schedule)
    assert float(run.server["u"]) == 0
    assert personal_values(run) == [0, 0]


@BOTH
def test_a_new_client_fits_its_own_v_and_leaves_u_alone(method, backend):
    run = finish(method(personal=V, optimizer=Sgd(lr=0.05)), NORMED, ragged(), backend)
    x, y = run.setting.federation.examples("c1", "train")
    served = run.adapt(x, y)
    shared = {k: served.personal[k] for k in run.server}
    assert digest(shared) == digest(run.server)
    start = run.setting.fresh_client("nobody")
    assert not torch.equal(served.personal["head.weight"], start["head.weight"])


@BOTH
def test_a_run_starts_from_the_model_that_fedavg_has_trained(method, backend):
    data = ragged()
    pretrained = finish(FedAvg(epochs=2), NORMED, data, backend)
    run = finish(method(personal=V), NORMED, data, backend, rounds=0, init=pretrained.server)
    for client in data.clients:
        assert digest(run.personal(client, point="after_broadcast")) == digest(pretrained.server)
    x, _ = data.examples("c0", "test")
    arrived = run.predict("c0", x, point="after_broadcast")
    assert_close(arrived, pretrained.predict("c0", x), atol=1e-6, rtol=0)


# ---- Refusals ----------------------------------------------------------------------------------


@BOTH
def test_a_typo_in_the_personal_part_lists_the_names(method):
    with pytest.raises(SelectorError, match='did you mean "head"'):
        finish(method(personal=("haed",)), PLAIN, ragged())


@BOTH
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"pull": -1.0}, "pull="),
        ({"pull_to": "start"}, "pull_to="),
        ({"final_epochs": -1}, "0 or more"),
        ({"epochs": 1, "steps": 1}, "not both"),
    ],
)
def test_hyperparameters_that_mean_nothing_are_refused_at_once(method, wrong, says):
    with pytest.raises(RequestError, match=says):
        method(**wrong)


def test_a_phase_counts_epochs_or_steps_but_not_both():
    with pytest.raises(RequestError, match="not both"):
        FedAlt(personal_epochs=1, personal_steps=1)
