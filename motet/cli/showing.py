"""The result of a run, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from motet.cli.pictures import distribution
from motet.cli.progress import duration
from motet.config.sections import NamedData
from motet.evaluate import Evaluation
from motet.judging.tables import amount, plural, size
from motet.session import Session


def show_result(session: Session, final: Sequence[Evaluation], cost: Mapping[str, Any]) -> None:
    """Say how well the clients do, and what it took."""
    typer.echo(_title(session))
    for evaluation in final:
        typer.echo(f"\n{_scores(evaluation)}")
    typer.echo(
        f"\nSent {size(cost['bytes_up'])} up and {size(cost['bytes_down'])} down; "
        f"{amount(cost['gradients'])} gradients; {duration(cost['seconds'])} of training."
    )


def _title(session: Session) -> str:
    federation, experiment = session.run.setting.federation, session.experiment
    partition = ""
    if isinstance(experiment.data, NamedData):
        partition = f" ({federation.recipe['partition']['name']})"
    return (
        f"{session.run.setting.method.card.title} on {federation.name}{partition}, "
        f"{plural(len(federation.clients), 'client')}, "
        f"{plural(experiment.run.rounds, 'round')}, seed {experiment.run.seed}"
    )


def _scores(evaluation: Evaluation) -> str:
    e = evaluation
    low, high = (0.0, 1.0) if e.higher_is_better else (float(e.values.min()), float(e.values.max()))
    drawn = distribution(e.values.tolist(), low=low, high=high)
    return (
        f"{e.metric.capitalize()} on each client's own {e.split} data, {e.point}, round {e.round}\n"
        f"  mean {e.mean:.3f}   weighted {e.weighted_mean:.3f}   std {e.std:.3f}   "
        f"decile {e.decile:.3f}   worst {e.worst:.3f}\n"
        f"  clients  {low:.2g} {drawn} {high:.2g}"
    )
