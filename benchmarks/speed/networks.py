"""The networks of the workloads, in torch: for Motet, the hand-written loop, pfl and Flower."""

from __future__ import annotations

import torch
from torch import nn


class LastLSTM(nn.Module):
    """Embedding 8, two layers of 256, a score per next character, with torch's own LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(x))[0])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


BUILD = {"mlp": mlp, "cnn": cnn, "lstm": LastLSTM}


def built(workload) -> nn.Module:
    """Make a workload's network with its first weights."""
    net = BUILD[workload.about["network"]]()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in workload.initial.items()})
    return net


def mean_loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, for classes or for a class at every position."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), y.flatten())
