"""Statistics of a table that all sites agree on: each site sends counts and moments, never a row.

Medians over all sites need questions: `agree` writes questions.json, which sites answer with counts
by the same command as before, until the medians are known.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motet._core.atomic import write_atomically
from motet._core.corrupt_files import reading
from motet._core.real_paths import did_you_mean
from motet.config import write_tables
from motet.config._values import read_fields
from motet.data._schema import Schema
from motet.data._tables.agreeing import Agreeing, in_order
from motet.data._tables.asking import Question, thresholds_in
from motet.data._tables.options import filling_of, standardize_of
from motet.data._tables.sending import SiteStatistics
from motet.data._tables.site import site_statistics, without_statistics
from motet.deploy._layout import CONFIG, Deployment
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._sent_statistics import QUESTIONS, sent_by_sites
from motet.deploy._site_settings import SiteSettings
from motet.deploy._submission import change_settings
from motet.deploy._writing import Draft
from motet.errors import CapabilityError, DataError, RequestError, StateError

STATISTICS = "statistics.json"


class Progress(NamedTuple):
    """How far the sites are on the way to common statistics.

    Attributes:
        sites: Whose statistics were used.
        asked: How many medians are still unknown; 0: the experiment has its statistics.
        categories: Categories that the experiment did not have before, by column.
    """

    sites: tuple[str, ...]
    asked: int
    categories: dict[str, tuple[str, ...]]


def write_site_statistics(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write what a site may send to the operator, and list what it is."""
    data, settings = _site_data(folder / CONFIG), SiteSettings.read(folder)
    found = data.read_rows(folder / settings.data, settings.name)
    question = folder / QUESTIONS
    asked = None
    if question.is_file():
        asked = thresholds_in(_read_json(question).get("thresholds"))
    sent = site_statistics(found, settings.name, data.missing, asked).to_dict()
    text = json.dumps(sent, indent=1, ensure_ascii=False) + "\n"
    path = folder / STATISTICS
    write_atomically(path, text.encode(), private=True)
    return path, sent_by_sites(data.missing)


def agree_on_statistics(deployment: Deployment, files: Sequence[Path]) -> Progress:
    """Combine the statistics of sites: write them into the experiment, or ask the next question."""
    if not files:
        raise RequestError(f"expected the {STATISTICS} of at least one site, got none.")
    first = deployment.site(deployment.sites[0]) / CONFIG
    data = _site_data(first)
    agreed = data.table_schema()
    agreeing = _agreeing(deployment, data, agreed, files)
    sites = tuple(one.site for one in agreeing.sent)
    medians = None
    if agreeing.needs_medians:
        question = _next_question(deployment, agreeing)
        medians = question.medians
        if medians is None:
            return Progress(sites, len(question.thresholds), {})
    _forget_questions(deployment)
    fitted = agreeing.schema(medians)
    tables = tomllib.loads(first.read_text(encoding="utf-8"))
    tables["data"]["schema"] = json.dumps(fitted.to_dict(), ensure_ascii=False)
    tables["data"]["shape"] = [len(fitted.feature_names)]
    _write_config(deployment, write_tables(tables))
    return Progress(sites, 0, _new_categories(agreed, fitted))


def _agreeing(
    deployment: Deployment, data: SiteData, agreed: Schema, files: Sequence[Path]
) -> Agreeing:
    draft = without_statistics(agreed)
    sent = in_order([SiteStatistics.from_dict(_read_json(path), draft) for path in files])
    strange = [one.site for one in sent if one.site not in deployment.sites]
    if strange:
        raise RequestError(f'"{strange[0]}" is not a site of this deployment.')
    return Agreeing(
        draft,
        sent,
        filling_of(data.missing, indicators=data.indicators),
        standardize_of(data.standardize),
        rare=data.rare,
        complete=len(sent) == len(deployment.sites),
    )


def _next_question(deployment: Deployment, agreeing: Agreeing) -> Question:
    """Use the answers to the last question, and write the next one if there is any."""
    path = deployment.path / QUESTIONS
    answered = {one.answered for one in agreeing.sent}
    if answered == {""}:
        question = agreeing.first_question()
    else:
        last = Question.from_dict(_read_json(path)) if path.is_file() else Question({})
        behind = [one.site for one in agreeing.sent if one.answered != last.id]
        if behind:
            raise RequestError(
                f'the statistics of "{behind[0]}" do not answer the present question. Give the '
                f"site {path}, and run `motet deploy statistics .` there again."
            )
        question = agreeing.next_question(last)
    if question.medians is None:
        text = json.dumps(question.to_dict()).encode()
        for folder in (deployment.path, *map(deployment.site, deployment.sites)):
            if folder.is_dir():
                write_atomically(folder / QUESTIONS, text, private=True)
    return question


def _forget_questions(deployment: Deployment) -> None:
    for folder in (deployment.path, *map(deployment.site, deployment.sites)):
        (folder / QUESTIONS).unlink(missing_ok=True)


def _new_categories(agreed: Schema, fitted: Schema) -> dict[str, tuple[str, ...]]:
    pairs = zip(agreed.columns, fitted.columns, strict=True)
    new = {
        one.name: tuple(text for text in other.categories if text not in one.categories)
        for one, other in pairs
    }
    return {name: texts for name, texts in new.items() if texts}


def _site_data(config: Path) -> SiteData:
    if not config.is_file():
        raise RequestError(f"{config.parent} is not the folder of a site: it has no {CONFIG}.")
    table = tomllib.loads(config.read_text(encoding="utf-8")).get("data", {})
    if "schema" not in table:
        raise CapabilityError(
            "this experiment is not about a table, so there are no statistics to agree on."
        )
    return read_fields(SiteData, table, "data")


def _read_json(path: Path) -> dict[str, Any]:
    with reading(path, "file of statistics"):
        try:
            sent = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StateError(f"there is no file at {path}.{did_you_mean(path)}") from None
        except (ValueError, RecursionError) as error:
            raise StateError(f"{path} is not JSON: {error}.") from None
    if not isinstance(sent, dict):
        raise DataError(f"{path} does not hold the statistics of a site.")
    return sent


def _write_config(deployment: Deployment, config: str) -> None:
    """Replace the experiment in the app, and all that a site agrees to in the folder of each."""
    change_settings(deployment, config=config)
    draft = Draft.reopened(deployment)
    for site in deployment.sites:
        if deployment.site(site).is_dir():
            draft.write_agreement(site)
