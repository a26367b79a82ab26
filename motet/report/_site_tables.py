"""The table of clients: each one's scores, gain, interval and verdict."""

from __future__ import annotations

import math

from motet._core.text import gain, number, plural, unit
from motet._verdict.contributions import described
from motet._verdict.contributions import mark as contribution_mark
from motet._verdict.results import Results
from motet._verdict.site_table import mark, scores_of
from motet._verdict.sites import SMALL, SiteVerdict
from motet._verdict.verdict import Verdict
from motet.report._tables import UNKNOWN, Cell, Column, Table

MOST = 2000  # rows: the rest is in sites.parquet


def site_table(comparison: Results, found: Verdict) -> Table | None:
    """Return the clients under the method of the answer; None if no examples were kept."""
    if found.main is None:
        return None
    sites = sorted(found.of_sites(*found.main), key=lambda site: site.gain)
    if not sites:
        return None
    label, reference = found.main
    metric, one_seed = comparison.rows[0].evaluation.metric, len(comparison.seeds) < 2
    scores = [scores_of(comparison, name) for name in (reference, label)]
    columns = (
        Column("client", "", numeric=False, descending=False),
        Column("test examples", ""),
        Column(reference, ""),
        Column(label, ""),
        Column("gain", f"in {unit(metric)}"),
        Column("95% interval", ""),
        Column("in this run" if one_seed else "verdict", "", numeric=False, descending=False),
    )
    rows = tuple(
        (
            Cell(site.site, site.site, remark="few test examples" if site.small else ""),
            Cell(str(site.examples), site.examples),
            *(_score(one.get(site.site)) for one in scores),
            Cell(gain(site.gain, metric), site.gain),
            _interval(site, metric),
            Cell(mark(site, one_seed=one_seed), mark(site, one_seed=one_seed)),
        )
        for site in sites[:MOST]
    )
    return Table(columns, rows, about=_about(found, sites, metric))


def contribution_table(comparison: Results) -> Table | None:
    """Return what each client contributes to the others; None if no client was left out."""
    if not comparison.contributions:
        return None
    metric = comparison.rows[0].evaluation.metric
    columns = (
        Column("left out", "", numeric=False, descending=False),
        Column("gain of the others", f"in {unit(metric)}, from this client's taking part"),
        Column("95% interval", ""),
        Column("others better with it", ""),
    )
    rows = tuple(
        (
            Cell(one["site"], one["site"]),
            Cell(f"{gain(one['gain'], metric)} {contribution_mark(one)}".rstrip(), one["gain"]),
            Cell(f"[{gain(one['low'], metric)}, {gain(one['high'], metric)}]", one["low"]),
            Cell(f"{one['clients_better']} of {one['clients']}", one["clients_better"]),
        )
        for one in comparison.contributions
    )
    return Table(columns, rows, about=described(comparison.contributions))


def _about(found: Verdict, sites: list[SiteVerdict], metric: str) -> str:
    label, reference = found.main or ("", "")
    limit = f"{gain(sites[0].margin, metric).removeprefix('+')} {unit(metric)}"
    small = f" Few test examples: fewer than {SMALL}." if any(site.small for site in sites) else ""
    more = f" The first {MOST} are listed." if len(sites) > MOST else ""
    return (
        f"{label} compared with {reference}: a paired test for each client over its own test "
        f"examples and the seeds, corrected for {plural(len(sites), 'client')}. No difference: "
        f"none larger than {limit}.{small}{more}"
    )


def _score(value: float | None) -> Cell:
    known = value is not None and not math.isnan(value)
    return Cell(number(value), value) if known and value is not None else Cell(UNKNOWN, None)


def _interval(site: SiteVerdict, metric: str) -> Cell:
    if math.isnan(site.low):
        return Cell(UNKNOWN, None)
    return Cell(f"[{gain(site.low, metric)}, {gain(site.high, metric)}]", site.low)
