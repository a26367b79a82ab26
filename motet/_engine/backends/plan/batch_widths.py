"""How many rows batches have: the widths for which a step is worth tracing.

Clients with fewer examples than a batch have narrower ones, and so has the end of an epoch. A few
widths are traced; where there are more, batches are filled up to the next of four.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from motet._core.keys import Key
from motet._engine.run_spec import RunSpec
from motet._training.batching import Plan
from motet.data._raw import SPLITS
from motet.task import Batch, Task

MOST_WIDTHS = 4  # of a phase: every one takes a program


def batch_widths(setting: RunSpec) -> frozenset[int]:
    """Return the widths to trace, over all phases and clients of a run."""
    method, sizes = setting.method, setting.federation.rows.sizes
    found: set[int] = set()
    for plan in (*method.plans().values(), *method.adapt_plans().values()):
        different = np.unique(sizes[:, SPLITS.index(plan.split)]).tolist()
        found |= _widths(plan, different)
    return frozenset(found)


def _widths(plan: Plan, sizes: list[int]) -> set[int]:
    usual = set() if plan.batch_size is None else {plan.batch_size}
    if plan.sampling == "poisson":  # as many rows as were drawn, which is never the same
        return usual
    exact: set[int] = set()
    for size in sizes:
        examples, width = plan.examples(size), plan.width(size)
        if examples:
            exact |= {width, examples % width or width}
    if len(exact) <= MOST_WIDTHS:
        return exact
    if plan.batch_size is None:
        return set()
    largest = max(exact)
    return {math.ceil(largest * part / MOST_WIDTHS) for part in range(1, MOST_WIDTHS + 1)}


def has_separate_rows(task: Task) -> bool:
    """Tell whether outputs and gradients of a row depend on that row alone: tried with three.

    Layers that normalise batches are known; a network may also mix rows in its own `forward`.
    """
    if task.example is None or task.has_batch_statistics:
        return False
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            return _are_rows_separate(task, task.example)
    except Exception:  # a network may refuse values that no real example has
        return False


def _are_rows_separate(task: Task, example: torch.Tensor) -> bool:
    generator, shape = torch.Generator().manual_seed(0), (3, *example.shape[1:])
    state = {
        name: leaf + 0.1 * torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        if leaf.is_floating_point()
        else leaf
        for name, leaf in task.init(Key(0)).items()  # where a layer begins with zeros, too
    }
    if example.is_floating_point():
        x = torch.randn(shape, generator=generator).to(example.dtype)
    else:  # numbers of words, or the like: 0 and 1 are in every vocabulary
        x = torch.randint(0, 2, shape, generator=generator).to(example.dtype)

    params = {name: state[name].requires_grad_() for name in task.trainable(state)}

    def found(rows: int) -> list[torch.Tensor]:
        """Return two rows' outputs, and gradients, which may depend on others, too."""
        batch = Batch(x[:rows], x[:rows], torch.ones(rows), torch.tensor(0))
        two = task.training_outputs(state, batch)[0][:2]
        slopes = torch.autograd.grad(
            two.square().sum(), list(params.values()), materialize_grads=True
        )
        return [two, *slopes]

    pairs = zip(found(3), found(2), strict=True)
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs)
