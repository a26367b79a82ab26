"""Frozen weights: what no client trains. One copy in a process, known elsewhere by its hash.

A parameter is frozen if it needs no gradient. A buffer is frozen if the smallest module around it
that has parameters has only frozen ones: the running statistics of a frozen normalisation layer.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from motet._core.real_paths import did_you_mean
from motet._core.selectors import state_names
from motet._core.tree import State
from motet.errors import StateError, StructureError, one_line

M = TypeVar("M", bound=nn.Module)
Packed = dict[str, tuple[NDArray[Any], torch.dtype, tuple[int, ...]]]


class Frozen:
    """The frozen tensors of a network, and the file that they are mapped from, if any.

    In another process they are mapped from the same file again; without a file, processes of one
    machine can share them as arrays.
    """

    def __init__(self, tensors: State, file: Path | None = None) -> None:
        self.tensors, self.file = tensors, file

    @classmethod
    def of(cls, base: str | Path | Mapping[str, Any] | None, made: State) -> Frozen:
        """Take weights from a file, from tensors by name, or as a network was made with them."""
        if base is None:
            return cls(made)
        if isinstance(base, Mapping):
            return cls(_checked(base, made, whole=True))
        return cls(_checked(_read(Path(base), made), made), Path(base).absolute())

    def replaced(self, values: Mapping[str, Any]) -> Frozen:
        """Take other values for some of them."""
        chosen = _checked({n: values[n] for n in self.tensors if n in values}, self.tensors)
        if all(leaf is self.tensors[name] for name, leaf in chosen.items()):
            return self
        return Frozen(self.tensors | {name: leaf.clone() for name, leaf in chosen.items()})

    @cached_property
    def hash(self) -> str:
        """A hash of names, types, shapes and values; "" if there are no frozen weights."""
        if not self.tensors:
            return ""
        total = blake2b(digest_size=16)
        for name in sorted(self.tensors):
            leaf = self.tensors[name]
            total.update(f"{name} {leaf.dtype} {tuple(leaf.shape)}\n".encode())
            total.update(_raw(leaf).data)
        return total.hexdigest()

    def require(self, agreed: str) -> None:
        """Refuse other weights than the ones with this hash."""
        if self.hash != agreed:
            where = f" in {self.file}" if self.file else ""
            raise StateError(
                f"the frozen weights{where} have the hash {self.hash or '(none)'}, and this run "
                f"was agreed on {agreed or '(none)'}. Use the weights that it began with (base=)."
            )

    def __getstate__(self) -> dict[str, Any]:
        like = {name: leaf.to("meta") for name, leaf in self.tensors.items()}
        held: Any = (self.file, like, self.hash) if self.file else packed(self.tensors)
        return {"held": held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        held = state["held"]
        if isinstance(held, dict):
            self.tensors, self.file = unpacked(held), None
            return
        self.file, like, agreed = held
        self.tensors = _checked(_read(self.file, like), like)
        self.require(agreed)


def frozen_in(module: nn.Module) -> State:
    """Return the frozen tensors of a network by name, without copying them."""
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    parameters = dict(module.named_parameters())
    tensors = parameters | dict(module.named_buffers())

    def is_frozen(name: str) -> bool:
        return name not in trained if name in parameters else _around(name, parameters, trained)

    return {name: tensors[name].detach() for name in state_names(module) if is_frozen(name)}


def _around(buffer: str, parameters: Collection[str], trained: Collection[str]) -> bool:
    """Tell whether the smallest module around a buffer that has parameters is frozen."""
    path = buffer.rpartition(".")[0]
    while path:
        inside = [name for name in parameters if name.startswith(f"{path}.")]
        if inside:
            return not any(name in trained for name in inside)
        path = path.rpartition(".")[0]
    return bool(parameters) and not trained


def put(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Let a network hold these tensors themselves, wherever it holds the ones of their names."""
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    # One object for all places of a tied weight, or it would be tied no longer.
    by_identity = {
        id(held[name]): _parameter(tensor) if isinstance(held[name], nn.Parameter) else tensor
        for name, tensor in tensors.items()
    }
    for layer in module.modules():  # a tied weight has several places
        for name, parameter in layer._parameters.items():
            if id(parameter) in by_identity:
                layer._parameters[name] = _parameter(by_identity[id(parameter)])
        for name, buffer in layer._buffers.items():
            if id(buffer) in by_identity:
                layer._buffers[name] = by_identity[id(buffer)]


def _parameter(tensor: Tensor) -> nn.Parameter:
    is_one = isinstance(tensor, nn.Parameter)
    return tensor if is_one else nn.Parameter(tensor, requires_grad=False)  # type: ignore[return-value]


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> State:
    """Copy tensors to a device; parameters stay parameters."""
    return {
        name: _parameter(leaf.to(device)) if isinstance(leaf, nn.Parameter) else leaf.to(device)
        for name, leaf in tensors.items()
    }


