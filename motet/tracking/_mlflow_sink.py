"""The MLflow sink: one MLflow run per method and seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from motet._engine.observers import Watcher
from motet.errors import CapabilityError, RequestError, one_line
from motet.tracking._numbers import HarmedShares, Pair, hyperparameters, of_round, of_row, tags

if TYPE_CHECKING:
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row

SEND_EVERY_S = 1.0  # at most one request per second, because rounds may be much shorter
PER_BATCH = 100  # metrics or parameters that MLflow accepts per request

# By default MLflow retries for minutes while the run waits, and logs every database table that it
# creates.
CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


class MLflowSink(Watcher):
    """Records every run as an MLflow run: parameters, curves, test scores and tags.

    Args:
        uri: Tracking URI, such as "sqlite:///mlflow.db" or "http://host:5000".
        experiment: Name of the MLflow experiment; created if it does not exist.
        before: Rows that finished earlier, needed for the shares of harmed clients.

    Example:
        >>> MLflowSink("http://host:5000", experiment="heart").experiment
        'heart'
    """

    def __init__(self, uri: str, experiment: str = "motet", *, before: Iterable[Row] = ()) -> None:
        self.client = _client(uri)
        self.experiment = experiment
        self.harms = HarmedShares(before)
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
        if time.monotonic() - run.sent >= SEND_EVERY_S:
            run.send()

    def finished(self, label: str, seed: int, row: Row) -> None:
        run = self.runs[label, seed]
        run.add(of_row(row), row.chosen_round)
        for pair, shares in self.harms.add(row).items():
            if pair in self.runs:  # False for runs that finished before this sink was created
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
    """One run on the server, and its unsent metrics."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.id = client, run_id
        self.is_introduced = self.has_ended = False
        self.unsent: list[Any] = []
        self.sent = time.monotonic()

    def introduce(self, parameters: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Send the parameters and tags of the run."""
        from mlflow.entities import Param, RunTag

        written = [Param(name, str(value)) for name, value in parameters.items()]
        self.client.log_batch(self.id, tags=[RunTag(*pair) for pair in about.items()])
        for batch in _batches(written):
            self.client.log_batch(self.id, params=batch)
        self.is_introduced = True

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Queue metrics."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.unsent += [Metric(name, value, now, step) for name, value in values.items()]

    def send(self) -> None:
        """Send the queued metrics."""
        for batch in _batches(self.unsent):
            self.client.log_batch(self.id, metrics=batch)
        self.unsent, self.sent = [], time.monotonic()

    def end(self, status: str) -> None:
        """Send the queued metrics and end the run."""
        self.send()
        self.client.set_terminated(self.id, status)
        self.has_ended = True


def _batches(items: list[Any]) -> Iterable[list[Any]]:
    return (items[start : start + PER_BATCH] for start in range(0, len(items), PER_BATCH))


def _client(uri: str) -> Any:
    """Return a client, or raise with a readable reason."""
    for name, value in CLIENT_SETTINGS.items():
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
