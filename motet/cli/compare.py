"""`motet compare`: several methods under the same conditions."""

from __future__ import annotations

from typing import Any

from motet.cli import options
from motet.cli.experiment import experiment


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
