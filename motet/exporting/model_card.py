"""The card beside an exported model: what it is, how good it is, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def card_text(about: Mapping[str, Any], name: str, *, without_graph: str) -> str:
    """Write the card in Markdown.

    Args:
        about: What `motet.exporting.export.describe_predictor` says.
        name: Of the files, without suffix.
        without_graph: Why there is no ONNX file; empty if there is one.
    """
    parts = [
        f"# {about['title']}: the model of client {_code(about['client'])}",
        about["idea"],
        _facts(about),
        "## Scores",
        _scores(about),
        "## Input and output",
        _signature(about),
        "## How to use it",
        _usage(about, name, without_graph),
        "## What is inside",
        "A predictor made for one client from the client's own data: treat the file as you treat "
        f"them. What a client keeps to itself under this method: {about['private']}.",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(about: Mapping[str, Any]) -> str:
    data, model = about["data"], about["model"]
    network = "made in Python" if model is None else _code(model["name"])
    rows = {
        "method": f"{_code(about['method']['name'])} {about['link']}".strip(),
        "network": network,
        "round": f"{about['round']} of {about['rounds']}",
        "data": f"{_code(data['name'])}, split {_code(data['hash'])}",
        "made by": f"Motet {about['motet']}",
    }
    return _table(("", ""), list(rows.items()))


def _scores(about: Mapping[str, Any]) -> str:
    if not about["scores"]:
        return "The client has no data to validate or test it on."
    names = {"val": "validation", "test": "test"}
    rows = [
        (names[split], s["metric"], f"{s['value']:.4f}", f"{s['loss']:.4f}", str(s["examples"]))
        for split, s in about["scores"].items()
    ]
    table = _table(("data", "metric", "value", "loss", "examples"), rows)
    return f"On the client's own data, after the method's own adaptation.\n\n{table}"


def _signature(about: Mapping[str, Any]) -> str:
    shape = ", ".join(["examples", *map(str, about["input"]["shape"])])
    lines = [f"- Input: {_code(about['input']['dtype'])} of shape {_code(f'[{shape}]')}."]
    if about["normalize"] is not None:
        mean, std = (list(about["normalize"][key]) for key in ("mean", "std"))
        lines.append(
            f"- Before it comes in: {_code('(x - mean) / std')}, mean {mean}, std {std}, by "
            "channel; pixels from 0 to 255 are divided by 255 first."
        )
    if about["output"] == "values":
        lines.append("- Output: values.")
    else:
        lines.append(f"- Output: probabilities of {about['classes']} classes.")
    if about["labels"] is not None:
        listed = ", ".join(_code(label) for label in about["labels"])
        lines.append(f"- Classes, in order: {listed}.")
    return "\n".join(lines)


def _usage(about: Mapping[str, Any], name: str, without_graph: str) -> str:
    file = f"{name}.safetensors"
    task = "" if about["model"] is not None else ", task=task"
    why = "" if about["model"] is not None else "  # task: the motet.Task it was trained with"
    parts = [
        "With Motet:",
        f"```python\npredictor = motet.load_predictor({file!r}{task}){why}\n"
        "predictor.predict(x)\n```",
    ]
    if about["one_network"]:
        parts += [
            "With torch and safetensors alone, into a network of the same architecture, which then "
            "returns scores before the softmax:",
            f"```python\nnetwork.load_state_dict(safetensors.torch.load_file({file!r}))\n"
            "network.eval()\n```",
        ]
    if without_graph:
        return "\n\n".join([*parts, f"There is no ONNX file: {without_graph}"])
    graph = (
        f"```python\nsession = onnxruntime.InferenceSession({f'{name}.onnx'!r})\n"
        '(answer,) = session.run(None, {"x": x})\n```'
    )
    return "\n\n".join([*parts, "With ONNX Runtime alone:", graph])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: Any) -> str:
    """Quote a name that somebody else has chosen, so that it cannot become markup."""
    plain = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
