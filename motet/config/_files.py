"""Config files: reading, overriding and writing tables, and the experiment they describe."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from motet._core.own_code import check_not_hidden, own_modules, search_in
from motet._core.real_paths import did_you_mean, looks_like_a_table, real_path
from motet._core.visible_text import excerpt
from motet.config._experiment import Experiment
from motet.config._hints import NONE
from motet.config._methods import method_from_dict
from motet.config._run_section import RunChoice
from motet.config._sections import (
    DEFAULT_DATA,
    DataChoice,
    FolderData,
    ModelChoice,
    NamedData,
    TableData,
)
from motet.config._values import read_fields
from motet.data import Natural, Partition, dataset
from motet.errors import RequestError, nearest, under
from motet.methods._catalog import method_names

SECTIONS = ("run", "method", "data", "model")
KINDS: dict[str, tuple[Any, str]] = {  # what [data] may be; they exclude each other
    "name": (NamedData, "a data set by name (--data)"),
    "table": (TableData, "a table (--table)"),
    "folder": (FolderData, "a folder (--folder)"),
}
SOURCES = tuple(KINDS)
# All others are options of the network.
MODEL_KEYS = ("name", "loss", "times", "bins", "init", "rename", "init_sha256", "base", "frozen")
PATHS = (
    ("data", "table"),
    ("data", "folder"),
    ("model", "init"),
    ("model", "base"),
    ("compare", "site_groups"),
)
MOST_TEXT = 1_000_000
# Time to parse a key grows with the square of its parts. Tried at the beginnings of words only.
_ENDLESS_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++\s*+\.\s*+){64}""")
Tables = dict[str, Any]


def load_experiment(path: str | Path) -> Experiment:
    """Read the experiment that a config file describes.

    Args:
        path: A TOML file.

    Returns:
        The experiment; the data are not loaded yet.

    Raises:
        RequestError: The file cannot be read, or it says something that does not exist or fit.

    Example:
        >>> import motet, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "e.toml")
        ...     _ = path.write_text('method = {name = "fedper"}')
        ...     motet.config.load_experiment(path).method.name
        'fedper'
    """
    return experiment_from_dict(read_tables(path))


def experiment_from_dict(tables: Mapping[str, Any]) -> Experiment:
    """Make the experiment that the tables of a config describe, or say what is wrong with them.

    Args:
        tables: The sections `method`, `data`, `model` and `run`; what is left out has its
            default.

    Returns:
        The experiment; the data are not loaded yet.

    Raises:
        RequestError: A section, key or value does not exist or fit.

    Example:
        >>> import motet
        >>> motet.config.experiment_from_dict({"method": {"name": "fedper"}}).run.rounds
        50
    """
    section = section_reader(tables, SECTIONS)
    run = run_from_dict(section("run"), tables)
    return Experiment(
        method=method_from_dict(section("method")),
        data=data_from_dict(section("data"), seed=run.seed),
        model=model_from_dict(section("model")),
        run=run,
    )


def section_reader(tables: Mapping[str, Any], known: Iterable[str]) -> Callable[[str], Tables]:
    """Refuse unknown sections, and return a function that looks up a known one."""
    for name in tables:
        if name not in known:
            raise RequestError(f"a config has no section [{name}]; {nearest(name, known)}.")

    def section(name: str) -> Tables:
        found = tables.get(name, {})
        if not isinstance(found, Mapping):
            raise RequestError(f"[{name}] expects a table; got {found!r}.")
        return dict(found)

    return section


def run_from_dict(table: Mapping[str, Any], tables: Mapping[str, Any]) -> RunChoice:
    """Read `[run]`, and let the user's own modules be found."""
    run = read_fields(RunChoice, table, "run")
    if run.modules is not None:
        folder = Path(run.modules)
        search_in(folder)
        check_not_hidden(own_modules(tables), folder)
    return run


def with_modules(tables: Mapping[str, Any], folder: Path) -> Tables:
    """Write down the folder of the user's own modules, if the tables name any."""
    run = tables.get("run", {})
    if not isinstance(run, Mapping) or not own_modules(tables):
        return dict(tables)
    given = run.get("modules", NONE)
    if not isinstance(given, str):
        return dict(tables)
    place = folder if given == NONE else folder / given
    return {**tables, "run": {**run, "modules": str(real_path(place))}}


def data_from_dict(table: Mapping[str, Any], *, seed: int) -> DataChoice:
    """Read `[data]`; without a seed of its own, the split has the run's."""
    sources = [key for key in SOURCES if key in table]
    if len(sources) > 1:
        raise RequestError(f"[data] names both {' and '.join(sources)}; keep one of them.")
    seeded = {"seed": seed, **table}
    if isinstance(seeded["seed"], int) and seeded["seed"] < 0:
        message = f"data.seed must be 0 or more; got {seeded['seed']}."
        raise RequestError(message, option="data.seed")
    refuse_keys_of_others(table)
    if sources == ["table"]:
        return read_fields(TableData, seeded, "data")
    if sources == ["folder"]:
        return read_fields(FolderData, seeded, "data")
    name = table.get("name", DEFAULT_DATA)
    with under("data"):
        usual = usual_partition(name) if isinstance(name, str) else None
    # `usual` is the base, so that `[data.partition] clients = 50` alone changes only that.
    return read_fields(NamedData, seeded, "data", base=NamedData(partition=usual))


