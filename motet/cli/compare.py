"""`motet compare`: several methods under the same conditions."""

from __future__ import annotations

from typing import Any

from motet.cli import options


def experiment(
    *,
    model: options.Model = None,
    settings: options.Set = None,
    data: options.Data = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    classes: options.Classes = None,
    alpha: options.Alpha = None,
    table: options.Table = None,
    client_column: options.ClientColumn = None,
    target: options.Target = None,
    folder: options.Folder = None,
    lr: options.Rate = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    rounds: options.Rounds = None,
    cohort: options.Cohort = None,
    backend: options.Backend = None,
    seed: options.Seed = None,
    out: options.Out = None,
    overwrite: options.Overwrite = False,
    tensorboard: options.TensorBoard = None,
    mlflow: options.MLflow = None,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Name what a comparison has in common with a single run."""


@options.with_options(experiment)
def command(
    config: options.Config = None,
    *,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    choose: options.Choose = None,
    evaluate_every: options.EvaluateEvery = None,
    tune: options.Tune = None,
    tune_kind: options.TuneKind = None,
    budget_gradients: options.BudgetGradients = None,
    budget_bytes: options.BudgetBytes = None,
    budget_seconds: options.BudgetSeconds = None,
    **others: Any,
) -> None:
    """Compare methods: the same split, cohorts and initial weights, every client's own test data.

    motet compare --methods local,fedavg,fedavg-ft,fedper --data digits --seeds 3
    """
    flags = {**locals(), **others}
    from motet.cli.contesting import begin

    begin(config, flags)
