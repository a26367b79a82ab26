"""Values that a shell can complete.

Names are written down here because the modules that define them import torch, which takes longer
than a person waits after pressing Tab. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

DATA_SETS = (
    "digits",
    "cifar10",
    "cifar100",
    "mnist",
    "mnist-by-writer",
    "fashion-mnist",
    "femnist",
    "shakespeare",
    "shakespeare-next",
    "stackoverflow",
    "reddit",
    "gldv2",
    "flickr-aes",
    "librispeech",
    "har",
    "heart-disease",
    "medpar",
    "rand-hie",
    "parkinsons",
    "tcga-brca",
)
MODELS = (
    "char-lstm",
    "emnist-cnn",
    "fomo-cnn",
    "logistic",
    "mcmahan-cnn",
    "mlp",
    "mobilenet-v1",
    "mobilenet-v2",
    "resnet-18",
    "resnet-34",
    "sensor-cnn",
    "small-cnn",
    "transformer",
    "vgg-11",
    "word-lstm",
)
PARTITIONS = (
    "iid",
    "pathological",
    "dirichlet",
    "two-level-dirichlet",
    "latent",
    "quantity-skew",
    "natural",
)


def methods() -> tuple[str, ...]:
    """List the methods."""
    from motet.methods._catalog import method_names

    return method_names()


def metrics() -> tuple[str, ...]:
    """List the metrics."""
    from motet.metrics import names

    return tuple(names())


def starting_with(names: Callable[[], tuple[str, ...]]) -> Callable[[str], list[str]]:
    """Return a function that completes a word to the names that start with it."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def complete_list(incomplete: str) -> list[str]:
    """Complete the last name of a comma-separated list of methods.

    >>> complete_list("local,fedpe")
    ['local,fedper']
    """
    before, comma, last = incomplete.rpartition(",")
    known = methods() if comma else ("all", *methods())
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


# By the name of the commands' parameter.
COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "method": starting_with(methods),
    "methods": complete_list,
    "metric": starting_with(metrics),
    "data": starting_with(lambda: DATA_SETS),
    "model": starting_with(lambda: MODELS),
    "partition": starting_with(lambda: PARTITIONS),
    "backend": starting_with(lambda: ("auto", "serial", "vectorized", "ray")),
    "store": starting_with(lambda: ("memory", "disk")),
    "standardize": starting_with(lambda: ("federation", "site")),
    "missing": starting_with(
        lambda: ("error", "median", "mean", "client-median", "client-mean", "indicator")
    ),
    "kind": starting_with(lambda: ("auto", "classes", "regression")),
    "choose": starting_with(lambda: ("last", "validation")),
    "tune_kind": starting_with(lambda: ("random", "grid")),
    "weigh": starting_with(lambda: ("clients", "examples")),
    "bad_rows": starting_with(lambda: ("error", "skip")),
}