def refuse_keys_of_others(table: Mapping[str, Any]) -> None:
    """Refuse a key of another source of data by saying whose it is."""
    source = next((key for key in SOURCES if key in table), "name")
    own = {field.name for field in fields(KINDS[source][0])}
    for key in table:
        for kind, what in KINDS.values():
            if key not in own and key in {field.name for field in fields(kind)}:
                raise RequestError(
                    f"data.{key} is for {what}; these data are {KINDS[source][1]}. Remove the key "
                    "or its flag, or name other data."
                )


def usual_partition(name: str) -> Partition:
    """Make the partition of a data set that is used when none is named."""
    make = dataset(name).default_partition
    return Natural() if make is None else make()


def model_from_dict(table: Mapping[str, Any]) -> ModelChoice:
    """Read `[model]`; the network's options are checked once the network is known."""
    own = {key: value for key, value in table.items() if key in MODEL_KEYS}
    options = {key: value for key, value in table.items() if key not in own}
    return replace(read_fields(ModelChoice, own, "model"), options=options)


def read_tables(path: str | Path) -> Tables:
    """Read a TOML file; paths in it are relative to the file.

    Args:
        path: A TOML file.

    Returns:
        Its tables; paths of data and modules are absolute.

    Raises:
        RequestError: The file cannot be read, or is not valid TOML.

    Example:
        >>> import motet, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "e.toml")
        ...     _ = path.write_text("run = {rounds = 3}")
        ...     motet.config.read_tables(path)
        {'run': {'rounds': 3}}
    """
    file = Path(path)
    try:
        tables = tomllib.loads(_read_text(file))
    except FileNotFoundError:
        raise RequestError(_not_there(file)) from None
    except UnicodeDecodeError:
        raise RequestError(
            _a_table(file) or f"{file} cannot be read: it is not UTF-8. Save it as UTF-8."
        ) from None
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise RequestError(f"{file} cannot be read: {why}.") from None
    except (ValueError, RecursionError) as reason:  # also numbers and nesting that are too large
        why = f"{reason}{_line_of(file, str(reason))}"
        raise RequestError(_a_table(file) or f"{file} is not valid TOML: {why}.") from None
    for section, key in PATHS:
        table = tables.get(section)
        given = table.get(key) if isinstance(table, dict) else None
        # A NUL is refused by the name of its key, when the section is read.
        if table and isinstance(given, str) and given != NONE and "\0" not in given:
            table[key] = str(real_path(file.parent / given))
    return with_modules(tables, file.parent)


def _read_text(file: Path) -> str:
    """Read a config; refuse text that is none and would keep the parser busy for hours."""
    with file.open(encoding="utf-8-sig") as opened:  # some editors begin a file with a mark
        text = opened.read(MOST_TEXT + 1)
    if len(text) > MOST_TEXT:
        raise ValueError(f"more than {MOST_TEXT:,} characters")
    if _ENDLESS_KEY.search(text):
        raise ValueError("a key of more than 64 parts")
    return text


def _line_of(file: Path, reason: str) -> str:
    """Quote the line that the parser complains about, and say what text looks like in TOML."""
    found = re.search(r"at line (\d+)", reason)
    lines = file.read_text(encoding="utf-8-sig").splitlines() if found else []
    if found is None or int(found[1]) > len(lines):
        return ""
    line = excerpt(lines[int(found[1]) - 1].strip(), most=80)
    bare = re.fullmatch(r"([\w.-]+)\s*=\s*([A-Za-z][\w .-]*)", line)
    fix = f'; text needs quotes: {bare[1]} = "{bare[2]}"' if bare else ""
    return f', which is "{line}"{fix}'


def write_tables(tables: Mapping[str, Any]) -> str:
    """Write tables as TOML, which has no null: None becomes "none".

    Args:
        tables: Tables of plain values: numbers, text, lists, tables, None.

    Returns:
        The text of a TOML file.

    Example:
        >>> print(write_tables({"run": {"rounds": 3, "mode": None}}))
        [run]
        rounds = 3
        mode = "none"
        <BLANKLINE>
    """
    return tomli_w.dumps(_without_null(tables))


def _without_null(value: Any) -> Any:
    if value is None:
        return NONE
    if isinstance(value, Mapping):
        return {key: _without_null(v) for key, v in value.items()}
    return [_without_null(v) for v in value] if isinstance(value, list) else value


def _not_there(file: Path) -> str:
    """Say what is at a path that has no config: perhaps it is the name of a method."""
    if str(file) in method_names():
        return (
            f"there is no config file at {file}; to name a method, use `--method {file}` or, for "
            "several, `motet compare --methods NAME,NAME`."
        )
    return f"there is no config file at {file}.{did_you_mean(file)}"


def _a_table(file: Path) -> str:
    """Say how to name a table that was given as a config; nothing if it is not a table."""
    if not looks_like_a_table(file):
        return ""
    return (
        f"{file} is a table, not a config: use `--table {file}`, or write a config for it with "
        f"`motet init study.toml --table {file}`."
    )
