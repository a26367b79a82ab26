"""Laws of frozen weights: one copy in a process, in no state, on no wire and in no checkpoint."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from law import METHODS
from safetensors.torch import save_file
from torch import nn

import motet
from motet import Key, Task
from motet._core import tree
from motet._runs.checkpoint import Checkpoint
from motet.data import from_arrays
from motet.errors import SelectorError, StateError, StructureError
from motet.method import PerClient

WIDTH, CLASSES = 6, 3


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up.weight = self.down.weight

    def forward(self, x):
        return self.up(self.down(x).tanh())


LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "tanh": nn.Tanh,
    "batch": lambda: nn.BatchNorm1d(WIDTH),
    "plain-batch": lambda: nn.BatchNorm1d(WIDTH, affine=False),
    "layer": lambda: nn.LayerNorm(WIDTH),
    "tied": Tied,
    "block": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh()),
}


class Net(nn.Module):
    def __init__(self, kinds) -> None:
        super().__init__()
        self.body = nn.Sequential(*(LAYERS[kind]() for kind in kinds))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def drawn(number):
    """Draw a network and what is frozen in it: whole layers, and single parameters."""
    rng = Key(number).numpy()
    kinds = [str(kind) for kind in rng.choice(list(LAYERS), rng.integers(2, 5))]
    whole = [place for place in range(len(kinds)) if rng.random() < 0.6]
    single, precise = rng.random() < 0.5, bool(rng.random() < 0.3)

    def build():
        net = Net(["linear", *kinds]).to(torch.float64 if precise else torch.float32)
        if single:
            net.body[0].bias.requires_grad_(False)
        else:
            net.body[0].requires_grad_(False)
        for place in whole:
            net.body[place + 1].requires_grad_(False)
        return net

    return build


def by_hand(build, task):
    """Make the same network with frozen weights that are no parameters: nobody knows of them."""

    def rebuild():
        network = build()
        frozen = task.frozen
        for path, layer in network.named_modules():
            for name in [*layer._parameters, *layer._buffers]:
                full = f"{path}.{name}" if path else name
                if full in frozen or _tied_name(task, full) in frozen:
                    layer._parameters.pop(name, None)
                    layer._buffers.pop(name, None)
                    value = frozen.get(full, frozen.get(_tied_name(task, full)))
                    layer.register_buffer(name, value.clone(), persistent=False)
            if any(f"{path}.{name}" in frozen for name in layer._buffers):
                layer.training, layer.train = False, _stay  # normalised by what is frozen
        return network

    return rebuild


def _stay(mode=True):
    """Whatever mode the network is in."""


def _tied_name(task, full):
    return full.replace(".up.weight", ".down.weight")


def data():
    rng = Key(5).numpy()

    def rows(n):
        return rng.normal(size=(n, WIDTH)).astype(np.float32), rng.integers(0, CLASSES, n)

    sizes = {"a": 9, "b": 8, "c": 4}
    return from_arrays(
        {c: rows(n) for c, n in sizes.items()}, test={c: rows(5) for c in sizes}, classes=CLASSES
    )


def finish(method, task, backend="serial", rounds=2, **settings):
    return motet.run(method, task, data(), rounds=rounds, backend=backend, seed=3, **settings)


def tensors_of(run):
    return dict(tree.flatten({"server": run.server, "clients": dict(run.clients)}))


def names_in(value):
    return {part for path, _ in tree.flatten(value) for part in tree.readable(path).split("/")}


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_frozen_weights_are_in_no_state_and_results_are_those_of_weights_held_by_hand(number):
    method, build = list(METHODS.values())[number], drawn(number)
    task = Task(build)
    before, again = task.frozen_hash, Task(by_hand(build, task))
    assert before, "the generator freezes something in every network"
    assert again.frozen == {}
    assert again.names == task.names
    once = {"rounds": 1, "trial": False}
    run, other = finish(method, task, **once), finish(method, again, **once)
    held = run.setting.task
    assert held.frozen_hash == before == motet.Task(build).frozen_hash
    assert task.frozen.keys().isdisjoint(names_in((run.server, dict(run.clients))))
    if method.name == "flow":  # routes layers that have parameters, and those by hand have none
        return
    mine, theirs = tensors_of(run), tensors_of(other)
    assert mine.keys() == theirs.keys()
    for path, leaf in mine.items():
        assert torch.equal(leaf, theirs[path]), path
    for client in "abc":
        x = data().examples(client, "test").x
        assert torch.equal(run.predict(client, x), other.predict(client, x))


@pytest.mark.parametrize("number", range(0, 16, 4))
@pytest.mark.parametrize("traced", [False, True])
def test_stacks_hold_the_frozen_weights_once_and_agree_with_one_client_at_a_time(number, traced):
    task = Task(drawn(number))
    method = motet.FedAlt(personal="head", optimizer=motet.Sgd(lr=0.02), batch_size=4)
    serial = tensors_of(finish(method, task))
    run = finish(method, task, "vectorized", mode="stack", traced=traced, measure=False)
    assert not run.backend.failures
    for path, leaf in tensors_of(run).items():
        torch.testing.assert_close(leaf, serial[path], rtol=1e-3, atol=1e-4)
    assert run.setting.task.frozen_hash == task.frozen_hash


def test_a_traced_step_reads_frozen_weights_without_a_copy():
    build = drawn(0)
    task = Task(build)
    run = finish(motet.FedAvg(batch_size=4), task, "vectorized", mode="stack", traced=True)
    programs = run.setting.task.programs
    assert len(programs) > 0
    assert all(made is not None for made in programs._made.values()), "every step was traced"


@pytest.mark.parametrize("method", [motet.FedAvg(), motet.FedPer(personal="head"), motet.Ditto()])
def test_messages_checkpoints_and_counted_bytes_have_no_frozen_weights(method, tmp_path):
    task = Task(drawn(1))
    run = finish(method, task)
    down = method.broadcast(run.server, run.setting.info(0, ("a",)))
    sent = down["a"] if isinstance(down, PerClient) else down
    assert task.frozen.keys().isdisjoint(names_in(sent))
    trained = sum(leaf.numel() * leaf.element_size() for leaf in task.init(Key(0)).values())
    first = motet.run(method, task, data(), rounds=0, backend="serial").advance()
    assert first.bytes_up <= 3 * trained
    assert first.bytes_up == 3 * trained or isinstance(method, motet.FedPer)
    saved = Checkpoint(run, tmp_path)
    saved.save()
    saved.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    longest = max(task.frozen.values(), key=lambda leaf: leaf.numel())
    assert longest.numpy().tobytes() not in written


def test_fedper_with_everything_trainable_personal_sends_nothing():
    task = Task(drawn(2))
    method = motet.FedPer(personal=tuple(sorted(task.names)))
    for backend in ("serial", "auto"):
        done = motet.run(method, task, data(), rounds=0, backend=backend).advance()
        assert (done.bytes_down, done.bytes_up) == (0, 0)


def test_threads_and_modes_share_one_copy():
    task = Task(drawn(0))
    x = torch.zeros(2, WIDTH)
    for training in (False, True):
        network = task._network_for(x, training=training)
        held = dict(network.named_parameters()) | dict(network.named_buffers())
        for name, leaf in task.frozen.items():
            assert held[name].data_ptr() == leaf.data_ptr()
    assert task.seeing(x)._modules is task._modules


def test_a_base_file_is_mapped_and_its_hash_is_that_of_the_weights(tmp_path):
    built = Task(drawn(1))
    file = tmp_path / "base.safetensors"
    save_file({n: leaf.clone() for n, leaf in built.frozen.items()}, file)
    task = Task(drawn(1), base=file)
    assert task.frozen_hash == built.frozen_hash
    assert task.names == built.names
    again = carried(task)
    assert again.frozen.keys() == task.frozen.keys()
    assert again.frozen_hash == task.frozen_hash
    other = {n: leaf + 1 if leaf.is_floating_point() else leaf for n, leaf in built.frozen.items()}
    save_file(other, file)
    assert Task(drawn(1), base=file).frozen_hash != built.frozen_hash
    with pytest.raises(StateError, match="have the hash"):
        Task(drawn(1), base=file).require_frozen(built.frozen_hash)


def carried(task):
    """Take a task to another process and back, as Ray does."""
    state = task.__getstate__()
    again = object.__new__(Task)
    again.__setstate__(copy.deepcopy(state))
    return again


def tied_and_frozen():
    net = Net(["tied", "linear"])
    net.body[0].requires_grad_(False)
    return net


@pytest.mark.parametrize("build", [tied_and_frozen, *map(drawn, range(4))])
def test_a_task_carries_its_frozen_weights_once_to_another_process(build):
    task = Task(build)
    state = task.__getstate__()
    inside = dict(state["skeleton"].named_parameters()) | dict(state["skeleton"].named_buffers())
    assert all(inside[name].numel() == 0 for name in task.frozen)
    again = carried(task)
    assert again.frozen_hash == task.frozen_hash
    assert again.complete({}).keys() == task.complete({}).keys() == task.frozen.keys()
    x = torch.ones(2, WIDTH)
    assert torch.equal(again.outputs(task.init(Key(1)), x), task.outputs(task.init(Key(1)), x))


def test_init_sets_frozen_weights_and_a_wrong_shape_is_refused():
    task = Task(drawn(0))
    name = next(iter(task.frozen))
    ones = torch.ones_like(task.frozen[name])
    run = finish(motet.FedAvg(), task, init={name: ones})
    assert torch.equal(run.setting.task.frozen[name], ones)
    assert run.setting.task.frozen_hash != task.frozen_hash
    assert torch.equal(dict(run.model("a").named_parameters())[name], ones)
    with pytest.raises(StructureError, match="was handed over"):
        finish(motet.FedAvg(), task, init={name: torch.ones(1, 1)})


def test_a_missing_tensor_and_a_missing_file_are_named(tmp_path):
    built = Task(drawn(1))
    file = tmp_path / "base.safetensors"
    save_file({"other": torch.ones(1)}, file)
    with pytest.raises(StateError, match="lacks"):
        Task(drawn(1), base=file)
    with pytest.raises(StateError, match="does not exist"):
        Task(drawn(1), base=tmp_path / "none.safetensors")
    file.write_bytes(b"nothing")
    with pytest.raises(StateError, match="not a complete safetensors file"):
        Task(drawn(1), base=file)
    with pytest.raises(StructureError, match="did not come"):
        Task(drawn(1), base=dict(list(built.frozen.items())[1:]))


def test_a_file_without_the_prefix_of_the_network_fits(tmp_path):
    built = Task(drawn(1))
    file = tmp_path / "base.safetensors"
    save_file({n.removeprefix("body."): leaf.clone() for n, leaf in built.frozen.items()}, file)
    assert Task(drawn(1), base=file).frozen_hash == built.frozen_hash


def test_a_selector_of_frozen_weights_alone_is_refused_with_what_could_be_named():
    def build():
        net = Net(["linear", "tanh"])
        net.body.requires_grad_(False)
        return net

    with pytest.raises(SelectorError, match=r"frozen weights only.*head"):
        Task(build).select("body")


def test_the_buffers_of_a_frozen_layer_stay_and_those_of_a_trained_one_move():
    def build():
        net = Net(["block", "block"])
        net.body[0].requires_grad_(False)
        return net

    task = Task(build)
    assert {n for n in task.frozen if "running" in n} == {
        "body.0.1.running_mean",
        "body.0.1.running_var",
    }
    run = finish(motet.FedAvg(), task)
    assert bool(run.server["body.1.1.running_mean"].any())
    assert not bool(run.setting.task.frozen["body.0.1.running_mean"].any())


def test_states_of_all_backends_have_the_names_of_the_task():
    task = Task(drawn(3))
    run = finish(motet.FedAvg(), task, "auto")
    assert set(run.server) == set(task.names)
