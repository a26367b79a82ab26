"""Robust aggregation, for cohorts with bad uploads: median, trimmed mean, Krum, clipping.

All of them look at single uploads, so they exclude secure aggregation. All follow three rules: an
upload with a NaN or an infinity counts as lost; numbers are combined in double precision; integers
(counters) keep the largest of the uploads that are combined.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.mean import Mean, Weights
from motet._core.per_client import PerClient
from motet.errors import CohortError, RequestError


class Upload(NamedTuple):
    """What one client has sent, and how much it counts."""

    content: Any
    weight: float


class Cohort(NamedTuple):
    """The uploads that can be used, stacked in order of client ids."""

    clients: tuple[str, ...]
    uploads: Any  # [clients, ...]
    weights: Tensor  # [clients]
    down: Any  # what they were sent


class FromSingleUploads(ABC):
    """Collects uploads; a subclass says how a cohort's become one."""

    needs_single_uploads = True

    def lift(self, clients: Sequence[str], uploads: Any, weights: Tensor) -> dict[str, Upload]:
        """Keep each upload separate.

        Args:
            clients: Ids of the clients.
            uploads: Uploads, stacked: one row per client.
            weights: Weight of each client.
        """
        return {
            client: Upload(tree.row(uploads, i), float(weights[i]))
            for i, client in enumerate(clients)
        }

    def merge(self, a: dict[str, Upload], b: dict[str, Upload]) -> dict[str, Upload]:
        """Join two groups of clients.

        Args:
            a: A partial result.
            b: Another one.
        """
        return a | b

    def finish(self, partial: Mapping[str, Upload], down: Any = None) -> Any:
        """Combine the uploads that are finite.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
        """
        clients = tuple(
            client for client in sorted(partial) if tree.is_finite(partial[client].content)
        )
        if not clients:
            raise CohortError(
                f"none of the {len(partial)} uploads of this round is finite, so there is nothing "
                "to combine; the clients have diverged: lower their learning rate."
            )
        uploads = tree.stack([partial[client].content for client in clients])
        weights = torch.tensor([partial[client].weight for client in clients], dtype=torch.float64)
        return self.combined(Cohort(clients, uploads, weights, down))

    @abstractmethod
    def combined(self, cohort: Cohort) -> Any:
        """Return one upload made of those of a round.

        Args:
            cohort: The uploads of a round.
        """


