"""Adapters as folders that `peft.PeftModel.from_pretrained` loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from motet._core.atomic import write_atomically
from motet.errors import CapabilityError, RequestError
from motet.models._hugging_face import HuggingFace
from motet.models._surgery.lora import (
    CONVOLUTIONS,
    RESIDUAL,
    SCALE,
    A,
    B,
    has_own_forward,
    lora_layers,
)

START = "base_model.model."


def save_peft(network: nn.Module, folder: str | Path, *, base: str = "") -> Path:
    """Write the adapters of a network as a peft adapter: adapter_config.json and its tensors.

    What is trained besides adapters, such as a new head, is saved with them ("modules_to_save").
    A model that peft itself has made is saved by peft.

    Args:
        network: With layers of `with_lora`, or made by peft: `run.model(client)`.
        folder: Where to write; made if it does not exist.
        base: Name or path of the model that the adapter belongs to, for the config.

    Returns:
        The folder.

    Raises:
        RequestError: No layer of the network has an adapter.
        CapabilityError: Peft cannot express the network.

    Example:
        >>> import tempfile
        >>> from motet.models import with_lora
        >>> network = with_lora(lambda: nn.Sequential(nn.Linear(4, 3)), "0")()
        >>> folder = save_peft(network, tempfile.mkdtemp())
        >>> sorted(file.name for file in folder.iterdir())
        ['adapter_config.json', 'adapter_model.safetensors']
    """
    model = network.model if isinstance(network, HuggingFace) else network
    layers = lora_layers(model)
    of_peft: Any = getattr(model, "peft_config", None)
    if not layers and not of_peft:
        raise RequestError("the network has no layer that `with_lora` adapted; nothing to save.")
    if isinstance(network, HuggingFace) and network.pool is not None:
        raise CapabilityError(
            "peft adapts one model of transformers, and this network has a head of its own behind "
            "it (pool=). Use a model with a head, such as AutoModelForSequenceClassification, or "
            "save the merged weights: `merge_lora(network).state_dict()`."
        )
    if not layers:
        theirs: Any = model
        theirs.save_pretrained(str(folder))
        return Path(folder)
    _check_exportable(layers)
    tensors = {
        key: value.detach().clone().contiguous()
        for path, layer in layers.items()
        for key, value in _entries(path, layer).items()
    }
    others = _others(model)
    tensors |= {f"{START}{name}": leaf.detach().clone() for name, leaf in others.items()}
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    config = _config(layers, sorted({name.rpartition(".")[0] for name in others}), base)
    written: bytes = safetensors.torch.save(tensors, metadata={"format": "pt"})
    write_atomically(place / "adapter_model.safetensors", written)
    write_atomically(place / "adapter_config.json", json.dumps(config, indent=2).encode())
    return place


def _others(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and name.rpartition(".")[2] not in (A, B)
    }


def _check_exportable(layers: dict[str, nn.Module]) -> None:
    for path, layer in layers.items():
        grouped = isinstance(layer, CONVOLUTIONS) and layer.groups > 1
        reasons = {
            "is a grouped convolution": grouped,
            "was made with exact=True": RESIDUAL in layer._buffers,
            f"is a {type(layer).__name__} with a forward of its own": has_own_forward(layer),
        }
        for why in (why for why, is_so in reasons.items() if is_so):
            raise CapabilityError(
                f'"{path}" {why}, which peft has no adapter for; save the merged weights: '
                "`merge_lora(network).state_dict()`."
            )


def _entries(path: str, layer: nn.Module) -> dict[str, Tensor]:
    a: Tensor = layer.get_parameter(A)
    b: Tensor = layer.get_parameter(B)
    if isinstance(layer, nn.Embedding):
        return {
            f"{START}{path}.lora_embedding_A": a,
            f"{START}{path}.lora_embedding_B": b,
        }
    if isinstance(layer, CONVOLUTIONS):
        b = b.view(*b.shape, *[1] * (a.ndim - 2))
    return {f"{START}{path}.lora_A.weight": a, f"{START}{path}.lora_B.weight": b}


def _config(layers: dict[str, nn.Module], others: list[str], base: str) -> dict[str, Any]:
    ranks = {path: layer.get_parameter(A).shape[0] for path, layer in layers.items()}
    alphas = {path: getattr(layer, SCALE) * ranks[path] for path, layer in layers.items()}
    first = next(iter(layers))
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": ranks[first],
        "lora_alpha": alphas[first],
        "rank_pattern": {f"^{p}$": r for p, r in ranks.items() if r != ranks[first]},
        "alpha_pattern": {f"^{p}$": a for p, a in alphas.items() if a != alphas[first]},
        "target_modules": sorted(layers),
        "modules_to_save": others or None,
        "fan_in_fan_out": any(type(layer).__name__ == "Conv1D" for layer in layers.values()),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "task_type": None,
    }
