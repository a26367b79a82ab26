"""Flow: its phases, its data, what it sends and keeps, its reductions and its switches."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from routed_worlds import (
    LR,
    LSTM_WORLD,
    NET,
    STILL,
    Net,
    Normed,
    changed,
    digest,
    finish,
    parts,
    work,
    world,
)
from torch.testing import assert_close

import motet
from motet import Adam, FedAvg, Sgd, Task
from motet._core.tree import count_bytes, slot
from motet._training.fitting import fit
from motet.analysis import routing_shares, share_harmed
from motet.errors import CapabilityError, RequestError, SelectorError
from motet.methods._flow.method import Flow, split_policy
from motet.models import CharLSTM


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


# ---- phases ------------------------------------------------------------------------------------


def test_the_local_phase_changes_only_the_local_model():
    """Freeze audit, R8: with no step on the second half, the upload is the download."""
    run = finish(Flow(optimizer=LR, epochs=0), rounds=0)
    down, client, data, task = work(run)
    local = run.setting.method.derive_local(down, data, task)
    shared, _ = split_policy(down)
    assert changed(shared, local) == set(shared)
    up, _ = run.setting.method.client_update(down, client, data, task)
    assert changed(down, up) == set()


def test_the_policy_phase_changes_only_the_policy():
    run = finish(Flow(optimizer=LR), rounds=1)
    down, *_ = work(run)
    shared, policy = split_policy(down)
    mine, _, tuned = parts(run.personal("c0"))
    assert changed(shared, mine) == set()
    assert changed(slot("policy", policy), tuned) == set(tuned)


def test_the_global_phase_changes_only_the_global_model():
    run = finish(Flow(optimizer=LR, policy_optimizer=STILL), rounds=0)
    down, client, data, task = work(run)
    shared, _ = split_policy(down)
    up, _ = run.setting.method.client_update(down, client, data, task)
    assert changed(down, up) == set(shared)


def test_frozen_means_frozen_under_momentum_and_weight_decay():
    """The release moves frozen weights by leftover momentum; here they are no argument at all."""
    method = Flow(optimizer=STILL, policy_optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.1))
    run = finish(method, rounds=0)
    down, client, data, task = work(run)
    up, _ = method.client_update(down, client, data, task)
    _, policy = split_policy(down)
    assert changed(down, up) == set(policy)


def test_the_policy_phase_touches_no_running_statistics():
    method = Flow(optimizer=STILL, policy_optimizer=LR)
    task = Task(Normed)
    run = finish(method, task, rounds=1)
    shared, _, _ = parts(run.personal("c0"))
    assert changed(split_policy(run.server)[0], shared) == set()


@pytest.mark.parametrize("optimizer", [LR, Sgd(lr=0.1, clip=0.05), Adam(lr=0.01)], ids=repr)
def test_one_joint_step_is_a_policy_step_and_then_a_global_one(optimizer):
    """The paper alternates, batch by batch; here that is written out, and compared."""
    method = Flow(optimizer=optimizer, lam=0.05, batch_size=4, epochs=2)
    run = finish(method, Task(partial(Net, 0.3)), rounds=0)
    down, client, data, task = work(run)
    up, _ = method.client_update(down, client, data, task)

    local = method.derive_local(down, data, task)
    shared, policy = split_policy(down)
    policy_moments, shared_moments = optimizer.init(policy), optimizer.init(shared)
    for batch in data["shared"].steps():
        routed = partial(routed_loss, method, task, shared, local, batch)
        grads = torch.func.grad(routed)(policy)
        policy, policy_moments = optimizer.step(grads, policy_moments, policy, 1.0)
        grads = torch.func.grad(lambda w, batch=batch: task.loss(w, batch).value)(shared)
        shared, shared_moments = optimizer.step(grads, shared_moments, shared, 1.0)
    assert_close(up, shared | policy, atol=1e-6, rtol=1e-5)


def routed_loss(method, task, shared, local, batch, policy):
    """CE + lambda R, softly routed, with none of Flow's own code but the network."""
    state = {f"shared.{k}": v for k, v in shared.items()}
    state |= {f"local.{k}": v for k, v in local.items()}
    state |= {k.replace("policy/", "policy."): v for k, v in policy.items()}
    outputs, to_shared = method.routed(task).call(state, batch.x)
    p = torch.cat(list(to_shared.values()), dim=1)
    losses = F.cross_entropy(outputs, batch.y, reduction="none")
    losses = losses - method.lam * (p.square() + 1e-6).log().mean(1)
    return (losses * batch.weight).sum() / batch.weight.sum()


