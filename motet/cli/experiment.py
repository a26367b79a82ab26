"""The options that say what is run: the same for one method and for several."""

from __future__ import annotations

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
    """Name the options of `motet run` that `motet compare` has, too."""
