"""Write docs/reference/config.md from the table of options and the config sections.

Usage: python scripts/config_reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from motet._compare.budget import Budget
from motet._compare.config import CompareChoice
from motet._compare.tuning import Search
from motet._core.option_table import ROWS, Row
from motet._engine.faults import Faults
from motet.config import FolderData, ModelChoice, NamedData, RunChoice, TableData
from motet.config._hints import describe, field_types
from motet.config._hyperparameters import attribute_docs, shown
from motet.config._values import default_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"
HEAD = """\
# Config keys

Every key of a config file, and the flag that sets it on the command line. A key without a flag is
set with `--set SECTION.KEY=VALUE`. [Config files](../guides/config.md) explains how the sections
work together. `scripts/config_reference.py` writes this page.

## `[method]`

`name`, and the hyperparameters that `motet methods NAME` lists. In a comparison, `[method]` holds
what all methods share and `[methods.LABEL]` the settings of one method.

"""
PARTITION = """
`[data.partition]` takes the fields of its partition. These have flags:

"""
# A table of a config, the heading of its keys, and the class that holds them.
TABLES: tuple[tuple[str, str, type], ...] = (
    ("data", "A dataset by name.", NamedData),
    (
        "data",
        "A table with a column that names each row's client, or one file per client.",
        TableData,
    ),
    ("data", "A folder with a subfolder of arrays per client.", FolderData),
    ("model", "The network and its loss.", ModelChoice),
    ("run", "Rounds, cohort, backend and evaluation.", RunChoice),
    ("run.faults", "Faults to simulate.", Faults),
    ("compare", "Settings of `motet compare`.", CompareChoice),
    ("compare.budget", "Limits for every run of a comparison.", Budget),
    ("compare.tune", "A hyperparameter search; without this table there is none.", Search),
)
FREE = ("options", "space")  # tables whose keys depend on the network or method
ROW_OF = {row.key: row for row in ROWS if row.key is not None}


def page() -> str:
    """Return the text of the page."""
    return HEAD + _keys("method") + "".join(map(_section, *zip(*TABLES, strict=True)))


def _section(name: str, about: str, kind: type) -> str:
    head = f"\n## `[{name}]`\n\n{about}\n\n| key | accepts | flag | meaning |\n|---|---|---|---|\n"
    below = PARTITION + _keys("data.partition") if kind is NamedData else ""
    return head + "".join(_lines(name, kind)) + below


def _lines(section: str, kind: Any) -> Iterator[str]:
    hints, docs = field_types(kind), attribute_docs(kind.__doc__)
    for field in fields(kind):
        row = ROW_OF.get(f"{section}.{field.name}")
        meaning = docs[field.name] if row is None else row.help
        accepted = "a table" if field.name in FREE else describe(hints[field.name])
        said = meaning if "default" in meaning else f"{meaning}{_default(field)}"
        yield f"| `{field.name}` | {accepted} | {_flag(row)} | {said} |\n"


def _keys(section: str) -> str:
    """List the keys of a table whose class depends on its name: those that have a flag."""
    rows = [row for key, row in ROW_OF.items() if key.rpartition(".")[0] == section]
    lines = [
        f"| `{(row.key or '').rpartition('.')[2]}` | {_flag(row)} | {row.help} |\n" for row in rows
    ]
    return "| key | flag | meaning |\n|---|---|---|\n" + "".join(lines)


def _default(field: Field[Any]) -> str:
    default = default_of(field)
    if default is MISSING:
        return " Required."
    if default is None or default == {}:
        return ""
    return f" Default: {str(default).lower() if isinstance(default, bool) else shown(default)}."


def _flag(row: Row | None) -> str:
    return f"`{row.flag}`" if row is not None and row.flag else ""


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
