"""Who can use whose model: every site's model, scored at every site that has agreed to it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet._core.atomic import write_atomically
from motet._engine.evaluating import metrics_of
from motet._engine.run_spec import Point
from motet.deploy._runtime import replies as reading
from motet.deploy._runtime.backend import Remote
from motet.deploy._runtime.parcels import Parcel
from motet.deploy._runtime.replies import refusing
from motet.deploy._runtime.site import JUDGE, LEND
from motet.errors import WireError
from motet.method import RoundInfo

CROSS_SITE = "cross_site.json"  # in the run directory
SPLIT = "test"

log = logging.getLogger("motet.deploy._runtime")


@dataclass(frozen=True)
class CrossSite:
    """Scores of every site's model at every site.

    Attributes:
        metric: What is scored.
        higher_is_better: Its direction.
        rounds: Rounds that the models have trained.
        sites: Names; first those that took part.
        values: Rows: whose model. Columns: whose test data. None: not available.
    """

    metric: str
    higher_is_better: bool
    rounds: int
    sites: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]

    def write(self, path: Path) -> None:
        """Write the matrix as JSON."""
        note = "rows: whose model; columns: whose test data; null: not available"
        text = json.dumps({**vars(self), "note": note}, indent=1, ensure_ascii=False)
        write_atomically(path, text.encode())

    def sentences(self) -> list[str]:
        """Say for each model how it does at home and, on average, elsewhere."""
        return [
            f"model of {site}: {self.metric} {_shown(row[place])} at home, "
            f"{_shown(_mean([v for at, v in enumerate(row) if at != place]))} at other sites"
            for place, (site, row) in enumerate(zip(self.sites, self.values, strict=True))
        ]


def cross_site(backend: Remote, down: Any, info: RoundInfo, point: Point) -> CrossSite:
    """Collect the models of sites that lend them, and let every site score each of them.

    A site without `cross_site = true` lends nothing and scores nothing: its row and its column
    stay empty. Whatever a site sends, only its own row or column can be lost.
    """
    sites = sorted(info.cohort)
    asked = backend.ask_all(LEND, sites, down, info, {"point": point})
    lent = {site: _model(backend, site, reply, info) for site, reply in asked.items()}
    rows = []
    for owner in sites:
        model = lent.get(owner)
        judged: Mapping[str, Parcel] = {}
        if model is not None:
            judged = backend.ask_all(JUDGE, sites, model, info, {"split": SPLIT})
        rows.append(tuple(_value(backend, site, judged.get(site), info) for site in sites))
    metric = metrics_of(backend.setting)[0]
    return CrossSite(metric.name, metric.higher_is_better, info.number, tuple(sites), tuple(rows))


def _model(backend: Remote, site: str, reply: Parcel, info: RoundInfo) -> Any:
    try:
        with refusing():
            found = reading.read_model(reply, info.number, backend.setting.initial)
    except WireError as reason:
        log.warning("%s lent no model: %s", site, reason)
        return None
    if found is None:
        log.info("%s keeps its model to itself", site)
    return found


def _value(backend: Remote, site: str, reply: Parcel | None, info: RoundInfo) -> float | None:
    found = None if reply is None else backend.scored(site, reply, info)
    value = None if found is None else found.scores[0].value
    return value if value is not None and math.isfinite(value) else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _shown(value: float | None) -> str:
    return "not available" if value is None else f"{value:.4f}"
