"""Predictors as ONNX graphs, for programs that know neither Motet nor torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from motet.errors import CapabilityError, one_line

NEEDED = ("onnx", "onnxscript", "onnxruntime")
CHATTY = ("torch.onnx", "onnx_ir", "onnxscript")
INPUT = "x"
CLOSE = 1e-5  # how far a graph's answer may be from torch's, absolutely and relatively


def to_onnx(module: nn.Module, example: Tensor, *, output: str, about: Mapping[str, str]) -> bytes:
    """Write a module as an ONNX graph with any number of examples per call.

    Args:
        module: From `x` to one tensor, a row per example.
        example: At least two inputs: a batch of one would be taken for a constant.
        output: The name of what the graph returns.
        about: Metadata to put into the file.
    """
    _check_installed()
    module(example)  # whatever is made at first use must be there before it is traced
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


def _check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CapabilityError(
            f"ONNX needs the package{'s' if missing[1:] else ''} {', '.join(missing)}; "
            "install motet[onnx]."
        )


def _check_agrees(written: bytes, module: nn.Module, example: Tensor) -> None:
    """Refuse a graph that does not answer as the module does, for other batch sizes, too."""
    for x in (example, example[:1], torch.cat([example, example.flip(0), example])):
        answer, expected = _run(written, x), module(x).detach()
        if not torch.allclose(answer, expected, rtol=CLOSE, atol=CLOSE, equal_nan=True):
            gap = (answer - expected).abs().max()
            raise CapabilityError(
                f"its ONNX graph answers otherwise than the predictor itself, by up to {gap:.2g}."
            )


def _run(written: bytes, x: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    if wanted.shape[0] not in (len(x), "batch"):
        raise CapabilityError(
            f"its ONNX graph takes {wanted.shape[0]} examples at a time, no other number; a "
            "`forward` that counts them by `len(x)` should use `x.shape[0]`."
        )
    (answer,) = session.run(None, {INPUT: x.numpy()})
    return torch.from_numpy(answer)


def _cause(error: BaseException) -> str:
    """Find what went wrong first: the exporter wraps it in advice on its own internals."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the exporter says about packages that nobody asked for from the user."""
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
