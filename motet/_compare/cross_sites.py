"""Cross-site scores: every client's final model on every client's test data."""

from __future__ import annotations

import numpy as np
import torch

from motet._core.points import Point
from motet._core.studies import MOST_NAMES, Study, evenly, matrix
from motet._engine.evaluating import metrics_of
from motet._engine.federation import Run
from motet._engine.scoring import score_all, with_examples

TITLE = "Who can use whose model"


def cross_sites(run: Run, point: Point | None = None, split: str = "test") -> Study:
    """Score each client's final model on each client's data.

    The costs grow with the square of the clients: of more than 60, an even choice is scored.

    Args:
        run: A finished run.
        point: Where in a round models are taken; None: where the method's authors report them.
        split: Whose examples are predicted.
    """
    setting = run.setting
    federation = setting.federation
    everyone = with_examples(federation.clients, lambda client: federation.size(client, split))
    clients = evenly(everyone, MOST_NAMES)
    held = [federation.examples(client, split) for client in clients]
    sizes = [len(examples.y) for examples in held]
    inputs = torch.cat([examples.x for examples in held])
    metric = metrics_of(setting)[0]
    scores = np.full((len(clients), len(clients)), np.nan)
    for row, owner in enumerate(clients):
        predictions = torch.split(run.predict(owner, inputs, point), sizes)
        for column, (client, predicted) in enumerate(zip(clients, predictions, strict=True)):
            y = held[column].y
            found = score_all(client, predicted, y, setting.task.criterion, (metric,))
            scores[row, column] = found.scores[0].value
    better = "higher" if metric.higher_is_better else "lower"
    note = (
        f"Rows: whose final model. Columns: whose {split} data. {metric.name}, {better} is better. "
        "The diagonal is what clients get from their own models."
    )
    return matrix(
        TITLE,
        note,
        quantity=metric.name,
        clients=clients,
        frames=[(f"round {run.rounds_done}", scores)],
    )