def test_training_routes_softly_and_inference_routes_hard():
    run = finish(Flow(optimizer=LR))
    x = run.setting.federation.examples("c0", "test").x
    personal, task = run.personal("c0"), run.setting.task
    method = run.setting.method
    soft, hard = (method.routed(task, hard=hard).call(personal, x) for hard in (False, True))
    assert all(((p > 0) & (p < 1)).all() for p in soft[1].values())
    assert all(((p == 0) | (p == 1)).all() for p in hard[1].values())
    assert_close(method.predict(personal, x, task), hard[0].softmax(-1))
    assert_close(run.predict("c0", x), hard[0].softmax(-1))


# ---- data --------------------------------------------------------------------------------------


def test_the_halves_are_disjoint_and_make_up_the_training_data():
    run = finish(Flow(), rounds=0)
    for client, size in (("c0", 23), ("c1", 14), ("c2", 9)):
        _, _, data, _ = work(run, client)
        halves = [set(data[phase].rows.flatten().tolist()) for phase in ("local", "shared")]
        assert halves[0] & halves[1] == set()
        assert halves[0] | halves[1] == set(range(size))


def test_serving_keeps_to_the_same_halves():
    run = finish(Flow(), rounds=0)
    _, _, data, _ = work(run)
    served = run.setting.data("c0", run.setting.serving_plans("after_adapt"), 7)
    for trained, adapted in (("local", "local"), ("shared", "policy")):
        assert set(data[trained].rows.flatten().tolist()) == set(
            served[adapted].rows.flatten().tolist()
        )


def test_a_client_with_one_example_uses_it_for_both_halves(backend):
    run = finish(Flow(optimizer=LR), backend=backend)
    _, _, data, _ = work(run, "c3")
    assert data["local"].rows.unique().tolist() == data["shared"].rows.unique().tolist() == [0]
    assert run.predict("c3", torch.zeros(2, 4)).isfinite().all()


def test_all_data_train_everything_if_the_halves_are_not_disjoint():
    run = finish(Flow(disjoint=False), rounds=0)
    _, _, data, _ = work(run)
    for phase in ("local", "shared"):
        assert set(data[phase].rows.flatten().tolist()) == set(range(23))


def test_uploads_weigh_what_the_global_model_has_seen():
    run = finish(Flow(), rounds=0)
    assert [run.setting.weight(c) for c in ("c0", "c1", "c2", "c3")] == [11, 7, 4, 1]
    whole = finish(Flow(disjoint=False), rounds=0)
    assert [whole.setting.weight(c) for c in ("c0", "c1", "c2", "c3")] == [23, 14, 9, 1]


# ---- what crosses the network ------------------------------------------------------------------


def test_the_payload_is_the_model_and_the_policy_and_nothing_else(backend):
    """Payload audit, R7: no tensor of the local model, no bytes for it either way."""
    run = motet._engine.federation.start(Flow(), NET, world(), rounds=1, backend=backend)
    done = run.advance()
    model, policy = NET.names, slot("policy", run.server)
    assert run.server.keys() == {*model, *(f"policy/{name}" for name in policy)}
    one_way = 4 * count_bytes(run.server)
    assert (done.bytes_down, done.bytes_up) == (one_way, one_way)


def test_an_upload_equals_no_tensor_of_the_local_model():
    run = finish(Flow(optimizer=LR), rounds=0)
    down, client, data, task = work(run)
    up, _ = run.setting.method.client_update(down, client, data, task)
    local = run.setting.method.derive_local(down, data, task)
    assert not {*digest(up).values()} & {*digest(local).values()}


def test_a_client_keeps_nothing_between_rounds(backend):
    run = finish(Flow(), backend=backend)
    assert all(run.clients[client] == {} for client in run.clients)
    assert not Flow.stateful


