"""Conversion of predictors to ONNX graphs, for programs without Motet or torch.

One graph takes encoded inputs; for models of tables, another one takes raw columns.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from motet._export.raw_graph import encoder_graph, join
from motet._export.samples import graph_inputs, sample_rows
from motet.data import Schema
from motet.errors import CapabilityError, one_line

NEEDED = ("onnx", "onnxscript", "onnxruntime")
CHATTY = ("torch.onnx", "onnx_ir", "onnxscript")
INPUT = "x"
CHECKED_ROWS = 100  # made-up raw rows on which a graph of raw columns is checked
CLOSE = 1e-5  # absolute and relative tolerance between the outputs of the graph and of torch


def to_onnx(module: nn.Module, example: Tensor, *, output: str, about: Mapping[str, str]) -> bytes:
    """Convert a module to an ONNX graph that accepts any batch size.

    Args:
        module: Maps `x` to one tensor with a row per example.
        example: At least two inputs: torch would treat a batch size of one as a constant.
        output: Name of the graph's output.
        about: Metadata of the file.
    """
    _check_installed()
    module(example)  # anything created on first use must exist before tracing
    try:
        with _quietly():
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[output],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    except (torch.onnx.OnnxExporterError, ValueError) as reason:
        raise CapabilityError(f"it cannot be written as ONNX: {_cause(reason)}.") from reason
    assert program is not None
    program.model.metadata_props.update(about)
    written: bytes = program.model_proto.SerializeToString(deterministic=True)
    _check_agrees(written, module, example)
    return written


def to_raw_onnx(
    graph: bytes, module: nn.Module, schema: Schema, *, output: str, about: Mapping[str, str]
) -> bytes:
    """Put a schema's encoding before a graph, and compare the result with the predictor.

    Args:
        graph: The predictor's graph, of `to_onnx`.
        module: The predictor.
        schema: The schema of one site.
        output: Name of the graph's output.
        about: Metadata of the file.
    """
    import onnx

    core = onnx.load_from_string(graph)
    opset = next(entry.version for entry in core.opset_import if entry.domain in ("", "ai.onnx"))
    encoder = encoder_graph(schema, opset=opset, ir_version=core.ir_version)
    joined = join(encoder, core, output=output)
    onnx.helper.set_model_props(joined, dict(about))
    written: bytes = joined.SerializeToString(deterministic=True)
    rows = sample_rows(schema, CHECKED_ROWS)
    expected = module(torch.from_numpy(schema.encode(rows).x)).detach()
    _require_close(_session(written), graph_inputs(schema, rows), expected)
    return written


def _check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CapabilityError(
            f"ONNX needs the package{'s' if missing[1:] else ''} {', '.join(missing)}; "
            "install motet[onnx]."
        )


def _check_agrees(written: bytes, module: nn.Module, example: Tensor) -> None:
    """Raise if the graph's output differs from the module's, for several batch sizes."""
    session = _session(written)
    (wanted,) = session.get_inputs()
    for x in (example, example[:1], torch.cat([example, example.flip(0), example])):
        if wanted.shape[0] not in (len(x), "batch"):
            raise CapabilityError(
                f"its ONNX graph only accepts batches of {wanted.shape[0]} examples; if its "
                "`forward` uses `len(x)`, use `x.shape[0]` instead."
            )
        _require_close(session, {INPUT: x.numpy()}, module(x).detach())


def _require_close(session: Any, inputs: Mapping[str, Any], expected: Tensor) -> None:
    (found,) = session.run(None, dict(inputs))
    answer = torch.from_numpy(found)
    if not torch.allclose(answer, expected, rtol=CLOSE, atol=CLOSE, equal_nan=True):
        gap = (answer - expected).abs().max()
        raise CapabilityError(
            f"the output of its ONNX graph differs from the predictor's by up to {gap:.2g}."
        )


def _session(written: bytes) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])


def _cause(error: BaseException) -> str:
    """Return the root cause: the exporter wraps it in advice about its own internals."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the exporter's logs and warnings about optional packages."""
    levels = {logger: logger.level for logger in map(logging.getLogger, CHATTY)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
