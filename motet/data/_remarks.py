"""Remarks on data: what a user should know about them before relying on a result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motet.data._federation import Federation
from motet.data._heterogeneity import Heterogeneity

LARGE = 10.0  # targets of this size or more make gradients so large that training may diverge
LOOKED_AT = 50  # clients whose targets are read
NEARLY = 0.5  # label EMD, beyond what chance alone gives clients of this size


def remarks(federation: Federation) -> list[str]:
    """Return what is done to the data that their owner may not expect; nothing if all is plain."""
    partition = federation.recipe.get("partition", {})
    divided = _on_latent(federation, partition.get("embed")) if _is_latent(partition) else []
    return [
        *federation.notes,
        *_on_precision(federation),
        *_on_large_targets(federation),
        *divided,
    ]


def _on_large_targets(federation: Federation) -> list[str]:
    if federation.classes is not None or federation.survival:
        return []
    trained = [client for client in federation.clients if federation.size(client, "train")]
    read = [federation.examples(client, "train").y for client in trained[:LOOKED_AT]]
    if not read:
        return []
    y = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in read])
    mean, deviation = float(y.mean()), float(y.std())
    if not max(abs(mean), deviation) >= LARGE:
        return []
    return [
        f'the targets of "{federation.name}" are large for a network: {mean:.3g} on average, with '
        f"a deviation of {deviation:.3g}. If training diverges, use a smaller learning rate "
        "(--lr 0.001), bound the gradients (--set method.optimizer.clip=1), or divide the targets "
        "so that their deviation is near 1."
    ]


def _on_precision(federation: Federation) -> list[str]:
    given = {"inputs": federation.x.dtype}
    if federation.classes is None:
        given["targets"] = federation.y.dtype
    doubles = [what for what, dtype in given.items() if dtype == np.float64]
    if federation.precision is not None or not doubles:
        return []
    return [
        f'the {" and ".join(doubles)} of "{federation.name}" are float64 and are read as float32; '
        'to keep them, pass precision="float64" to from_arrays.'
    ]


def _is_latent(partition: object) -> bool:
    return isinstance(partition, Mapping) and partition.get("name") == "latent"


def _on_latent(federation: Federation, embed: object) -> list[str]:
    found = federation.heterogeneity()
    alike = is_nearly_iid(federation, found)
    if embed is not None and not alike:
        return []
    how = "clusters the raw inputs, because it has no embed=" if embed is None else "is by clusters"
    emd = found.mean_emd
    measured = "" if emd is None else f"; label EMD {emd:.2f} (0: all alike, 2: nothing in common)"
    so = ", and labels are nearly IID" if alike else ""
    return [
        f"the partition latent {how}{so}{measured}. For groups by content, name an embedding in "
        'data.partition.embed: "module:function", or a network that is trained for this; '
        "for clients whose labels differ, use the partition dirichlet or pathological."
    ]


def is_nearly_iid(federation: Federation, found: Heterogeneity) -> bool:
    """Tell whether clients' labels differ hardly more than chance makes them."""
    if found.emd is None or found.mean_emd is None:
        return False
    everybody = federation.histogram().sum(axis=0)
    share = everybody / max(everybody.sum(), 1)
    sizes = found.sizes[found.sizes > 0]
    # The mean absolute error of a share p in n draws is sqrt(2 p (1 - p) / (pi n)).
    chance = np.sqrt(2 * share * (1 - share) / np.pi).sum() * float(np.mean(1 / np.sqrt(sizes)))
    return bool(found.mean_emd < chance + NEARLY)
