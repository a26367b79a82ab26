"""The result of a run, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np

from motet._cli.pictures import distribution
from motet._cli.progress import duration
from motet._cli.terminal import show
from motet._core.points import IN_SHORT, MEANING
from motet._core.text import amount, plural, size, title_of
from motet._core.visible_text import visible
from motet._engine.evaluation import Evaluation
from motet._runs.recorded_run import RecordedRun
from motet.config._sections import NamedData


def show_result(
    recorded: RecordedRun, final: Sequence[Evaluation], cost: Mapping[str, Any]
) -> None:
    """Say how well the clients do, and what it took."""
    show(_title(recorded))
    for evaluation in final:
        told = _diverged(recorded, evaluation)
        show("\n" + "\n".join(_scores(table) for table in evaluation.metrics) + told)
    show("")
    for point in dict.fromkeys(evaluation.point for evaluation in final):
        show(fill(f"{point}: {MEANING[point]}", width=80))
    show(
        f"\nSent {size(cost['bytes_up'])} up and {size(cost['bytes_down'])} down; "
        f"{amount(cost['gradients'])} gradients; {duration(cost['seconds'])} of training."
    )
    if cost["look_gradients"]:
        every = plural(recorded.experiment.run.evaluate_every or 1, "round")
        looks = (
            f"Validation scores, every {every} (--evaluate-every), took "
            f"{amount(cost['look_gradients'])} more gradients."
        )
        show(fill(looks, width=80))


def _title(recorded: RecordedRun) -> str:
    federation, experiment = recorded.run.setting.federation, recorded.experiment
    partition = ""
    if isinstance(experiment.data, NamedData):
        partition = f" ({federation.recipe['partition']['name']})"
    return (
        f"{recorded.run.setting.method.card.title} on {visible(federation.name)}{partition}, "
        f"{plural(len(federation.clients), 'client')}, "
        f"{plural(experiment.run.rounds, 'round')}, seed {experiment.run.seed}"
    )


def _scores(evaluation: Evaluation) -> str:
    e = evaluation
    finite = e.values[np.isfinite(e.values)]
    low, high = (0.0, 1.0)
    if not e.higher_is_better or (finite.size and not 0 <= finite.min() <= finite.max() <= 1):
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    drawn = distribution(finite.tolist(), low=low, high=high)
    return (
        f"{title_of(e.metric)} on each client's own {e.split} data\n"
        f"{IN_SHORT[e.point]}, round {e.round}\n"
        f"  mean {e.mean:.3f}   weighted {e.weighted_mean:.3f}   std {e.std:.3f}   "
        f"decile {e.decile:.3f}   worst {e.worst:.3f}\n"
        f"  clients  {low:.2g} {drawn} {high:.2g}"
    )


def _diverged(recorded: RecordedRun, evaluation: Evaluation) -> str:
    """Mark numbers that do not mean what they seem to."""
    clients = recorded.run.divergence.clients
    told = [*evaluation.diverged_sentences(), *evaluation.undefined_sentences()]
    if clients:
        told.append(
            f"training diverged at {plural(len(clients), 'client')}: what is scored is their last "
            "finite state."
        )
    return "".join(f"\n  ! {sentence}" for sentence in told)
