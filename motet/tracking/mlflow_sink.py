"""Runs as MLflow keeps them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from motet.errors import CapabilityError, RequestError, one_line
from motet.tracking.numbers import Harms, Pair, hyperparameters, of_round, of_row, tags
from motet.watching import Watcher

if TYPE_CHECKING:
    from motet.comparing.comparison import Look, Row
    from motet.federation import Round

PATIENCE_S = 1.0  # between two requests about rounds: rounds may be much shorter
PER_BATCH = 100  # numbers or parameters that MLflow takes at a time

# MLflow would try again for minutes while the run waits: a log is not worth that. And it would
# tell everybody about the tables that it makes.
MANNERS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


class MLflowSink(Watcher):
    """Makes an MLflow run of every run: parameters, curves, test scores and tags.

    Args:
        uri: Tracking URI, such as "sqlite:///mlflow.db" or "http://host:5000".
        experiment: Name of the MLflow experiment; it is made if there is none.
        before: Rows that finished earlier, for the shares of clients harmed.
    """

    def __init__(self, uri: str, experiment: str = "motet", *, before: Iterable[Row] = ()) -> None:
        self.client = _client(uri)
        self.experiment = experiment
        self.harms = Harms(before)
        self.runs: dict[Pair, _Run] = {}

    def began(self, label: str, seed: int, rounds: int) -> None:
        about = {"label": label, "seed": str(seed)}
        made = self.client.create_run(
            self._experiment_id(), run_name=f"{label}, seed {seed}", tags=about
        )
        self.runs[label, seed] = _Run(self.client, made.info.run_id)

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        run = self.runs[label, seed]
        if not run.is_introduced:
            run.introduce(hyperparameters(done), tags(label, seed, done))
        run.add(of_round(done, look), done.number)
        if time.monotonic() - run.sent >= PATIENCE_S:
            run.send()

    def finished(self, label: str, seed: int, row: Row) -> None:
        run = self.runs[label, seed]
        run.add(of_row(row), row.chosen_round)
        for pair, shares in self.harms.add(row).items():
            if pair in self.runs:  # not one of those that finished before this sink was made
                self.runs[pair].add(shares, row.chosen_round)
                self.runs[pair].send()
        run.end("FINISHED")

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.client.set_tag(self.runs[label, seed].id, "reason", reason)
        self.runs[label, seed].end("FAILED")

    def close(self) -> None:
        for run in self.runs.values():
            if not run.has_ended:
                run.end("KILLED")

    def _experiment_id(self) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        made = found.experiment_id if found else self.client.create_experiment(self.experiment)
        return str(made)


class _Run:
    """One run on the server, and what it has not been told yet."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.id = client, run_id
        self.is_introduced = self.has_ended = False
        self.unsent: list[Any] = []
        self.sent = time.monotonic()

    def introduce(self, parameters: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Say what defines the run."""
        from mlflow.entities import Param, RunTag

        written = [Param(name, str(value)) for name, value in parameters.items()]
        self.client.log_batch(self.id, tags=[RunTag(*pair) for pair in about.items()])
        for batch in _batches(written):
            self.client.log_batch(self.id, params=batch)
        self.is_introduced = True

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Keep numbers until they are sent."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.unsent += [Metric(name, value, now, step) for name, value in values.items()]

    def send(self) -> None:
        """Send what is left."""
        for batch in _batches(self.unsent):
            self.client.log_batch(self.id, metrics=batch)
        self.unsent, self.sent = [], time.monotonic()

    def end(self, status: str) -> None:
        """Send what is left, and close the run."""
        self.send()
        self.client.set_terminated(self.id, status)
        self.has_ended = True


def _batches(items: list[Any]) -> Iterable[list[Any]]:
    return (items[start : start + PER_BATCH] for start in range(0, len(items), PER_BATCH))


def _client(uri: str) -> Any:
    """Open a client, or say in a sentence why there is none."""
    for name, value in MANNERS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=uri)
    except ImportError as missing:
        raise CapabilityError(
            f"MLflow at {uri} needs the package {missing.name or 'mlflow'}, which is not "
            'installed. Install it with `pip install "motet[tracking]"`.'
        ) from missing
    except Exception as refusal:
        raise RequestError(
            f'MLflow expects a URI such as sqlite:///mlflow.db or http://host:5000; got "{uri}": '
            f"{one_line(refusal)}."
        ) from refusal
