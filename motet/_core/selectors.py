"""Which part of a model is meant: by module path, by role, or by blocks from the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from torch import nn

from motet.errors import RequestError, SelectorError, nearest

NORM_LAYERS = (
    nn.modules.batchnorm._NormBase,  # every BatchNorm and InstanceNorm
    nn.GroupNorm,
    nn.LayerNorm,
    nn.LocalResponseNorm,
    nn.RMSNorm,
)
MANY = 12  # modules that an error lists with all that is in them
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
ENDS = {"head": -1, "output": -1, "input": 0}  # roles that are one block, and which
LOW_RANK = {  # parts of names: ours and peft's
    "lora_A": ("lora_A", "lora_embedding_A"),
    "lora_B": ("lora_B", "lora_embedding_B"),
}
ROLES = (*ENDS, "norm", "adapters", "lora", *LOW_RANK)


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The last `last` blocks of a model, counted from its output.

    A block is a child of the model that holds parameters, with `nn.Sequential` and `nn.ModuleList`
    opened; a normalisation layer belongs to the block before it. `Blocks(last=1)` is the
    classifier.

    Attributes:
        last: Number of blocks; 0 selects nothing.

    Example:
        >>> Blocks(last=2).last
        2
    """

    last: int

    def __post_init__(self) -> None:
        if self.last < 0:
            raise RequestError(f"Blocks(last=) must be 0 or more; got {self.last}.", option="last")


Selector: TypeAlias = str | Blocks | Sequence[str | Blocks]


def select(module: nn.Module, selector: Selector) -> frozenset[str]:
    """Resolve a selector to the names of parameters and buffers it covers."""
    parts = [selector] if isinstance(selector, str | Blocks) else list(selector)
    names: set[str] = set()
    for part in parts:
        names |= _blocks(module, part) if isinstance(part, Blocks) else _by_name(module, part)
    return frozenset(names)


def blocks_of(module: nn.Module) -> list[list[str]]:
    """List the blocks from input to output, each as the module paths that form it."""
    own = [name for name, _ in module.named_parameters(recurse=False)]
    blocks = [own] if own else []
    for path, child in _opened(module, ""):
        if isinstance(child, NORM_LAYERS) and blocks:
            blocks[-1].append(path)
        else:
            blocks.append([path])
    return blocks


def module_path(module: nn.Module, name: str) -> str:
    """Return the dotted path of the module that a path, "head", "output" or "input" names."""
    paths = [path for path, _ in module.named_modules() if path]
    if name in paths:
        return name
    if name not in ENDS:
        raise SelectorError(f'no module is called "{name}"; {nearest(name, [*paths, *ENDS])}.')
    path = blocks_of(module)[ENDS[name]][0]
    return path if path in paths else ""  # the network itself, where it owns its parameters


def adapter_paths(module: nn.Module) -> tuple[str, ...]:
    """List adapters and the norms on the main path; LoRA's matrices, where those are the adapters.

    An adapter is a module with a true attribute `is_adapter`. The norms of shortcuts stay out.
    """
    paths = [path for path, child in module.named_modules() if getattr(child, "is_adapter", False)]
    if not paths:
        low_rank = (path for path, _ in module.named_modules() if _is_low_rank(path))
        return tuple(low_rank)
    inside = tuple(f"{path}." for path in paths)
    norms = (p for p in _norm_paths(module) if "shortcut" not in p.split("."))
    return (*paths, *(path for path in norms if not path.startswith(inside)))


def _is_low_rank(path: str) -> bool:
    """Tell whether a path ends in a module of LoRA: "lora_A", "lora_B", "lora_embedding_A", ..."""
    return path.rpartition(".")[2].startswith("lora_")


def _norm_paths(module: nn.Module) -> list[str]:
    return [path for path, child in module.named_modules() if isinstance(child, NORM_LAYERS)]


def state_names(module: nn.Module) -> list[str]:
    """List every parameter, then every buffer that a checkpoint would hold."""
    return [*dict(module.named_parameters()), *_persistent_buffers(module)]


def _persistent_buffers(module: nn.Module) -> list[str]:
    saved = module.state_dict(keep_vars=True)
    return [name for name, _ in module.named_buffers() if name in saved]


def _opened(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        here = f"{path}.{name}" if path else name
        if isinstance(child, CONTAINERS):
            yield from _opened(child, here)
        elif any(True for _ in child.parameters()):
            yield here, child


def _under(module: nn.Module, path: str) -> set[str]:
    return {name for name in state_names(module) if name == path or name.startswith(f"{path}.")}


def _by_name(module: nn.Module, name: str) -> set[str]:
    covered = _under(module, name)
    if not covered and name in ROLES:
        covered = _by_role(module, name)
    if not covered and name == "adapters":
        raise SelectorError(
            f'"{type(module).__name__}" has no adapters. Build it with adapters = true (resnet-18, '
            "resnet-34) or adapters = 16 (transformer), put them in with "
            "`motet.models.with_conv_adapters`, or name other modules."
        )
    if not covered:
        modules = {path for path, _ in module.named_modules() if path and _under(module, path)}
        known = modules | {role for role in ROLES if role != name and _by_role(module, role)}
        if len(known) > MANY:
            close = get_close_matches(name, known, n=MANY // 2)
            known = {path for path in known if "." not in path or path in close}
        raise SelectorError(
            f'no parameter is in a module called "{name}"; {nearest(name, known)}. '
            "Name whole modules by their dotted path."
        )
    return covered


def _by_role(module: nn.Module, role: str) -> set[str]:
    if role == "lora" or role in LOW_RANK:
        parts = set(LOW_RANK.get(role, sum(LOW_RANK.values(), ())))
        return {name for name in state_names(module) if not parts.isdisjoint(name.split("."))}
    if role in ENDS:
        paths = blocks_of(module)[ENDS[role]]
    else:
        paths = _norm_paths(module) if role == "norm" else list(adapter_paths(module))
    return set().union(*(_under(module, path) for path in paths)) if paths else set()


def _blocks(module: nn.Module, selector: Blocks) -> set[str]:
    blocks = blocks_of(module)
    if selector.last > len(blocks):
        raise SelectorError(
            f"Blocks(last={selector.last}) asks for more blocks than the model has: {len(blocks)}, "
            f"from {blocks[0][0]} to {blocks[-1][0]}."
        )
    chosen = blocks[len(blocks) - selector.last :]
    return (
        set().union(*(_under(module, path) for block in chosen for path in block))
        if chosen
        else set()
    )
