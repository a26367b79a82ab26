"""`torch.compile` on a stacked step, beside the traced one: compilation, and seconds per step.

    python benchmarks/compiled_step.py [mlp] [transformer]

One thread. The step is recorded as for tracing; inductor compiles the recorded graph, and the
passes of `motet._tracing` make the traced one. Compilation is measured with an empty cache.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.func import grad, vmap

import motet
from motet._core.keys import Key
from motet._tracing.graphs import simplified
from motet._tracing.recording import recorded
from motet.task import Batch

REPETITIONS = 30
CASES = {  # network, shape, classes, clients in a stack, rows in a batch
    "mlp": ("mlp", (784,), 10, 17, 10, {"hidden": [200]}),
    "transformer": (
        "transformer", (40,), 80, 1, 16,
        {"layers": 2, "width": 128, "heads": 4, "feedforward": 256, "tied": False},
    ),
}  # fmt: skip


def case(name: str):
    """Make a step of gradient descent for a stack of clients, and values for it."""
    network, shape, classes, clients, rows, options = CASES[name]
    task = motet.Task(lambda: motet.models.build(network, shape=shape, classes=classes, **options))
    state = task.init(Key(0))
    dice = torch.Generator().manual_seed(0)
    targets = shape if network == "transformer" else ()
    y = torch.randint(classes, (clients, rows, *targets), generator=dice)
    x = y if targets else torch.randn(clients, rows, *shape, generator=dice)
    names = sorted(state)

    def one(model, x, y):
        batch = Batch(x, y, torch.ones(rows), torch.tensor(0))
        slope = grad(lambda model: task.loss(model, batch).value)(model)
        return {k: model[k] - 0.01 * slope[k] for k in model}

    def step(*values):
        model = dict(zip(names, values, strict=False))
        new = vmap(one)(model, *values[len(names) :])
        return [new[k] for k in names]

    stacked = [state[k].expand(clients, *state[k].shape).clone() for k in names]
    return step, [*stacked, x, y], len(names)


def milliseconds(step, values) -> float:
    """Return the median of processor time."""
    spent = []
    for _ in range(REPETITIONS):
        began = time.thread_time()
        step(*values)
        spent.append(1000 * (time.thread_time() - began))
    return statistics.median(spent)


def measure(name: str) -> dict:
    step, values, donated = case(name)
    began = time.perf_counter()
    traced = simplified(step, [v.clone() for v in values], donated)
    tracing = time.perf_counter() - began
    graph = recorded(step, values)
    inductor = importlib.import_module("torch._inductor")  # after its cache has a place
    began, busy = time.perf_counter(), time.process_time()
    compiled = inductor.compile(graph, values)
    expected = compiled(*values)
    compiling = time.perf_counter() - began
    apart = max(float((a - b).abs().max()) for a, b in zip(expected, step(*values), strict=True))
    return {
        "tracing, s": tracing,
        "compiling, s": compiling,
        "of these in this process, s": time.process_time() - busy,
        "as written, ms": milliseconds(step, values),
        "traced, ms": milliseconds(traced, [v.clone() for v in values]),
        "compiled, ms": milliseconds(compiled, values),
        "difference": apart,
    }


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fresh
        found = {name: measure(name) for name in sys.argv[1:] or CASES}
    for name, figures in found.items():
        print(name, ", ".join(f"{what} {value:.3g}" for what, value in figures.items()))
    Path(".benchmarks").mkdir(exist_ok=True)
    Path(".benchmarks/compiled.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
