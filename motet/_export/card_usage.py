"""Snippets of a model card: commands, Python and ONNX Runtime."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from motet._export.raw_graph import raw_inputs
from motet._export.samples import as_number, sample_rows
from motet.data import Schema


def usage_text(
    about: Mapping[str, Any], name: str, schema: Schema | None, without_graph: str
) -> str:
    """Write how to use the files of an export."""
    parts = [] if schema is None else _commands(name)
    parts += ["With Motet:", _python(about, name, schema)]
    if about["one_network"]:
        parts += [
            "With torch and safetensors only: load it into a network of the same architecture, "
            "which then returns scores before the softmax:",
            _block(
                "import safetensors.torch",
                "",
                f"network.load_state_dict(safetensors.torch.load_file({f'{name}.safetensors'!r}))",
                "network.eval()",
            ),
        ]
    if without_graph:
        return "\n\n".join([*parts, f"There is no ONNX file: {without_graph}"])
    parts += [
        "With ONNX Runtime only"
        + (":" if schema is None else ", for inputs that are encoded and standardised:"),
        _block(
            "import onnxruntime",
            "",
            f"session = onnxruntime.InferenceSession({f'{name}.onnx'!r})",
            '(answer,) = session.run(None, {"x": x})',
        ),
    ]
    return "\n\n".join([*parts, *([] if schema is None else _raw(name, schema))])


def _commands(name: str) -> list[str]:
    return [
        "On the command line, for the rows of a file, or as a service with a page at `/docs`:",
        f"```\nmotet predict {shlex.quote(name)} rows.csv -o predictions.csv\n"
        f"motet serve {shlex.quote(name)}\n```",
    ]


def _python(about: Mapping[str, Any], name: str, schema: Schema | None) -> str:
    model, file = about["model"], f"{name}.safetensors"
    use = "predictor.predict(x)" if schema is None else 'predictor.predict_rows("rows.csv")'
    if model is None:
        what = about.get("network") or "the network"
        return _block(
            "import motet",
            "",
            f"# task: the motet.Task of training, motet.Task(build, loss={about['loss']!r}),",
            f"# in which build() returns {what}.",
            f"predictor = motet.load_predictor({file!r}, task=task)",
            use,
        )
    if ":" not in model["name"]:
        return _block("import motet", "", f"predictor = motet.load_predictor({file!r})", use)
    module, _, function = model["name"].partition(":")
    options = {k: v for k, v in model.items() if k not in ("name", "loss")}
    given = {"shape": tuple(about["input"]["shape"]), "classes": about["classes"], **options}
    arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return _block(
        "import motet",
        f"from {module} import {function}",
        "",
        f"task = motet.Task(lambda: {function}({arguments}), loss={model['loss']!r})",
        f"predictor = motet.load_predictor({file!r}, task=task)",
        use,
    )


def _raw(name: str, schema: Schema) -> list[str]:
    inputs = raw_inputs(schema)
    values = _typical(schema)
    given = []
    if inputs.numbers:
        row = [_number(values[column]) for column in inputs.numbers]
        given.append(f'"numbers": np.array([[{", ".join(row)}]])')
    if inputs.categories:
        texts = [values[column] for column in inputs.categories]
        given.append(f'"categories": np.array([{texts!r}], object)')
    lines = [f"# {what}: {', '.join(map(repr, c))}" for what, c in inputs._asdict().items() if c]
    call = f"(answer,) = raw.run(None, {{{', '.join(given)}}})"
    return [
        "With ONNX Runtime only, for raw columns: numbers as float64 (NaN: missing; dates are days "
        'since 1970-01-01), categories as text ("": missing), in this order:',
        _block(
            "import numpy as np",
            "import onnxruntime",
            "",
            *lines,
            f"raw = onnxruntime.InferenceSession({f'{name}.raw.onnx'!r})",
            call,
        ),
    ]


def _typical(schema: Schema) -> dict[str, Any]:
    """Make up a row without missing values."""
    drawn = sample_rows(replace(schema, fills=None), 1)
    known = {column.name: column.categories[:1] for column in schema.columns if column.categories}
    return {name: values[0] for name, values in (drawn | known).items()}


def _number(value: Any) -> str:
    return f"{as_number(value):.6g}"


def _block(*lines: str) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"
