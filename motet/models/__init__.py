"""Reference networks: the ones of the papers, made to stack over clients under `torch.func.vmap`.

Each has its classifier in a linear layer called `head`, and its children in order from input to
output.
"""

from __future__ import annotations

from motet.models.adapters import adapter_paths
from motet.models.cnn import EmnistCNN, FomoCNN, McMahanCNN, SensorCNN, SmallCNN
from motet.models.layers import count_parameters
from motet.models.mlp import MLP, Logistic
from motet.models.mobilenet import MobileNetV1, MobileNetV2
from motet.models.recurrent import LSTM, CharLSTM, WordLSTM
from motet.models.registry import build, default_for, names
from motet.models.resnet import ResNet18, ResNet34
from motet.models.transformer import Transformer
from motet.models.vgg import VGG11

__all__ = [
    "LSTM",
    "MLP",
    "VGG11",
    "CharLSTM",
    "EmnistCNN",
    "FomoCNN",
    "Logistic",
    "McMahanCNN",
    "MobileNetV1",
    "MobileNetV2",
    "ResNet18",
    "ResNet34",
    "SensorCNN",
    "SmallCNN",
    "Transformer",
    "WordLSTM",
    "adapter_paths",
    "build",
    "count_parameters",
    "default_for",
    "names",
]
