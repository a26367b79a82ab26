"""Whether a classifier's outputs fit the labels, and if not, what to write instead."""

from __future__ import annotations

from torch import Tensor

from motet._core.criteria import Criterion, cross_entropy, masked_cross_entropy
from motet._core.text import plural
from motet._engine.scorability import MOST_CLIENTS
from motet.data._federation import Federation
from motet.errors import DataError


def check_classes(criterion: Criterion, outputs: Tensor, federation: Federation) -> None:
    """Refuse labels of another type, shape or range than the network scores.

    Args:
        criterion: A loss of class scores.
        outputs: What the network returns for a few examples.
        federation: Its labels.
    """
    y = federation.examples(federation.clients[0], "train").y
    _check_type(outputs, y)
    _check_range(outputs, federation, y)
    _check_positions(criterion, outputs, y)
    _check_padding(criterion, federation)


def _check_type(outputs: Tensor, y: Tensor) -> None:
    if not y.is_floating_point():
        return
    if y.shape[1:] == outputs.shape[1:] and y.ndim > 1 and _is_one_hot(y):
        remedy = "they are one-hot, so give their places: y.argmax(-1)"
    elif bool((y == y.round()).all()):
        remedy = 'give whole numbers if they are classes (y.astype("int64")), or use loss="mse"'
    else:
        remedy = 'use loss="mse"'
    raise DataError(
        f"cross_entropy expects whole-number labels, but the targets are real values; {remedy}."
    )


def _is_one_hot(y: Tensor) -> bool:
    return bool(((y == 0) | (y == 1)).all() and (y.sum(-1) == 1).all())


def _check_range(outputs: Tensor, federation: Federation, y: Tensor) -> None:
    classes = federation.classes or int(y.max()) + 1
    scores = outputs.shape[-1] if outputs.ndim > 1 else 1
    if classes <= scores:
        return
    least = min(
        int(federation.examples(client, "train").y.min())
        for client in federation.clients[:MOST_CLIENTS]
    )
    other = ""
    if (classes, scores) == (2, 1):
        other = ', or use loss="binary_cross_entropy"'
    elif least >= classes - scores:
        other = f", or count classes from 0: y - {classes - scores}"
    raise DataError(
        f"labels run from {max(least, 0)} to {classes - 1}, but the network has "
        f"{plural(scores, 'output')}; give it at least {classes}{other}."
    )


def _check_positions(criterion: Criterion, outputs: Tensor, y: Tensor) -> None:
    """Refuse other numbers of scored positions than of targets; a loss of one's own may differ."""
    wanted, scored = tuple(y.shape[1:]), tuple(outputs.shape[1:-1])
    if wanted == scored or criterion.example_loss not in (cross_entropy, masked_cross_entropy):
        return
    if wanted == (1,):
        remedy = "Give one label per example: y[:, 0]."
    elif wanted == tuple(outputs.shape[1:]) and bool(((y == 0) | (y == 1)).all()):
        remedy = (
            'Use loss="multi_label" if several labels of an example may be 1; if it is always '
            "one of them, give its place: y.argmax(-1)."
        )
    else:
        remedy = (
            "A network that reads sequences may have an option for this: "
            'predict = "every" or "last".'
        )
    raise DataError(
        f"the data have {_targets(wanted)} per example, but the network scores "
        f"{_targets(scored)}: outputs of shape {tuple(outputs.shape)} for "
        f"{plural(len(outputs), 'example')}. {remedy}"
    )


def _targets(shape: tuple[int, ...]) -> str:
    return (
        "one target"
        if not shape
        else f"{'x'.join(map(str, shape))} target{'' if shape == (1,) else 's'}"
    )


def _check_padding(criterion: Criterion, federation: Federation) -> None:
    """Refuse padding, which has negative labels, unless the loss leaves it out."""
    if criterion.example_loss is not cross_entropy or not federation.y.shape:
        return
    for client in federation.clients[:MOST_CLIENTS]:
        if bool((federation.examples(client, "train").y < 0).any()):
            raise DataError(
                f'client "{client}" has padding (negative labels), which cross_entropy would '
                'score; use loss="masked_cross_entropy".'
            )
