"""One client's work in transformers and peft, written by hand: what a process of the rival does."""

from __future__ import annotations

import chat
import torch

BATCH, RATE = 8, 0.05
NETWORK: list[torch.nn.Module] = []


def prepare() -> None:
    """Load the model with peft, once in each process."""
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    model = chat.encoder()
    model.load_state_dict(load_file(chat.MODEL / "model.safetensors"), strict=False)
    config = LoraConfig(r=chat.RANK, lora_alpha=4, target_modules=["query", "value"])
    NETWORK.extend([get_peft_model(model, config), torch.nn.Linear(384, chat.CLASSES)])


def parameters() -> dict[str, torch.nn.Parameter]:
    named = {n: p for n, p in NETWORK[0].named_parameters() if p.requires_grad}
    return named | {f"head.{n}": p for n, p in NETWORK[1].named_parameters()}


def first() -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in parameters().items() if "lora_B" not in n}


def train(work):  # type: ignore[no-untyped-def]
    shared, own, x, y = work
    named = parameters()
    with torch.no_grad():
        for name, parameter in named.items():
            value = own.get(name, shared.get(name))
            parameter.copy_(value) if value is not None else parameter.zero_()
    optimizer = torch.optim.SGD(named.values(), lr=RATE)
    order = torch.randperm(len(y))
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    for rows in order.split(BATCH):
        longest = int((x[rows] != 0).sum(1).max())
        tokens = x[rows, :longest]  # as transformers' own collator pads: to the longest of a batch
        mask = (tokens != 0).long()
        hidden = NETWORK[0](input_ids=tokens, attention_mask=mask).last_hidden_state
        weight = mask[:, :, None].float()
        pooled = (hidden * weight).sum(1) / weight.sum(1)
        loss = torch.nn.functional.cross_entropy(NETWORK[1](pooled), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    done = {n: p.detach().clone() for n, p in named.items()}
    return {n: done[n] for n in shared}, {n: v for n, v in done.items() if n not in shared}
