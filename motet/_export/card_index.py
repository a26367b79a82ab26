"""The page that lists the models of a directory of exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from motet._core.text import plural
from motet._export.card_results import one_line
from motet._export.markdown import table


def index_text(abouts: Mapping[str, Mapping[str, Any]]) -> str:
    """Write the list of models.

    Args:
        abouts: Metadata of each model by the name of its files.
    """
    first = next(iter(abouts.values()))
    metric = next((s["metric"] for a in abouts.values() for s in a["scores"].values()), "score")
    rows = [
        (*one_line(about), f"[card]({quote(name)}.md)") for name, about in sorted(abouts.items())
    ]
    head = ("client", "this model", "Local", "FedAvg", "test rows", "")
    parts = [
        f"# {first['title']}: the models of {plural(len(abouts), 'client')}",
        "Each client has a model of its own. Its card says what the model is for, how good it is, "
        "what it needs and where its limits are.",
        f"Test {metric}:",
        table(head, rows),
    ]
    if first.get("schema") is not None:
        parts += [
            "Predict new rows with the model of the site that each row names, or with one model:",
            "```\nmotet predict . rows.csv -o predictions.csv\n"
            "motet predict . rows.csv --site NAME -o predictions.csv\n```",
        ]
    return "\n\n".join(parts) + "\n"