def test_a_client_run_twice_from_one_server_state_sends_the_same():
    run = finish(Flow(optimizer=LR), rounds=1)
    first, second = (run.setting.method.client_update(*work(run))[0] for _ in range(2))
    assert digest(first) == digest(second)


# ---- the local model ---------------------------------------------------------------------------


def test_the_local_model_is_the_global_one_fine_tuned_on_its_half(backend):
    """Ruling of 6.6: from w_g, anew each time; the release federates a second copy."""
    method = Flow(optimizer=LR, local_epochs=2)
    run = finish(method, backend=backend)
    shared, local, _ = parts(run.personal("c0"))
    served = run.setting.data("c0", run.setting.serving_plans("after_adapt"), run.rounds_done)
    tuned = fit(NET, shared, served["local"], LR)
    assert_close(local, tuned, atol=1e-6, rtol=1e-5)


def test_without_local_steps_the_client_predicts_as_the_global_model(backend):
    """Relation 0.4(8): w_l equals w_g, so that no route matters."""
    run = finish(Flow(optimizer=LR, local_epochs=0), backend=backend)
    shared, local, _ = parts(run.personal("c0"))
    assert changed(shared, local) == set()
    x = run.setting.federation.examples("c0", "test").x
    assert_close(run.predict("c0", x), NET.predict(shared, x))
    assert run.warnings == (
        "flow with local_epochs=0 predicts as w_g alone: the local model equals it.",
    )


@pytest.mark.parametrize(("lam", "moves"), [(0.0, False), (0.1, True)])
def test_without_local_steps_only_the_regulariser_moves_the_policy(lam, moves, backend):
    """While a client is served w_g stands still, so that the cross entropy has no gradient."""
    run = finish(Flow(optimizer=LR, local_epochs=0, lam=lam), rounds=1, backend=backend)
    _, _, tuned = parts(run.personal("c0"))
    gap = max(float((tuned[k] - v).abs().max()) for k, v in slot("policy", run.server).items())
    assert gap > 1e-3 if moves else gap < 1e-6


# ---- reductions --------------------------------------------------------------------------------


@pytest.mark.parametrize("local_epochs", [0, 2])
@pytest.mark.parametrize("build", [Net, Normed])
def test_on_all_data_the_global_model_is_fedavgs(build, local_epochs, backend):
    """Neither the policy nor the local phase leaves a trace in w_g."""
    task, same = Task(build), {"optimizer": LR, "epochs": 2, "batch_size": 8}
    flow = finish(Flow(disjoint=False, local_epochs=local_epochs, **same), task, backend=backend)
    fedavg = finish(FedAvg(**same), task, backend=backend)
    assert_close(split_policy(flow.server)[0], fedavg.server, atol=2e-6, rtol=1e-5)


def test_on_halves_the_global_model_is_fedavgs_on_the_second_halves():
    data, same = world(), {"optimizer": LR, "epochs": 1, "batch_size": None}
    flow = finish(Flow(**same), data=data, rounds=2)
    seconds = {}
    for client in data.clients:
        _, _, phases, _ = work(flow, client)
        rows, (x, y) = phases["shared"].rows.unique(), data.examples(client, "train")
        seconds[client] = (x[rows], y[rows])
    fedavg = finish(FedAvg(**same), data=motet.data.from_arrays(seconds, classes=3), rounds=2)
    assert_close(split_policy(flow.server)[0], fedavg.server, atol=2e-6, rtol=1e-5)


def test_a_large_regulariser_sends_everybody_to_the_global_model(backend):
    method = Flow(optimizer=LR, policy_optimizer=Sgd(lr=0.01, momentum=0.9), lam=30.0)
    run = finish(method, backend=backend, rounds=4)
    task, federation = run.setting.task, run.setting.federation
    for client in federation.clients:
        _, soft = method.routed(task).call(
            run.personal(client), federation.examples(client, "test").x
        )
        assert all(p.mean() > 0.95 for p in soft.values())
    personal, alone = run.evaluate(), run.evaluate(point="after_broadcast")
    assert personal.values.tolist() == alone.values.tolist()
    assert share_harmed(personal, alone) == 1.0


