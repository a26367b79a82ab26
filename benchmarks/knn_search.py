"""Exact nearest-neighbour search: torch against faiss-cpu, one thread, for stores of several sizes.

pip install faiss-cpu
OMP_NUM_THREADS=1 python benchmarks/knn_search.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from motet._core.keys import Key
from motet._core.neighbours import squared_distances

try:
    import faiss
except ImportError:
    faiss = None

K = 10
SIZES = [  # clients, queries and keys of each, features
    (1, 25, 100, 64),
    (1, 100, 400, 64),
    (1, 100, 400, 512),
    (1, 500, 500, 512),
    (1, 200, 2000, 512),
    (1, 1000, 5000, 1280),
    (1, 1000, 50000, 128),
    (16, 100, 400, 64),
    (16, 100, 400, 512),
]


def by_products(queries: Tensor, keys: Tensor) -> Tensor:
    """Search as `motet._core.neighbours` does: inner products in double precision."""
    return squared_distances(queries, keys).topk(K, largest=False).values


def by_products_in_single(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.cdist(queries, keys).topk(K, largest=False).values


def by_differences(queries: Tensor, keys: Tensor) -> Tensor:
    exact = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return exact.topk(K, largest=False).values


def by_faiss(queries: Tensor, keys: Tensor) -> None:
    """Build an exact index for each client, and ask it: faiss has no stacks."""
    for mine, stored in zip(queries, keys, strict=True):
        index = faiss.IndexFlatL2(stored.shape[1])
        index.add(stored.numpy())
        index.search(mine.numpy(), K)


def milliseconds(search: Callable[[], object]) -> float:
    """Take the best of five, after one to warm up: processor time, as machines are shared."""
    search()
    taken = []
    for _ in range(5):
        started = time.process_time()
        search()
        taken.append(time.process_time() - started)
    return 1000 * min(taken)


def points(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(Key(0).fold(name, *shape).numpy().normal(size=shape)).float()


def main() -> None:
    torch.set_num_threads(1)
    if faiss is not None:
        faiss.omp_set_num_threads(1)
    print(
        "| clients | queries | keys | features | torch | single precision | differences | faiss |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for clients, queries, keys, features in SIZES:
        asked, stored = (
            points("q", clients, queries, features),
            points("k", clients, keys, features),
        )
        times = [
            milliseconds(lambda f=f: vmap(f)(asked, stored))  # noqa: B023
            for f in (by_products, by_products_in_single, by_differences)
        ]
        if faiss is not None:
            times.append(milliseconds(lambda: by_faiss(asked, stored)))  # noqa: B023
        row = " | ".join(f"{value:.2f}" for value in times)
        print(f"| {clients} | {queries} | {keys} | {features} | {row} |", flush=True)


if __name__ == "__main__":
    main()
