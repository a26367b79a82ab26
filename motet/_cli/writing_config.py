"""The text of a config for data: what was decided and why, and what can be changed."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from motet._compare.references import why_unsuited
from motet._core.option_table import help_of
from motet._core.real_paths import real_path
from motet._core.text import listed, plural
from motet.config import Experiment, experiment_from_dict
from motet.config._files import refuse_keys_of_others
from motet.config._run_section import RunChoice
from motet.config._sections import DEFAULT_DATA, TableData
from motet.config._values import read_fields, to_plain
from motet.data import Federation
from motet.data._remarks import remarks as remarks_on
from motet.data._sources.table import names_in, suggestions
from motet.errors import RequestError
from motet.method import AnyMethod

WIDTH = 88
MOST_NAMES = 40
LISTS = ("drop", "categorical", "dates", "na")
PREFERRED = ("fedper", "ditto", "fedavg-ft")  # the first that suits the network
# Keys of [data] and [run] that are shown as comments, with their defaults.
DATA_KEYS = ("val", "test", "indicators", "rare", "units", "labels")
RUN_KEYS = ("seed", "cohort", "backend")
HEAD = """\
# An experiment of Motet, written by `motet init`.
#
#   motet compare {file}    does federating help each client, and which method helps most?
#   motet run {file}        one method: the one below
#
# Lines that start with "#" and a key show defaults; remove the "#" to change them.
# Every key is in the reference of config keys and in `motet run --help`.
"""


@dataclass(frozen=True)
class Draft:
    """A config to be written.

    Attributes:
        text: The file.
        tables: What it says, as tables.
        remarks: What its reader should know about the data.
    """

    text: str
    tables: dict[str, Any]
    remarks: tuple[str, ...]


def drafted(asked: Mapping[str, Any], file: Path) -> Draft:
    """Decide what the data need, check that the experiment can start, and write it down."""
    data, reasons = _data(dict(asked.get("data", {})))
    tables = {**asked, "data": data, "method": {"name": PREFERRED[0]}}
    federation = _experiment(tables).federation()
    tables["method"] = {"name": _method(tables, federation)}
    experiment = _experiment(tables)
    experiment.start(federation)
    choice = experiment.data.resolved(federation)
    run = {"rounds": RunChoice().rounds, **asked.get("run", {})}
    model = experiment.model.resolved(federation, experiment.data)
    lines = [
        HEAD.format(file=file),
        "[data]",
        *_wrapped(_summary(federation)),
        *_keys("data", {**data, **_relative(data, file)}, reasons),
        *_more("data", {k: getattr(choice, k, None) for k in DATA_KEYS}, data),
        *_tables("data", data),
        "\n[model]",
        *_keys("model", {"name": model.name, **asked.get("model", {})}),
        *_more("model", model.options, asked.get("model", {})),
        "\n[method]",
        *_keys("method", tables["method"]),
        *_more("method", _training(experiment.method), {}),
        "\n[run]",
        *_keys("run", run),
        *_more("run", {key: getattr(experiment.run, key) for key in RUN_KEYS}, run),
    ]
    return Draft("\n".join(lines) + "\n", tables, tuple(remarks_on(federation)))


def _experiment(tables: Mapping[str, Any]) -> Experiment:
    return experiment_from_dict({k: v for k, v in tables.items() if k != "compare"})


def _data(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Complete `[data]` with the options that a table needs; also return why, by option."""
    refuse_keys_of_others(asked)
    if "table" not in asked:
        return (asked if "folder" in asked else {"name": DEFAULT_DATA, **asked}), {}
    if "target" not in asked:
        unfinished = read_fields(TableData, {"client": "", "target": "", **asked}, "data")
        known = names_in(unfinished.table, **unfinished.options())
        raise RequestError(
            "which column is to be predicted? Name it with `--target COLUMN`; the table has "
            f"{listed(known, most=MOST_NAMES)}."
        )
    choice = read_fields(TableData, asked, "data")
    found, reasons = dict(asked), dict[str, list[str]]()
    for each in suggestions(choice.table, **choice.options()):
        if each.option in LISTS:
            found[each.option] = [*found.get(each.option, []), each.value]
        else:
            found[each.option] = each.value
        reasons.setdefault(each.option, []).append(each.reason)
    return found, reasons


def _training(method: AnyMethod) -> dict[str, Any]:
    """Return the settings that most methods share, as a config has them."""
    lr = getattr(method.optimizer, "lr", None)
    return {"lr": lr, "epochs": method.epochs or 1, "batch_size": method.batch_size}


def _method(tables: Mapping[str, Any], federation: Federation) -> str:
    for name in PREFERRED:
        experiment = _experiment({**tables, "method": {"name": name}})
        if not why_unsuited(experiment.method, experiment.task(federation), federation):
            return name
    return PREFERRED[-1]


def _relative(data: Mapping[str, Any], file: Path) -> dict[str, str]:
    """Write paths as the config reads them: relative to itself."""
    start = real_path(file).parent
    return {
        key: Path(os.path.relpath(Path(data[key]).absolute(), start)).as_posix()
        for key in ("table", "folder")
        if key in data
    }


def _summary(federation: Federation) -> str:
    sizes = federation.sizes()
    least, most = min(sizes.values()), max(sizes.values())
    kind = "a regression" if federation.classes is None else plural(federation.classes, "label")
    return (
        f"{plural(len(federation.clients), 'client')} with {least:,} to {most:,} training rows, "
        f"inputs of shape {list(federation.shape)}, {kind}."
    )


def _keys(
    section: str, values: Mapping[str, Any], reasons: Mapping[str, list[str]] | None = None
) -> Iterator[str]:
    """Yield keys, each below the reason for its value or what it means."""
    for key, value in values.items():
        if not isinstance(value, Mapping):
            for said in (reasons or {}).get(key) or _help(section, key):
                yield from _wrapped(said)
            yield f"{key} = {_on_one_line(value)}"


def _more(section: str, examples: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield further keys as comments, with what they mean."""
    for key, example in examples.items():
        if key not in given and example is not None:
            for said in _help(section, key):
                yield from _wrapped(said)
            yield f"#{key} = {_on_one_line(to_plain(example))}"


def _tables(section: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield tables within a section; every plain key has to come before them."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield "\n" + tomli_w.dumps({section: {key: dict(value)}}).strip()


def _on_one_line(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_on_one_line, value))}]"
    return tomli_w.dumps({"value": value}).strip().removeprefix("value = ")


def _help(section: str, key: str) -> list[str]:
    said = help_of(f"{section}.{key}")
    return [] if said is None else [said]


def _wrapped(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH)]