def copied(module: M, instead: Mapping[str, Tensor] | None = None) -> M:
    """Copy a network, but not its tensors: those of the copy are the same ones, or `instead`."""
    tensors = [*module.parameters(), *module.buffers(), *_computed(module)]
    try:
        copy_: M = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    except Exception as reason:
        raise StructureError(
            f"the network cannot be copied{_uncopyable(module)} ({one_line(reason)}), but every "
            "thread works with a copy of its own. Keep locks, open files, generators and the like "
            "out of the network."
        ) from reason
    put(copy_, instead or {})
    return copy_


def _computed(module: nn.Module) -> list[Tensor]:
    """List weights that hooks compute before every call: normalised or pruned ones."""
    kept = (value for layer in module.modules() for value in vars(layer).values())
    return [value for value in kept if isinstance(value, Tensor) and not value.is_leaf]


def _uncopyable(module: nn.Module) -> str:
    """Name the attribute that cannot be copied, if it is known."""
    for path, layer in module.named_modules():
        for name, value in vars(layer).items():
            if name not in ("_modules", "_parameters", "_buffers"):
                try:
                    copy.deepcopy(value)
                except Exception:
                    return f', because of its attribute "{path}.{name}"'.replace('".', '"')
    return ""


def twin(module: M) -> M:
    """Copy a network with its tensors, all but the frozen ones."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    same = [tensors[name] for name in frozen_in(module)]
    copy_: M = copy.deepcopy(module, {id(tensor): tensor for tensor in same})
    return copy_


def hold_still(module: nn.Module, frozen: Collection[str]) -> None:
    """Put modules with frozen buffers into evaluation mode: training would overwrite them."""
    for path in {name.rpartition(".")[0] for name in frozen}:
        layer = module.get_submodule(path)
        if any(f"{path}.{name}".lstrip(".") in frozen for name in layer._buffers):
            layer.training = False  # not `eval()`, which would reach the modules inside it


def _read(path: Path, like: Mapping[str, Tensor]) -> State:
    """Map the tensors called as those of `like` from a safetensors file, without reading them.

    The file may hold more, and may leave out a prefix that all names of the network share.
    """
    if not path.is_file():
        raise StateError(
            f"{path} does not exist; base= names the safetensors file of the weights."
            f"{did_you_mean(path)}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            names = _matched(path, list(like), set(file.keys()))
            return {name: file.get_tensor(there) for name, there in names.items()}
    except SafetensorError as reason:
        raise StateError(f"{path} is not a complete safetensors file ({reason}).") from None


def _checked(
    values: Mapping[str, Any], like: Mapping[str, Tensor], *, whole: bool = False
) -> State:
    """Turn values into tensors of the shapes and types of `like`; tensors are not copied."""
    missing = sorted(like.keys() - values.keys())
    if whole and missing:
        raise StructureError(
            f"base= must hold every frozen tensor; {missing[:4]} of {len(like)} did not come."
        )
    found: State = {}
    for name, value in values.items():
        wanted = like[name]
        leaf = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=wanted.dtype)
        if leaf.shape != wanted.shape or leaf.dtype != wanted.dtype:
            raise StructureError(
                f"the frozen {name} is {wanted.dtype} of shape {tuple(wanted.shape)}, but "
                f"{leaf.dtype} of shape {tuple(leaf.shape)} was handed over."
            )
        found[name] = leaf.detach()
    return found


def packed(state: Mapping[str, Tensor]) -> Packed:
    """Write tensors as arrays of bytes, which processes of one machine can share."""
    return {name: (_raw(leaf), leaf.dtype, tuple(leaf.shape)) for name, leaf in state.items()}


def unpacked(arrays: Packed) -> State:
    """Read what `packed` wrote, without copying."""
    with warnings.catch_warnings():
        # A shared array is read-only. So are frozen weights.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {
            name: torch.from_numpy(raw).view(kind).view(shape)
            for name, (raw, kind, shape) in arrays.items()
        }


def _raw(leaf: Tensor) -> NDArray[np.uint8]:
    flat = leaf.detach().cpu().contiguous().reshape(-1)
    found: NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return found


def _matched(path: Path, wanted: list[str], there: set[str]) -> dict[str, str]:
    for start in _prefixes(wanted):
        names = {name: name.removeprefix(start) for name in wanted}
        if there.issuperset(names.values()):
            return names
    missing = sorted(set(wanted) - there)
    raise StateError(
        f"{path} lacks {len(missing)} of the {len(wanted)} frozen tensors, such as "
        f'"{missing[0]}"; it has {sorted(there)[:3]}. Save it with '
        "`safetensors.torch.save_file(task.frozen, path)`."
    )


def _prefixes(names: list[str]) -> Iterator[str]:
    """List what all names begin with, up to a dot, the shortest first."""
    yield ""
    start = ""
    for part in (names[0].split(".") if names else [])[:-1]:
        start += f"{part}."
        if not all(name.startswith(start) for name in names):
            return
        yield start
