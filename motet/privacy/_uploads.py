"""Privacy of whole clients: bounded changes, and noise on their mean at the server.

McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018.
https://arxiv.org/abs/1710.06963
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.mean import Mean, Reduce, Weights
from motet._core.aggregation.robust import FromSingleUploads, Upload
from motet.errors import CapabilityError, RequestError
from motet.method import AnyMethod, Method, PerClient, RoundInfo
from motet.privacy._philox import normal


@dataclass(frozen=True, kw_only=True)
class PrivateMean(FromSingleUploads):
    """The mean of changes whose norm is bounded, plus noise; clients count equally.

    A client's change is its upload less what it was sent under the same name. The sum is divided by
    the size of the cohort that was drawn, so that a lost reply counts as no change. The server sees
    single uploads and has to be trusted; what it sends on is private.

    Attributes:
        clip: C, the bound on the norm of a client's change.
        noise: The sum gets normal noise of standard deviation noise * C. 0 is no guarantee.
        delta: The chance, for which no promise is made; below 1 / clients.

    Example:
        >>> import motet
        >>> motet.FedAvg(reduce=motet.PrivateMean(clip=0.5, noise=1.0)).reduce.clip
        0.5
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5

    weights: ClassVar[Weights] = "uniform"

    def __post_init__(self) -> None:
        if not 0 < self.clip < float("inf") or not 0 <= self.noise < float("inf"):
            raise RequestError(
                "PrivateMean(clip=) is above 0 and PrivateMean(noise=) is 0 or more, both finite; "
                f"got clip={self.clip} and noise={self.noise}."
            )
        if not 0 < self.delta < 1:
            raise RequestError(
                f"PrivateMean(delta=) must be between 0 and 1; got {self.delta}.", option="delta"
            )

    def finish(self, partial: Mapping[str, Upload], down: Any = None) -> Any:
        """Refuse: without the round there is no key for the noise."""
        raise CapabilityError(
            "PrivateMean draws its noise from the run's own key, which sites of a deployment know, "
            "too, so it is for runs in one process; use another reduce= here."
        )

    def combined(self, cohort: Any) -> Any:
        """Refuse, as `finish` does."""
        return self.finish({})

    def release(self, partial: Mapping[str, Upload], down: Any, info: RoundInfo) -> Any:
        """Return the noisy mean of a round.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
            info: The round.

        Raises:
            CapabilityError: The method sends each client its own model.
        """
        if isinstance(down, PerClient):
            raise CapabilityError(
                "PrivateMean adds the mean change to the model that all clients received, but this "
                "method sends each client its own; use a method that sends the same to all."
            )
        template = next(iter(partial.values())).content
        sent = {path: leaf.double() for path, leaf in tree.flatten(down)}
        total = {path: _zeros(path, leaf) for path, leaf in tree.flatten(template)}
        for client in sorted(partial):
            change = self._bounded(partial[client].content, sent)
            total = {path: total[path] + change[path] for path in total}
        noisy = self._noised(total, info)
        size = len(info.cohort)
        like = dict(tree.flatten(template))
        mean = {path: (sent.get(path, 0.0) + leaf / size) for path, leaf in noisy.items()}
        return tree.unflatten(template, {p: leaf.to(like[p].dtype) for p, leaf in mean.items()})

    def _bounded(self, upload: Any, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        change = {path: leaf.double() - sent.get(path, 0.0) for path, leaf in tree.flatten(upload)}
        norm = torch.stack([leaf.square().sum() for leaf in change.values()]).sum().sqrt()
        factor = (self.clip / norm.clamp(min=1e-30)).clamp(max=1.0)
        return {path: leaf * factor for path, leaf in change.items()}

    def _noised(self, total: Mapping[str, Tensor], info: RoundInfo) -> dict[str, Tensor]:
        key = torch.tensor(info.key.fold("noise").integer(bits=62))
        deviation = self.noise * self.clip
        return {
            path: total[path] + deviation * normal(key, stream, total[path].shape)
            for stream, path in enumerate(sorted(total))
        }


def finish_reduction(reduce: Reduce, partial: Any, down: Any, info: RoundInfo) -> Any:
    """Read the result of a reduction; a private one gets the key of the round."""
    if isinstance(reduce, PrivateMean):
        return reduce.release(partial, down, info)
    return reduce.finish(partial, down)


def objection(method: AnyMethod) -> str:
    """Say why a noisy mean would not make a method private; "" if it does."""
    (default,) = (field.default for field in fields(type(method)) if field.name == "reduce")
    if not isinstance(default, Mean):
        return "its server needs single uploads"
    if type(method).prepare is not Method.prepare:
        return "it hands examples from client to client"
    return ""


def _zeros(path: str, leaf: Tensor) -> Tensor:
    if not leaf.is_floating_point():
        raise CapabilityError(
            f"{tree.readable(path)} is a counter, which noise cannot hide; keep normalisation at "
            'the clients (norm="local_layers"), or use GroupNorm or LayerNorm.'
        )
    return torch.zeros_like(leaf, dtype=torch.float64)