@dataclass(frozen=True, kw_only=True)
class Median(FromSingleUploads):
    """The median of every coordinate, the mean of the two in the middle where there are two.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018. Holds while more than half of
    the uploads are honest. Clients count equally.

    Example:
        >>> import torch
        >>> uploads = {"w": torch.tensor([[1.0], [2.0], [99.0]])}
        >>> median = Median()
        >>> median.finish(median.lift("abc", uploads, torch.ones(3)))
        {'w': tensor([2.])}
    """

    weights: ClassVar[Weights] = "uniform"

    def combined(self, cohort: Cohort) -> Any:
        def middle(ordered: Tensor) -> Tensor:
            last = len(ordered) - 1
            return (ordered[last // 2] + ordered[(last + 1) // 2]) / 2

        return _by_coordinate(cohort.uploads, middle)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(FromSingleUploads):
    """The mean of every coordinate without its smallest and largest values.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018. Clients count equally.

    Attributes:
        trim: Share of the uploads that is cut off at either end, rounded up; at least one or two
            stay in the middle.

    Example:
        >>> import torch
        >>> uploads = {"w": torch.tensor([[-50.0], [1.0], [2.0], [3.0], [99.0]])}
        >>> trimmed = TrimmedMean(trim=0.2)
        >>> trimmed.finish(trimmed.lift("abcde", uploads, torch.ones(5)))
        {'w': tensor([2.])}
    """

    trim: float = 0.1

    weights: ClassVar[Weights] = "uniform"

    def __post_init__(self) -> None:
        if not 0 < self.trim < 0.5:
            raise RequestError(
                f"trim= is a share above 0 and below 0.5; got {self.trim}. Without it, use Mean."
            )

    def combined(self, cohort: Cohort) -> Any:
        size = len(cohort.clients)
        wanted = math.ceil(self.trim * size - 1e-9)  # 0.07 * 100 is a little more than 7
        cut = min(wanted, (size - 1) // 2)
        return _by_coordinate(cohort.uploads, lambda ordered: ordered[cut : size - cut].mean(0))


@dataclass(frozen=True, kw_only=True)
class Krum(FromSingleUploads):
    """The upload that lies closest to its neighbours; the mean of the `keep` closest ones.

    Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017. The score of an upload is
    the sum of its squared distances to the n - attackers - 2 uploads nearest to it (at least one).
    The paper's guarantee needs n > 2 attackers + 2.

    Attributes:
        attackers: Number of bad uploads to expect in a round (f), among the finite ones.
        keep: How many uploads to average (m): 1 is Krum, more is Multi-Krum.
        weights: How the kept uploads count.

    Example:
        >>> import torch
        >>> uploads = {"w": torch.tensor([[1.0], [1.1], [1.2], [99.0]])}
        >>> krum = Krum(attackers=1)
        >>> krum.finish(krum.lift("abcd", uploads, torch.ones(4)))
        {'w': tensor([1.])}
    """

    attackers: int = 1
    keep: int = 1
    weights: Weights = "uniform"

    def __post_init__(self) -> None:
        if self.attackers < 0 or self.keep < 1:
            raise RequestError(
                f"attackers= is 0 or more and keep= 1 or more; got attackers={self.attackers} and "
                f"keep={self.keep}."
            )

    def combined(self, cohort: Cohort) -> Any:
        best = self.scores(cohort).argsort(stable=True)[: self.keep].sort().values
        chosen = tree.tree_map(lambda leaf: leaf[best], cohort.uploads)
        clients = [cohort.clients[i] for i in best.tolist()]
        mean = Mean()
        return mean.finish(mean.lift(clients, chosen, cohort.weights[best]))

    def scores(self, cohort: Cohort) -> Tensor:
        """Return the score of each upload; the smallest is the best.

        Args:
            cohort: The uploads of a round.
        """
        ordered = _squared_distances(cohort).sort(dim=1).values[:, 1:]  # without itself, at 0
        neighbours = max(ordered.shape[1] - self.attackers - 1, 1)
        return ordered[:, :neighbours].sum(1)


@dataclass(frozen=True, kw_only=True)
class ClippedMean(FromSingleUploads):
    """The mean of changes whose norm is bounded, so that no client dominates.

    Sun et al., "Can You Really Backdoor Federated Learning?", 2019. A client's change is its upload
    less what it was sent under the same name; what has no such name is a change already. The norm
    is over all floating-point tensors of an upload.

    Attributes:
        limit: Bound on the norm of a change; None takes the median norm of the round.
        weights: How clients count.

    Example:
        >>> import motet
        >>> motet.FedAvg(reduce=motet.ClippedMean(limit=1.0)).reduce.limit
        1.0
    """

    limit: float | None = None
    weights: Weights = "examples"

    def __post_init__(self) -> None:
        if self.limit is not None and not self.limit > 0:
            raise RequestError(
                f"limit= must be above 0, or None; got {self.limit}.", option="limit"
            )

    def combined(self, cohort: Cohort) -> Any:
        origin = _origin(cohort)
        norms = _norms(cohort._replace(uploads=tree.tree_map(_change, cohort.uploads, origin)))
        limit = norms.quantile(0.5) if self.limit is None else torch.tensor(self.limit)
        factors = (limit / norms.clamp(min=1e-30)).clamp(max=1.0)  # [clients]

        def clip(leaf: Tensor, start: Tensor) -> Tensor:
            if not leaf.is_floating_point():
                return leaf
            factor = factors.view(-1, *[1] * (leaf.ndim - 1))
            # In double precision: the difference of two finite numbers may be too large for single.
            origin = start.double()
            return (origin + factor * (leaf.double() - origin)).to(leaf.dtype)

        clipped = tree.tree_map(clip, cohort.uploads, origin)
        mean = Mean()
        return mean.finish(mean.lift(cohort.clients, clipped, cohort.weights))


def _by_coordinate(uploads: Any, combine: Callable[[Tensor], Tensor]) -> Any:
    """Combine the sorted values of every coordinate."""

    def one(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf.amax(0)
        return combine(leaf.double().sort(dim=0).values).to(leaf.dtype)

    return tree.tree_map(one, uploads)


def _squared_distances(cohort: Cohort) -> Tensor:
    """Return the squared distance between any two uploads, [clients, clients]."""
    size = len(cohort.clients)
    total = torch.zeros(size, size, dtype=torch.float64)
    for row in _rows(cohort):
        # The fast way by inner products would lose what close uploads differ in.
        total += torch.cdist(row, row, compute_mode="donot_use_mm_for_euclid_dist").square()
    return total


def _norms(cohort: Cohort) -> Tensor:
    """Return the norm of every upload, [clients]."""
    squares = torch.zeros(len(cohort.clients), dtype=torch.float64)
    return sum((row.square().sum(1) for row in _rows(cohort)), start=squares).sqrt()


def _rows(cohort: Cohort) -> list[Tensor]:
    """Flatten the floating-point tensors of the uploads, [clients, numbers] each."""
    floats = [leaf for leaf in tree.leaves(cohort.uploads) if leaf.is_floating_point()]
    return [leaf.double().reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in floats]


def _change(leaf: Tensor, start: Tensor) -> Tensor:
    return leaf.double() - start.double() if leaf.is_floating_point() else leaf


def _origin(cohort: Cohort) -> Any:
    """Say where each client started from: what it was sent, and 0 for what it was not sent."""

    def one(position: int, client: str) -> Any:
        upload = tree.row(cohort.uploads, position)
        down = cohort.down[client] if isinstance(cohort.down, PerClient) else cohort.down
        sent = {} if down is None else dict(tree.flatten(down))
        starts = {p: sent.get(p, torch.zeros_like(leaf)) for p, leaf in tree.flatten(upload)}
        return tree.unflatten(upload, starts)

    return tree.stack([one(i, client) for i, client in enumerate(cohort.clients)])
