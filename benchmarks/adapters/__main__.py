"""A thousand clients with an adapter each: rounds here and in a loop of transformers and peft.

python benchmarks/adapters      # three rounds of each, in turn, then one pass of scores
python benchmarks/adapters 6    # more rounds
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import chat
import numpy as np
import peft_client
import torch

import motet

CLIENTS, COHORT = 1000, 50
LEAST, MOST = 4, 16  # messages of a user
WARM_UP = 1  # rounds of each that are not counted: memory is touched for the first time


def ours(data: Any, rounds: int) -> Iterator[Any]:
    """Run one round of ours at a time."""
    task = chat.task()
    frozen = sum(leaf.nbytes for leaf in task.frozen.values())
    print(f"{len(data.clients)} clients; frozen: {frozen:,} B, once")
    method = motet.FedSim(
        personal="lora_B",
        batch_size=peft_client.BATCH,
        optimizer=motet.Sgd(lr=peft_client.RATE),
        adapt_epochs=0,
        final_epochs=0,  # a round is what is measured
    )
    yield from motet.rounds(method, task, data, rounds=rounds, cohort=COHORT)


def by_hand(data: Any, pool: ProcessPoolExecutor) -> Iterator[float]:
    """Run one round of the loop in two processes at a time; yield its seconds."""
    rng = np.random.default_rng(0)
    shared = pool.submit(peft_client.first).result()
    kept: dict[str, dict[str, torch.Tensor]] = {}
    while True:
        started = time.perf_counter()
        cohort = [data.clients[i] for i in rng.choice(len(data.clients), COHORT, replace=False)]
        work = [
            (shared, kept.get(c, {}), *map(np.asarray, data.examples(c, "train"))) for c in cohort
        ]
        results = list(pool.map(peft_client.train, work))
        sizes = np.array([len(w[3]) for w in work], dtype=float)
        kept |= {client: own for client, (_, own) in zip(cohort, results, strict=True)}
        shares = sizes / sizes.sum()
        shared = {
            name: sum(s * up[name] for s, (up, _) in zip(shares, results, strict=True))
            for name in shared
        }
        yield time.perf_counter() - started


def compare(rounds: int) -> None:
    """Take turns, so that both see the same machine; print medians and their ratio."""
    data = chat.federation(LEAST, MOST, CLIENTS)
    fresh = get_context("spawn")  # not forked: threads of torch do not survive it
    times: dict[str, list[float]] = {"motet": [], "transformers + peft": []}
    with ProcessPoolExecutor(2, mp_context=fresh, initializer=peft_client.prepare) as pool:
        rival = by_hand(data, pool)
        for done in ours(data, rounds + WARM_UP):
            times["motet"].append(done.seconds)
            times["transformers + peft"].append(next(rival))
            each = ", ".join(f"{name} {spent[-1]:.1f} s" for name, spent in times.items())
            print(f"round {done.number}: {each}", flush=True)
    up, down = done.bytes_up / COHORT, done.bytes_down / COHORT
    medians = {name: float(np.median(spent[WARM_UP:])) for name, spent in times.items()}
    ratio = medians["transformers + peft"] / medians["motet"]
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.2f} s per round (median of {rounds})")
    print(f"ratio: {ratio:.2f}; {up:,.0f} B up, {down:,.0f} B down per client and round")
    print(f"plan: {done.run.backend.plan}")
    _score(done.run)


def _score(run: Any) -> None:
    started = time.perf_counter()
    scores = run.evaluate("test")
    took = time.perf_counter() - started
    print(f"{len(scores.rows)} clients scored in one pass: {took:.1f} s; mean {scores.mean:.3f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"resident: {peak:.2f} GB at most")


if __name__ == "__main__":
    compare(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
