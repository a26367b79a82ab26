"""Which networks may have their images laid out with channels last."""

from __future__ import annotations

from motet._tracing import support
from motet.task import Task

LANES = 8  # numbers of a vector register: oneDNN pads the channels to a multiple of it


def why_not_channels_last(task: Task) -> str:
    """Say why a network must not see channels last, as a clause; nothing if it may.

    The weight gradient of a strided 1x1 convolution writes past the end of its memory if the
    channels are last and do not fill a vector register (oneDNN as in torch 2.13, AVX2). The process
    then crashes later, or continues with wrong numbers.
    """
    found = _convolutions(task)
    if found is None:
        return "the network's convolutions cannot be observed with this torch"
    for shape, strides in sorted(found):
        channels, kernel = shape[1], shape[2:]
        if set(kernel) == {1} and max(strides) > 1 and channels % LANES:
            return f"a 1x1 convolution with strides over {channels} channels is not safe so"
    return ""


def _convolutions(task: Task) -> set[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    network, example = task.skeleton.eval(), task.example
    if example is None:
        return None
    try:
        return support.convolutions(lambda: network(example))
    except Exception:  # a network may refuse a batch of one
        return None
