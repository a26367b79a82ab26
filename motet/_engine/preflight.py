"""Checks before the first round."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from motet._core import tree
from motet._core.keys import Key
from motet._core.text import plural
from motet._engine.label_checks import check_classes
from motet._engine.network_purity import check_pure
from motet._engine.run_spec import RunSpec
from motet._engine.scorability import check_targets
from motet.data._federation import Examples, Federation
from motet.errors import (
    NOT_FINITE,
    DataError,
    MotetError,
    RequestError,
    StructureError,
    WorkError,
    nearest,
    one_line,
)
from motet.method import AnyMethod
from motet.task import Task


def check_settings(
    rounds: int, backend: str, serving_steps: int | None, *, has_store: bool
) -> None:
    """Refuse settings of a run that no method could work with."""
    if rounds < 0:
        raise RequestError(f"rounds must be 0 or more; got {rounds}.", option="rounds")
    if serving_steps is not None and serving_steps < 0:
        raise RequestError(
            f"serving_steps must be 0 or more; got {serving_steps}.", option="serving_steps"
        )
    if backend == "ray" and has_store:
        raise RequestError(
            'backend="ray" keeps private states in its shards, below state_dir=; leave store= out.'
        )


def check_choice(what: str, got: str, known: Sequence[str]) -> None:
    """Refuse a word that is not one of a few."""
    if got not in known:
        raise RequestError(f'no {what} is called "{got}"; {nearest(got, known)}.', option=what)


def check_fits(task: Task, federation: Federation) -> None:
    """Run two examples and one through the network, and compare its outputs with the labels."""
    first = federation.clients[0]
    x, y = federation.examples(first, "train")
    _check_network(task.skeleton)
    outputs = _try(task, x[:2].clone(), first)  # a network may change its input
    _try_alone(task, x[:1].clone(), federation)
    if task.criterion.kind == "classes":
        check_classes(task.criterion, outputs, federation)
    check_targets(task.criterion, outputs, federation)
    check_pure(task, Examples(x[:2], y[:2]))


def _check_network(network: nn.Module) -> None:
    """Refuse a network that has nothing to learn, or that asks for more than one input."""
    if not any(True for _ in network.parameters()):
        raise StructureError(
            f"the network ({type(network).__name__}) has no parameters, so there is nothing to "
            "train; give it a layer that has, such as nn.Linear."
        )
    asked = [
        name
        for name, one in inspect.signature(network.forward).parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(asked) > 1:
        raise StructureError(
            f"forward must take one tensor, the examples, but it asks for {', '.join(asked)}. Put "
            "the inputs into one tensor, side by side, and take it apart in forward: "
            "a, b = x[:, :3], x[:, 3:]."
        )


def check_finite(what: str, state: Any) -> None:
    """Refuse to start from a NaN or an infinity: every round would look as if it had diverged."""
    spoiled = tree.not_finite(state)
    if spoiled:
        raise StructureError(
            f"{what} {NOT_FINITE} in {spoiled}; start from finite numbers. A constant of the "
            "network, such as an attention mask, is not part of its state if it is registered with "
            "persistent=False."
        )


def _try(task: Task, x: Tensor, client: str) -> Tensor:
    state = task.init(Key(0))
    try:
        with torch.no_grad():
            outputs: Any = task.outputs(state, x)
    except MotetError:  # it says itself what to do
        raise
    except Exception as reason:
        raise StructureError(
            f'the network does not accept the data of client "{client}", shape {tuple(x.shape)} '
            f"and type {x.dtype}: {one_line(reason)}. {_remedy(x, reason)}"
        ) from reason
    if not isinstance(outputs, Tensor):
        raise StructureError(
            f"the network must return one tensor, got {type(outputs).__name__}; return the scores "
            "alone, or wrap the network in a module that does."
        )
    if not outputs.is_floating_point():
        raise StructureError(
            f"the network must return scores as real numbers, got {outputs.dtype}; leave argmax, "
            "comparisons and the like out of `forward`."
        )
    if outputs.ndim == 0 or len(outputs) != len(x):
        raise StructureError(
            f"the network must return a row per example: for {plural(len(x), 'example')}, got "
            f"outputs of shape {tuple(outputs.shape)}. A `squeeze()` or `view(...)` in `forward` "
            "may remove or move the dimension of examples."
        )
    return outputs


def _remedy(x: Tensor, reason: Exception) -> str:
    if not x.is_floating_point() and "dtype" in str(reason):
        return (
            "Whole numbers reach the network as they are, as embeddings need them; if these are "
            'measurements, give x as real numbers: x.astype("float32").'
        )
    return "Check the input size of `build`."


def _try_alone(task: Task, x: Tensor, federation: Federation) -> None:
    """Run one example through the network: a new patient comes alone.

    Batch normalisation without running statistics needs two; it may, while nobody is scored on one.
    """
    scored_on_one = bool((federation.rows.sizes[:, 1:] == 1).any())
    if scored_on_one or not task.has_batch_statistics:
        _try(task, x, federation.clients[0])


def check_scorable(federation: Federation) -> None:
    """Refuse data on which nothing could be reported at the end."""
    if not any(federation.size(client, "test") for client in federation.clients):
        raise DataError(
            f'no client of "{federation.name}" has test data, so nothing could be reported; give '
            "test examples, or a share to cut from the training data (data.test = 0.2)."
        )


def first_server(setting: RunSpec) -> Any:
    """Make the server's state before round 1; a network that the method cannot use is refused."""
    method = setting.method
    key = setting.key.fold("server")
    with _refusing(method, "its first server state"):
        return method.init_server(setting.task, setting.initial, setting.everybody, key)


def check_method(method: AnyMethod, task: Task, clients: Sequence[str]) -> tuple[str, ...]:
    """Let the method look at the network; return its remarks."""
    with _refusing(method, "its check of the network"):
        return tuple(method.check(task, clients))


@contextmanager
def _refusing(method: AnyMethod, what: str) -> Iterator[None]:
    """Turn any error of a method into a sentence about the network."""
    try:
        yield
    except MotetError:  # it says itself what to do
        raise
    except Exception as error:
        raise WorkError(
            f"{method.name} does not work with this network: {what} fails "
            f"({type(error).__name__}: {one_line(error)}). Change the network, or choose another "
            "method."
        ) from error
