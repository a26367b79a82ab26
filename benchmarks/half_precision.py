"""What half-precision uploads cost in accuracy, and save in bytes.

    python benchmarks/half_precision.py [SEEDS]        # 5 unless given

FedAvg and FedPer on digits (label skew) and on the UCI heart-disease data of four hospitals, 30
rounds; test accuracy and loss (means over clients), and bytes that a client sends in a round. The
same seed has the same split, cohorts, batches and initial model in every column.
"""

from __future__ import annotations

import sys

import numpy as np

from motet.config import experiment_from_dict

PRECISIONS = ("float32", "float16", "bfloat16")
DATA = {
    "digits": {
        "name": "digits",
        "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.3},
    },
    "heart-disease": {"name": "heart-disease"},
}


def measured(data: str, method: str, precision: str, seed: int) -> tuple[float, float, float]:
    """Return accuracy in percent, loss, and the bytes that a client sends in a round."""
    experiment = experiment_from_dict(
        {
            "run": {"rounds": 30, "seed": seed, "uploads": precision},
            "method": {"name": method},
            "data": DATA[data],
            "model": {"name": "mlp", "hidden": [32]},
        }
    )
    run = experiment.start(experiment.federation())
    sent = [run.advance().bytes_up for _ in range(30)]
    table = run.evaluate("test")
    return 100 * table.mean, table.loss, sent[0] / len(run.setting.federation.clients)


def main(seeds: int = 5) -> None:
    """Print the table: float32, and the change with each half, with its range over the seeds."""
    print("| data | method | float32 | float16 | bfloat16 | bytes up |")
    print("|---|---|---|---|---|---|")
    for data in DATA:
        for method in ("fedavg", "fedper"):
            found = {
                precision: np.array([measured(data, method, precision, s) for s in range(seeds)])
                for precision in PRECISIONS
            }
            full = found["float32"]
            cells = [f"{full[:, 0].mean():.2f} %, loss {full[:, 1].mean():.4f}"]
            for precision in PRECISIONS[1:]:
                change = found[precision] - full
                low, high = change[:, 0].min(), change[:, 0].max()
                accuracy = f"{change[:, 0].mean():+.2f} ({low:+.2f} to {high:+.2f})"
                cells.append(f"{accuracy}, loss {change[:, 1].mean():+.5f}")
            size = [found[precision][0, 2] for precision in ("float32", "float16")]
            sizes = f"{size[0] / 1000:.1f} kB, {size[1] / 1000:.1f} kB"
            print(f"| {data} | {method} | {' | '.join(cells)} | {sizes} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
