"""Statistics of a table that all sites agree on: each site sends aggregates, never a row."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet._core.corrupt_files import reading
from motet.config import write_tables
from motet.config._values import read_fields
from motet.data._tables.aggregates import Aggregates, join
from motet.data._tables.options import filling_of, standardize_of
from motet.data._tables.site import site_aggregates, without_statistics
from motet.data._tables.statistics import refit
from motet.deploy._layout import CONFIG, Deployment
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._site_settings import SiteSettings
from motet.deploy._submission import change_settings
from motet.errors import CapabilityError, DataError, RequestError, StateError

STATISTICS = "statistics.json"
# What a site's aggregates are, for the people who must approve them.
SENT = {
    "rows": "number of training rows",
    "missing": "missing values of each column",
    "known": "values of each input that are there",
    "mean": "their mean; for a category: the share of rows that have it",
    "spread": "sum of their squared distances from the mean",
    "low": "smallest value of each input",
    "high": "largest value of each input",
}


def write_site_statistics(folder: Path) -> Path:
    """Aggregate the training rows of a site, and write what it may send to the operator."""
    data, settings = _site_data(folder / CONFIG), SiteSettings.read(folder)
    site = settings.name
    found = data.read_rows(folder / settings.data, site)
    path = folder / STATISTICS
    sent = site_aggregates(found, site).to_dict()
    path.write_text(json.dumps(sent, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def agree_on_statistics(deployment: Deployment, files: Sequence[Path]) -> tuple[str, ...]:
    """Combine the aggregates of sites, and write the statistics into the experiment.

    Returns:
        The sites whose aggregates were used.
    """
    if not files:
        raise RequestError(f"expected the {STATISTICS} of at least one site, got none.")
    first = deployment.site(deployment.sites[0]) / CONFIG
    data = _site_data(first)
    agreed = data.table_schema()
    draft = without_statistics(agreed)
    joined = join([_read(path, draft) for path in files])
    strange = [site for site in joined.sites if site not in deployment.sites]
    if strange:
        raise RequestError(f'"{strange[0]}" is not a site of this deployment.')
    filling = filling_of(data.missing, indicators=False)
    fitted = refit(agreed, joined, filling, standardize_of(data.standardize))
    tables = tomllib.loads(first.read_text(encoding="utf-8"))
    tables["data"]["schema"] = json.dumps(fitted.to_dict(), ensure_ascii=False)
    _write_config(deployment, write_tables(tables))
    return joined.sites


def _site_data(config: Path) -> SiteData:
    if not config.is_file():
        raise RequestError(f"{config.parent} is not the folder of a site: it has no {CONFIG}.")
    table = tomllib.loads(config.read_text(encoding="utf-8")).get("data", {})
    if "schema" not in table:
        raise CapabilityError(
            "this experiment is not about a table, so there are no statistics to agree on."
        )
    return read_fields(SiteData, table, "data")


def _read(path: Path, draft: Any) -> Aggregates:
    with reading(path, "file of statistics"):
        try:
            sent = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StateError(f"there is no file at {path}.") from None
        except (ValueError, RecursionError) as error:
            raise StateError(f"{path} is not JSON: {error}.") from None
    if not isinstance(sent, dict):
        raise DataError(f"{path} does not hold the aggregates of a site.")
    return Aggregates.from_dict(sent, draft)


def _write_config(deployment: Deployment, config: str) -> None:
    """Replace the experiment in the app, and all that a site agrees to in the folder of each."""
    from motet.deploy._writing import Draft  # it lists what a site sends, which is named here

    change_settings(deployment, config=config)
    draft = Draft.reopened(deployment)
    for site in deployment.sites:
        if deployment.site(site).is_dir():
            draft.write_agreement(site)
