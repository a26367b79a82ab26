"""Weights to start from: those of a run, of a checkpoint or of a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from motet._core.real_paths import did_you_mean
from motet._core.tree import State
from motet.errors import RequestError, StateError, StructureError, one_line
from motet.task import Task

STATE = Path("checkpoint") / "state.sqlite"
NONE = "none"  # in a config, where a name is mapped to nothing
SHOWN = 4


class Found(NamedTuple):
    """Values by the names of a network, and what a user should know about them."""

    values: State
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Weights:
    """Where initial weights are, and how they are called there.

    Attributes:
        path: A run directory, a checkpoint, or a .safetensors file.
        rename: Names or dotted prefixes in the file, and what the network calls them: "" drops a
            prefix, None leaves tensors out. The longest match counts.
        sha256: The hash that they must have; None: any.

    Example:
        >>> import motet
        >>> start = motet.Weights("runs/first", rename={"backbone.": ""})
        >>> start.renamed({"backbone.weight": 1, "head.weight": 2})
        {'weight': 1, 'head.weight': 2}
    """

    path: str
    rename: Mapping[str, str | None] = field(default_factory=dict)
    sha256: str | None = None

    def for_network(self, task: Task) -> Found:
        """Read the tensors that a network has; others in the file are left out, with a remark.

        Args:
            task: The network and its loss.
        """
        held = self.renamed(read_weights(Path(self.path)))
        self._check_hash(held)
        if not held:
            raise RequestError(
                f"{self.path} holds no weights to start from. A run of a method without a model "
                "for all clients, such as local, has none; name a run of another method, or a "
                ".safetensors file with tensors."
            )
        known = (*task.names, *task.frozen)
        values = {name: held[name] for name in known if name in held}
        if not (task.parameters | task.frozen.keys()) & values.keys():
            raise RequestError(
                f"{self.path} has no parameter of this network: it has {_some(held)}, and the "
                f"network has {_some(known)}. Map names with model.rename, such as "
                '{"backbone." = ""}.'
            )
        values = self._fitting(values, task)
        fresh = [name for name in known if name not in held]
        unused = [name for name in held if name not in values]
        remarks = []
        if fresh:
            remarks.append(
                f"{len(fresh)} of {len(known)} tensors of the network are not in {self.path} "
                f"and keep their initial values: {_some(fresh)}."
            )
        if unused:
            remarks.append(
                f"{len(unused)} of {len(held)} tensors in {self.path} are not used: "
                f"{_some(unused)}."
            )
        return Found(values, tuple(remarks))

    def _fitting(self, values: State, task: Task) -> State:
        """Give tensors the types that the network has, or say which do not fit it."""
        network = dict(task.skeleton.named_parameters()) | dict(task.skeleton.named_buffers())
        unfit = [name for name, given in values.items() if not _fits(given, network[name])]
        if unfit:
            first = unfit[0]
            others = f" ({len(unfit)} tensors do not fit)" if len(unfit) > 1 else ""
            raise StructureError(
                f"{first} of the network is {_kind(network[first])}, but in {self.path} it is "
                f"{_kind(values[first])}{others}. Choose the network that the weights are from, "
                f'or leave a tensor out with model.rename, such as {{"{first}" = "none"}}.'
            )
        return {name: given.to(network[name].dtype) for name, given in values.items()}

    def renamed(self, named: Mapping[str, Tensor]) -> State:
        """Return the tensors under the names that the network has for them.

        Args:
            named: Tensors under the names of the file.
        """
        used: set[str] = set()
        found: State = {}
        for name, tensor in named.items():
            key = _longest(name, self.rename)
            used |= {key} if key is not None else set()
            new = name if key is None else _mapped(name, key, self.rename[key])
            if new is None:
                continue
            if new in found:
                raise RequestError(
                    f'model.rename gives two tensors of {self.path} the same name, "{new}".'
                )
            found[new] = tensor
        idle = sorted(self.rename.keys() - used)
        if idle:
            raise RequestError(
                f'model.rename: no tensor of {self.path} is called "{idle[0]}" or begins with it; '
                f"it has {_some(named)}."
            )
        return found

    def hash(self) -> str:
        """Return the hash of the tensors, under the names that the network has for them."""
        return hash_of(self.renamed(read_weights(Path(self.path))))

    def _check_hash(self, held: State) -> None:
        if self.sha256 is not None and hash_of(held) != self.sha256:
            raise StateError(
                f"{self.path} is not what this run began with: its weights have SHA-256 "
                f"{hash_of(held)[:12]}..., and {self.sha256[:12]}... was expected. Put the file "
                "back, or begin the run again with --overwrite."
            )


def initial_values(init: Mapping[str, Any] | Weights | str | Path | None, task: Task) -> Found:
    """Turn whatever was given as `init` into values by name."""
    if isinstance(init, str | Path):
        init = Weights(str(init))
    if isinstance(init, Weights):
        return init.for_network(task)
    return Found(dict(init or {}), ())


def read_weights(path: Path) -> State:
    """Read the server's tensors of a run or a checkpoint, or all tensors of a safetensors file."""
    if path.is_dir():
        candidates = (path / STATE, path / STATE.name)
        found = next((file for file in candidates if file.is_file()), None)
        if found is None:
            raise RequestError(
                f"{path} is not the directory of a run with a checkpoint; name one that `motet run "
                "--out` made, or a .safetensors file."
            )
        return _from_checkpoint(found)
    if not path.is_file():
        raise RequestError(
            f"there is no run, checkpoint or .safetensors file at {path}.{did_you_mean(path)}"
        )
    return _from_checkpoint(path) if path.suffix == ".sqlite" else _from_safetensors(path)


def hash_of(named: Mapping[str, Tensor]) -> str:
    """Hash tensors by name, type, shape and bytes, in the order of their names."""
    digest = sha256()
    for name, tensor in sorted(named.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _from_safetensors(path: Path) -> State:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as reason:
        raise StateError(
            f"{path} is not a complete safetensors file ({one_line(reason)}). Weights in another "
            "format must be converted first: `safetensors.torch.save_file(state_dict, path)`."
        ) from None


def _from_checkpoint(path: Path) -> State:
    # Here and not above: a site starts a process per message, and most read no checkpoint.
    from motet._engine.stores.saved_weights import server_weights

    return server_weights(path)


def _longest(name: str, rename: Mapping[str, str | None]) -> str | None:
    """Find the longest name or dotted prefix that fits; "" fits every name."""
    prefixes = {key: f"{key.rstrip('.')}." if key else "" for key in rename}
    fitting = (key for key, prefix in prefixes.items() if f"{name}.".startswith(prefix))
    return max(fitting, key=len, default=None)


def _mapped(name: str, key: str, new: str | None) -> str | None:
    if new is None or new == NONE:
        return None
    rest = name.removeprefix(key.rstrip(".")).lstrip(".")
    return ".".join(part for part in (new.rstrip("."), rest) if part)


def _fits(given: Tensor, wanted: Tensor) -> bool:
    """Tell whether the shapes are equal, and the types alike: whole numbers are no weights."""
    alike = given.is_floating_point() == wanted.is_floating_point()
    return given.shape == wanted.shape and (alike or given.dtype == wanted.dtype)


def _kind(tensor: Tensor) -> str:
    shape = "x".join(str(size) for size in tensor.shape) or "one number"
    return f"{shape} ({str(tensor.dtype).removeprefix('torch.')})"


def _some(names: Any) -> str:
    listed = sorted(names)
    return ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")
