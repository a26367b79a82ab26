"""Small methods that stretch the engine where the shipped ones do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from motet._core import tree
from motet._core.aggregation.mean import Gather, Reduce
from motet._core.keys import Key
from motet._core.tree import State
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.data import Federation, from_arrays
from motet.method import Card, Method, PerClient, RoundInfo
from motet.methods._fedavg import FedAvg
from motet.task import Batch, Loss, Task

CARD = Card(
    title="toy",
    paper="(test)",
    year=0,
    link="",
    idea="stretches the engine",
    shared="something",
    private="something",
    down="1",
    up="1",
    new_client="gets the mean",
)


@dataclass(frozen=True, kw_only=True)
class ToyAMP(Method):
    """Every client gets its own mixture of all models, and is pulled towards it (as FedAMP)."""

    reduce: Reduce = Gather()
    pull: float = 0.5
    own: float = 0.6

    name: ClassVar[str] = "toy-amp"
    card: ClassVar[Card] = CARD

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Any:
        return dict.fromkeys(clients, initial)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def broadcast(self, server: dict[str, State], info: RoundInfo) -> PerClient[State]:
        mean = self._mean(server)
        return PerClient(
            {c: tree.interpolate(mean, server.get(c, mean), self.own) for c in info.cohort}
        )

    def client_update(
        self, down: State, client: Any, data: Mapping[str, Batches], task: Task
    ) -> tuple[State, Any]:
        trained = fit(
            task, client, data["train"], self.optimizer, loss=self._pulled(task), given=(down,)
        )
        return trained, trained

    def _pulled(self, task: Task) -> Callable[..., Loss]:
        def objective(state: State, batch: Batch, anchor: State) -> Loss:
            return task.loss(state, batch) + self.pull / 2 * tree.squared_distance(state, anchor)

        return objective

    def server_update(self, server: Any, combined: Any, info: RoundInfo, task: Task) -> Any:
        return server | combined

    def personalize(
        self, down: State, client: State, data: Mapping[str, Batches], task: Task
    ) -> State:
        return client

    def _mean(self, server: dict[str, State]) -> State:
        stacked = tree.stack(list(server.values()))
        return tree.tree_map(lambda leaf: leaf.mean(0), stacked)


@dataclass(frozen=True, kw_only=True)
class ToyEnsemble(FedAvg):
    """Two models, trained side by side under a vmap inside `client_update`."""

    models: int = 2

    name: ClassVar[str] = "toy-ensemble"
    card: ClassVar[Card] = CARD

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Any:
        # One model from the common start, the others from draws of their own.
        others = [task.init(key.fold("model", i)) for i in range(1, self.models)]
        return tree.stack([initial, *others])

    def client_update(
        self, down: State, client: Any, data: Mapping[str, Batches], task: Task
    ) -> tuple[State, Any]:
        def train(state: State) -> State:
            return fit(task, state, data["train"], self.optimizer)

        return vmap(train)(down), client

    def server_update(self, server: Any, combined: Any, info: RoundInfo, task: Task) -> Any:
        return combined

    def personalize(
        self, down: State, client: State, data: Mapping[str, Batches], task: Task
    ) -> State:
        return down

    def predict(self, personal: State, x: Tensor, task: Task) -> Tensor:
        return vmap(lambda state: task.predict(state, x))(personal).mean(0)


@dataclass(frozen=True, kw_only=True)
class ToyPhases(FedAvg):
    """The head on one half of the data, then the body on the other, in counted steps."""

    name: ClassVar[str] = "toy-phases"
    card: ClassVar[Card] = CARD

    def plans(self) -> dict[str, Plan]:
        return {
            "head": Plan(steps=3, batch_size=self.batch_size, part=(0, 2), stream="head"),
            "body": Plan(epochs=2, batch_size=self.batch_size, part=(1, 2), stream="body"),
        }

    def client_update(
        self, down: State, client: Any, data: Mapping[str, Batches], task: Task
    ) -> tuple[State, Any]:
        head = task.select(("head",))
        state = fit(task, down, data["head"], self.optimizer, train=head)
        return fit(task, state, data["body"], self.optimizer, train=down.keys() - head), client


def arrays(
    sizes: Mapping[str, int],
    *,
    features: int = 4,
    classes: int = 3,
    seed: int = 0,
    splits: Sequence[str] = ("train", "val", "test"),
) -> Federation:
    """Make a federation of random examples, `sizes` per client, equally many in each split."""

    def draw(client: str, split: str, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = Key(seed).fold(client, split).numpy()
        return rng.normal(size=(size, features)).astype("float32"), rng.integers(0, classes, size)

    pairs = {s: {c: draw(c, s, n) for c, n in sizes.items()} for s in splits}
    return from_arrays(**pairs, classes=classes)


def largest_gap(a: Any, b: Any) -> float:
    """Return the largest difference between two equal trees."""
    gaps = [
        (x.double() - y.double()).abs() for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True)
    ]
    return max((float(gap.max()) for gap in gaps if gap.numel()), default=0.0)


def assert_close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    """Compare two trees by name."""
    assert dict(tree.flatten(a)).keys() == dict(tree.flatten(b)).keys()
    named = dict(tree.flatten(b))
    for path, leaf in tree.flatten(a):
        torch.testing.assert_close(
            leaf, named[path], rtol=tolerance, atol=tolerance, msg=lambda m, p=path: f"{p}: {m}"
        )


def assert_same(a: Any, b: Any) -> None:
    """Compare two trees by name, to the last bit."""
    assert dict(tree.flatten(a)).keys() == dict(tree.flatten(b)).keys()
    named = dict(tree.flatten(b))
    for path, leaf in tree.flatten(a):
        assert torch.equal(leaf, named[path]), path
