"""The mean of low-rank adapters, by their products.

Singhal, Ponkshe and Vepakomma, "FedEx-LoRA: Exact Aggregation for Federated and Efficient
Fine-Tuning of Foundation Models", 2024. https://arxiv.org/abs/2410.09432
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from motet._core.aggregation.mean import Mean, Total, Weights
from motet.errors import StructureError

A, B, RESIDUAL = ".lora_A", ".lora_B", ".lora_residual"


@dataclass(frozen=True, kw_only=True)
class ExactLora:
    """The weighted mean, in which adapters add up to the mean of the clients' products B_i A_i.

    The mean of B times the mean of A is something else. What is missing goes into the residual of
    each layer, a matrix beside the frozen weight: `with_lora(..., exact=True)` makes room for it.

    Attributes:
        weights: How clients count.

    Example:
        >>> import motet
        >>> motet.FedAvg(reduce=motet.ExactLora()).reduce.weights
        'examples'
    """

    weights: Weights = "examples"
    needs_single_uploads = False

    def lift(self, clients: Sequence[str], uploads: Any, weights: Tensor) -> Total:
        """Make a partial result from the uploads of some clients.

        Args:
            clients: Ids of the clients.
            uploads: Uploads, stacked: one row per client.
            weights: Weight of each client.
        """
        products = {
            f"{layer}{RESIDUAL}": uploads[f"{layer}{B}"] @ uploads[f"{layer}{A}"].flatten(2)
            for layer in _layers(uploads)
        }
        return self._mean.lift(clients, {**uploads, **products}, weights)

    def merge(self, a: Total, b: Total) -> Total:
        """Join two partial results.

        Args:
            a: A partial result.
            b: Another one.
        """
        return self._mean.merge(a, b)

    def finish(self, partial: Total, down: Any = None) -> Any:
        """Return the result that `Method.server_update` gets.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
        """
        mean = self._mean.finish(partial)
        residuals = {}
        for layer in _layers(mean):
            name = f"{layer}{RESIDUAL}"
            inexact = mean[f"{layer}{B}"] @ mean[f"{layer}{A}"].flatten(1)
            residuals[name] = down[name] + mean[name] - inexact
        return {**mean, **residuals}

    @property
    def _mean(self) -> Mean:
        return Mean(weights=self.weights)


def _layers(uploads: Mapping[str, Tensor]) -> list[str]:
    """List the layers of which both factors and a residual are shared."""
    found = [name.removesuffix(A) for name in uploads if name.endswith(A)]
    shared = [at for at in found if f"{at}{B}" in uploads and f"{at}{RESIDUAL}" in uploads]
    if not shared:
        raise StructureError(
            "ExactLora averages products of lora_B and lora_A, and the uploads have no layer with "
            "both and a residual. Build the network with `with_lora(..., exact=True)`, and share "
            "both factors."
        )
    return shared
