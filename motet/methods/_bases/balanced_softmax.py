"""The balanced softmax: a class's score is raised by how often a client has it.

Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020.
https://arxiv.org/abs/2007.10740
"""

from __future__ import annotations

import torch
from torch import Tensor

from motet._training.batching import Batches

ABSENT = -1e9  # log 0, but safe to multiply by the weight 0 of padding


def balanced_prior(
    batches: Batches, classes: int, gamma: float, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return what training adds to the scores: gamma log n_c, where n_c counts the client's labels.

    A class that the client has not is left out of the softmax, as 0 to the power of gamma is 0;
    but with gamma = 0 that is 1, and nothing is added to any class.
    """
    if gamma == 0:
        return torch.zeros(classes, dtype=dtype)
    counts = label_counts(batches, classes).to(dtype)
    return torch.where(counts > 0, gamma * counts.clamp(min=1).log(), ABSENT)


def label_counts(batches: Batches, classes: int) -> Tensor:
    """Count a client's labels; rows beyond its own examples are padding."""
    y = batches.y.unsqueeze(-1)  # [examples, ..., 1]
    real = torch.arange(len(y)) < batches.size
    own = (y == torch.arange(classes)) & real.view(-1, *[1] * batches.y.ndim)
    return own.flatten(0, -2).sum(0).float()
