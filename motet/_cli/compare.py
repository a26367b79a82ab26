"""`motet compare`: several methods under the same conditions."""

from __future__ import annotations

from typing import Any

from motet._cli import options


@options.takes_rows_of("compare")
def command(config: options.Config = None, **given: Any) -> None:
    """Compare methods: the same split, cohorts and initial weights, every client's own test data.

    motet compare --methods local,fedavg,fedavg-ft,fedper --data digits --seeds 3
    """
    from motet._cli.compare_driver import begin

    begin(config, given)
