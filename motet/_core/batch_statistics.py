"""Layers that normalise by the statistics of a batch."""

from __future__ import annotations

from torch import nn

from motet.errors import CapabilityError


def has_batch_statistics(module: nn.Module) -> bool:
    """Return whether a layer that is not frozen normalises by the statistics of its batch."""
    kind = nn.modules.batchnorm._NormBase
    norms = [m for m in module.modules() if isinstance(m, kind) and m.training]  # not frozen
    for norm in norms:
        if norm.momentum is None and norm.track_running_stats:
            raise CapabilityError(
                "a normalisation layer with momentum=None counts batches in Python, which cannot "
                "be stacked over clients; give it a momentum, e.g. 0.1."
            )
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in norms)


def with_running_statistics(module: nn.Module) -> nn.Module:
    """Let normalisation layers use their running statistics, in place."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    return module