# ---- switches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("favour", "taken"), [("global", 0.0), ("local", 1.0)])
def test_the_regulariser_favours_the_global_route_unless_told_otherwise(favour, taken, backend):
    method = Flow(
        optimizer=LR, policy_optimizer=Sgd(lr=0.01, momentum=0.9), lam=30.0, favour=favour
    )
    assert Flow().favour == "global"
    run = finish(method, backend=backend, rounds=4)
    assert routing_shares(run).share == taken


def test_the_posters_recurrence_is_the_default_and_the_releases_another():
    task, data = Task(lambda: CharLSTM((5,), 7, embedding=3, hidden=4)), world(**LSTM_WORLD)
    poster, release = (
        finish(Flow(optimizer=LR, recurrence=r), task, data, rounds=1)
        for r in ("poster", "release")
    )
    assert Flow().recurrence == "poster"
    widths = [run.server["policy/steps_0.0.0.weight"].shape[1] for run in (poster, release)]
    assert widths == [3 + 4, 3 + 4 + 4]  # the release's policy reads both new states


def test_a_tie_is_the_global_model(backend):
    """Ruling of 6.6: the release rounds one half to zero, twice, and the layer is silent."""
    run = finish(Flow(optimizer=LR, policy_optimizer=STILL), backend=backend)
    run.server |= {k: torch.zeros_like(v) for k, v in run.server.items() if k.startswith("policy/")}
    x = run.setting.federation.examples("c0", "test").x
    assert_close(run.predict("c0", x), NET.predict(split_policy(run.server)[0], x))
    assert routing_shares(run).share == 0.0


def test_the_defaults_are_those_of_the_release():
    method = Flow()
    assert (method.passes, method.local_epochs, method.batch_size) == (3, 3, 20)
    assert (method.optimizer, method.lam) == (Sgd(lr=0.05, momentum=0.9), 1e-3)
    assert (method.temperature, method.policy_optimizer) == (1.0, None)
    assert Flow(steps=4).plans()["shared"].steps == 4


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"temperature": -1.0}, RequestError),
        ({"lam": -0.1}, RequestError),
        ({"favour": "mine"}, RequestError),
        ({"recurrence": "other"}, RequestError),
        ({"epochs": 1, "steps": 1}, RequestError),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_at_once(wrong, error):
    with pytest.raises(error):
        Flow(**wrong)


def test_a_layer_that_is_not_there_is_refused_before_the_first_round():
    with pytest.raises(SelectorError, match='did you mean "head"'):
        finish(Flow(layers=("haed",)), rounds=0)


# ---- serving -----------------------------------------------------------------------------------


def test_a_new_client_needs_the_global_model_and_the_policy_alone(backend):
    run = finish(Flow(optimizer=LR), backend=backend)
    x, y = world(seed=5).examples("c0", "train")
    predictor = run.adapt(x, y)
    shared, local, policy = parts(predictor.personal)
    assert changed(split_policy(run.server)[0], shared) == set()
    assert changed(shared, local) == set(shared)
    assert changed(slot("policy", run.server), policy) == set(policy)
    assert_close(predictor.predict(x).sum(1), torch.ones(len(x)))


def test_after_broadcast_is_the_global_model_alone(backend):
    run = finish(Flow(optimizer=LR), backend=backend)
    x = run.setting.federation.examples("c1", "test").x
    alone = run.predict("c1", x, point="after_broadcast")
    assert_close(alone, NET.predict(split_policy(run.server)[0], x))
    assert not torch.allclose(alone, run.predict("c1", x))


def test_after_local_training_there_is_no_predictor_because_the_local_model_is_gone(backend):
    run = finish(Flow(), backend=backend)
    with pytest.raises(CapabilityError, match="no predictor after local training"):
        run.evaluate(point="after_local")


def test_serving_twice_is_the_same_also_with_dropout(backend):
    run = finish(Flow(optimizer=LR), Task(partial(Net, 0.5)), backend=backend)
    assert run.evaluate() == run.evaluate()


def test_flow_routes_so_its_predictor_is_not_one_network():
    with pytest.raises(CapabilityError, match="more than one network"):
        finish(Flow(), rounds=0).model("c0")
