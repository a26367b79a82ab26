"""Contributions of clients: the others' scores with and without it, paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from motet._compare.comparison import Comparison
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.records import Records
from motet._engine.observers import Watcher
from motet._engine.results import Failure, Row
from motet._verdict.chance import PROBABLE, SURE, MeanGain, mean_gains
from motet._verdict.judging import unanimous
from motet._verdict.multiplicity import holm
from motet._verdict.site_groups import group_names, over_groups
from motet.errors import RequestError

FEWEST = 3  # clients: with fewer, no federation is left without one of them


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What one client contributes to the others.

    Attributes:
        site: The client that was left out.
        label: The method.
        gain: Mean gain of the other clients from its taking part; positive is better.
        low: Lower end of the 95% interval.
        high: Upper end.
        grade: "sure", "probable", "in these runs" or "none".
        clients_better: Other clients that are better with it than without it.
        clients: Other clients.
    """

    site: str
    label: str
    gain: float
    low: float
    high: float
    grade: str
    clients_better: int
    clients: int


def check_leaving_out(spec: ComparisonSpec) -> None:
    """Refuse a federation that has nothing left without one of its clients."""
    clients = len(spec.data.clients)
    if clients < FEWEST:
        raise RequestError(
            f"leaving out one client at a time needs at least {FEWEST} clients, got {clients}."
        )
    if isinstance(cohort := spec.settings.get("cohort"), int) and cohort >= clients:
        raise RequestError(
            f"a cohort of {cohort} cannot be drawn when one of {clients} clients is left out; use "
            "a fraction, such as cohort=0.5."
        )


def with_contributions(
    spec: ComparisonSpec,
    comparison: Comparison,
    kept: Records,
    step: Callable[[str], None] | None = None,
) -> Comparison:
    """Run the best federated method again without each client, and add what each contributes.

    Args:
        spec: The comparison's specification.
        comparison: Its result.
        kept: Finished runs are kept here, and those that are there already are not repeated.
        step: Called after each client.
    """
    found = comparison.verdict()
    if found.main is None:
        return comparison
    label = found.main[0]
    whole = {row.seed: row for row in comparison.of(label)}
    known = {key: row for key, row in kept.left_out().items() if row.label == label}
    sites, tables, units = list[str](), list[np.ndarray](), list[np.ndarray]()
    for site in spec.data.clients:
        rows = list(_rows_without(spec, site, label, whole, known, kept))
        if (found_gains := _gains(rows, whole)) is not None:
            others, table = found_gains
            sites.append(site)
            tables.append(table)
            units.append(over_groups(table, group_names(others, spec.site_groups)))
        if step is not None:
            step(f"without {site}")
    made = _judged(label, sites, tables, units)
    return replace(comparison, contributions=tuple(made))


def _rows_without(
    spec: ComparisonSpec,
    site: str,
    label: str,
    seeds: Iterable[int],
    known: Mapping[tuple[str, int], Row],
    kept: Records,
) -> Iterator[Row | Failure]:
    """Yield the results without one client, those that are known first."""
    left = [seed for seed in seeds if (site, seed) not in known]
    yield from (known[site, seed] for seed in seeds if (site, seed) in known)
    if not left:
        return
    part = replace(
        spec,
        data=spec.data.select([client for client in spec.data.clients if client != site]),
        entries={label: spec.entries[label]},
        rules=replace(spec.rules, example_runs=0, cross_site=False),
    )
    for seed in left:
        outcome = part.run([label], seed, Watcher())[0]
        if isinstance(outcome, Row):
            kept.record_left_out(site, outcome)
        yield outcome


def _gains(rows: list[Row | Failure], whole: dict[int, Row]) -> tuple[list[str], np.ndarray] | None:
    """Return the other clients and their gains [clients, seeds] from one client's taking part."""
    columns = [
        whole[row.seed].evaluation.gains(row.evaluation) for row in rows if isinstance(row, Row)
    ]
    if not columns:
        return None
    common = sorted(set.intersection(*map(set, columns)))
    return common, np.array([[column[client] for column in columns] for client in common])


def _judged(
    label: str, sites: list[str], tables: list[np.ndarray], units: list[np.ndarray]
) -> list[dict[str, Any]]:
    means = mean_gains(units, methods=len(tables))
    cautious = [
        max(p, unanimous(len(table)))
        for p, table in zip(holm([mean.p_cautious for mean in means]), units, strict=True)
    ]
    usual = holm([mean.p_value for mean in means])
    in_runs = holm([mean.p_in_runs for mean in means])
    parts = zip(sites, tables, means, cautious, usual, in_runs, strict=True)
    made = [
        _contribution(label, site, table, mean, _grade(sure, probable, here))
        for site, table, mean, sure, probable, here in parts
    ]
    return [asdict(one) for one in sorted(made, key=lambda one: -one.gain)]


def _grade(cautious: float, usual: float, in_runs: float) -> str:
    if cautious < SURE:
        return "sure"
    if usual < PROBABLE:
        return "probable"
    return "in these runs" if in_runs < SURE else "none"


def _contribution(
    label: str, site: str, table: np.ndarray, mean: MeanGain, grade: str
) -> Contribution:
    return Contribution(
        site=site,
        label=label,
        gain=mean.mean,
        low=mean.low,
        high=mean.high,
        grade=grade,
        clients_better=int((table.mean(1) > 0).sum()),
        clients=len(table),
    )
