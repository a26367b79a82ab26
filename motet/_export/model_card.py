"""The model card of an exported predictor, in plain words.

For which client, how it was trained, how good it is, what it needs, its limits, how to use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet._core.text import plural
from motet._export.card_columns import columns_table, listing, target_text
from motet._export.card_results import results_text
from motet._export.card_usage import usage_text
from motet._export.markdown import code, table
from motet.data import Schema

LICENCE = (
    "Motet does not know the licence of the data, nor whether a model that was trained on them may "
    "be passed on. Ask the owner of the data before you do."
)


def card_text(about: Mapping[str, Any], name: str, *, without_graph: str) -> str:
    """Return the model card as Markdown.

    Args:
        about: The result of `motet._export.export.describe_predictor`.
        name: Name of the files, without suffix.
        without_graph: Why there is no ONNX file; empty if there is one.
    """
    written = about.get("schema")
    schema = None if written is None else Schema.from_dict(written)
    parts = [
        f"# {about['title']}: the model of client {code(about['client'])}",
        _purpose(about, schema),
        "## How it was trained",
        _training(about),
        _facts(about),
        "## Results",
        results_text(about),
        "## Input and output",
        _signature(about) if schema is None else _columns(about, schema),
        "## How to use it",
        usage_text(about, name, schema, without_graph),
        "## Limits",
        _limits(about, schema),
        "## Licence",
        LICENCE,
        "## What is inside",
        _inside(about),
    ]
    return "\n\n".join(parts) + "\n"


def _inside(about: Mapping[str, Any]) -> str:
    remembers = any(kind.endswith(":Datastore") for kind in about["nodes"].values())
    memory = (
        "representations of training examples with their labels, which the method looks up"
        if remembers
        else "no training examples"
    )
    return (
        "A predictor made for one client from that client's own data: protect the files as you "
        f"protect the data. They hold fitted numbers and {memory}. What a client never shares "
        f"under this method: {about['private']}."
    )


def _purpose(about: Mapping[str, Any], schema: Schema | None) -> str:
    site, data = code(about["client"]), code(about["data"]["name"])
    if schema is None:
        return f"It predicts for {site}, one of the clients of {data}, and was made for it alone."
    return (
        f"It predicts {target_text(schema)}, from a row of a table like {data}. It was made for "
        f"the site {site} alone: other sites have models of their own."
    )


def _training(about: Mapping[str, Any]) -> str:
    clients, sizes = about.get("clients"), about.get("sizes")
    parts = [about["idea"]]
    if clients and sizes:
        together = (
            "One client trained"
            if clients == 1
            else f"{plural(clients, 'client')} trained together without exchanging examples"
        )
        parts.append(
            f"{together}, for {plural(about['round'], 'round')}. Of this client's examples, "
            f"{sizes['train']} were used for training, {sizes['val']} for validation and "
            f"{sizes['test']} for the test."
        )
    return " ".join(parts)


def _facts(about: Mapping[str, Any]) -> str:
    data, model = about["data"], about["model"]
    network = "built in Python" if model is None else code(model["name"])
    rows = {
        "method": f"{code(about['method']['name'])} {about['link']}".strip(),
        "network": network,
        "round": f"{about['round']} of {about['rounds']}",
        "data": f"{code(data['name'])}, split {code(data['hash'])}",
        "made by": f"Motet {about['motet']}",
    }
    return table(("", ""), list(rows.items()))


def _columns(about: Mapping[str, Any], schema: Schema) -> str:
    site = f" The column {code(schema.client)} is not needed." if schema.client else ""
    output = f"Output: {output_text(about)}."
    if about["output"] in ("probabilities", "label_probabilities"):
        what = "Labels" if schema.target.kind == "labels" else "Classes"
        output += f" {what}, in order: {listing(schema.target.labels)}."
    unknown = (
        "Spaces and case of categories do not matter. "
        if schema.merge_spellings
        else "Categories must be spelled as here. "
    )
    return "\n\n".join(
        [
            "A row needs these columns, in any order; other columns are ignored." + site,
            columns_table(schema),
            f"{unknown}An unknown category, a missing column that can be filled, and a number "
            "outside the range of the training rows (another unit?) are reported with the number "
            "of rows.",
            output,
        ]
    )


def _signature(about: Mapping[str, Any]) -> str:
    shape = ", ".join(["examples", *map(str, about["input"]["shape"])])
    lines = [f"- Input: {code(about['input']['dtype'])} of shape {code(f'[{shape}]')}."]
    if about["normalize"] is not None:
        mean, std = (list(about["normalize"][key]) for key in ("mean", "std"))
        image = "; divide pixels from 0 to 255 by 255 first" if len(shape.split(", ")) > 2 else ""
        lines.append(
            f"- Preprocessing: {code('(x - mean) / std')}, mean {mean}, std {std}, per channel"
            f"{image}."
        )
    lines.append(f"- Output: {output_text(about)}.")
    if about["labels"] is not None:
        listed = ", ".join(code(label) for label in about["labels"])
        lines.append(f"- Classes, in order: {listed}.")
    return "\n".join(lines)


def output_text(about: Mapping[str, Any]) -> str:
    """Say what the model returns."""
    others = {
        "values": "values",
        "label_probabilities": "a probability for each label",
        "survival_curves": "probabilities of surviving the end of each time bin "
        f"({', '.join(f'{end:g}' for end in (about.get('model') or {}).get('times', ()))})",
    }
    plain = f"probabilities of {about['classes']} classes"
    return others.get(about["output"], plain).removesuffix(" ()")


def _limits(about: Mapping[str, Any], schema: Schema | None) -> str:
    test = about["scores"].get("test")
    rows = plural(test["examples"], "example") if test else "no example"
    lines = [
        f"- It was tested on {rows} of {code(about['client'])}, from the same data as the training "
        "examples. How good it is elsewhere, or later, is not known.",
    ]
    if schema is not None:
        lines.append(
            "- For rows unlike the training rows (other units, other devices, new categories) its "
            "predictions are guesses; heed the warnings."
        )
    measured = [one["metric"].partition("=")[0] for one in (test or {}).get("also", ())]
    if about["output"] != "values" and "ece" not in measured:
        lines.append("- Its probabilities have not been checked for calibration.")
    lines.append(
        "- It has not been evaluated for clinical use, or for any other decision about people."
    )
    return "\n".join(lines)
