"""A thousand clients with an adapter each: a round here, and in a loop of transformers and peft.

python benchmarks/adapters motet 3     # three rounds, then one pass of scores
python benchmarks/adapters peft 3      # the same work by hand, in two processes
"""

from __future__ import annotations

import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import chat
import numpy as np
import peft_client
import torch

import motet

CLIENTS, COHORT = 1000, 50
LEAST, MOST = 4, 16  # messages of a user


def resident() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB at most"


def ours(rounds: int) -> None:
    data, task = chat.federation(LEAST, MOST, CLIENTS), chat.task()
    print(f"{len(data.clients)} clients; frozen {sum(v.nbytes for v in task.frozen.values()):,} B")
    epochs = {"adapt_epochs": 0, "final_epochs": 0}  # a round is what is measured
    optimizer = motet.Sgd(lr=peft_client.RATE)
    method = motet.FedSim(
        personal="lora_B", batch_size=peft_client.BATCH, optimizer=optimizer, **epochs
    )
    for done in motet.rounds(method, task, data, rounds=rounds, cohort=COHORT):
        up, down = done.bytes_up / COHORT, done.bytes_down / COHORT
        print(f"round {done.number}: {done.seconds:.1f} s; {up:,.0f} B up, {down:,.0f} B down each")
    run = done.run
    print(run.backend.plan)
    started = time.perf_counter()
    scores = run.evaluate("test")
    took = time.perf_counter() - started
    print(
        f"{len(scores.rows)} clients scored in one pass: {took:.1f} s; accuracy {scores.mean:.3f}"
    )
    print(f"resident: {resident()}")


def by_hand(rounds: int) -> None:
    data = chat.federation(LEAST, MOST, CLIENTS)
    rng = np.random.default_rng(0)
    # Not forked: threads of torch do not survive it.
    fresh = get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=fresh, initializer=peft_client.prepare) as pool:
        shared = pool.submit(peft_client.first).result()
        kept: dict[str, dict[str, torch.Tensor]] = {}
        for number in range(rounds):
            started = time.perf_counter()
            cohort = [data.clients[i] for i in rng.choice(len(data.clients), COHORT, replace=False)]
            work = [
                (shared, kept.get(c, {}), *map(np.asarray, data.examples(c, "train")))
                for c in cohort
            ]
            results = list(pool.map(peft_client.train, work))
            sizes = np.array([len(w[3]) for w in work], dtype=float)
            for client, (_, own) in zip(cohort, results, strict=True):
                kept[client] = own
            shares = sizes / sizes.sum()
            shared = {
                name: sum(s * up[name] for s, (up, _) in zip(shares, results, strict=True))
                for name in shared
            }
            took = time.perf_counter() - started
            print(f"round {number + 1}: {took:.1f} s in two processes")


if __name__ == "__main__":
    {"motet": ours, "peft": by_hand}[sys.argv[1]](int(sys.argv[2]))
