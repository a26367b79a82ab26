"""Reference networks: the ones of the papers, made to stack over clients under `torch.func.vmap`.

Each has its classifier in a linear layer called `head`, and its children in order from input to
output.
"""

from __future__ import annotations

from motet.models._adapted import adapted
from motet.models._adapters import adapter_paths
from motet.models._cnn import EmnistCNN, FomoCNN, McMahanCNN, SensorCNN, SmallCNN
from motet.models._efficientnet import efficientnet_lite0
from motet.models._hugging_face import hugging_face
from motet.models._layers import count_parameters
from motet.models._mlp import MLP, Logistic
from motet.models._mobilenet import MobileNetV1, MobileNetV2
from motet.models._peft_files import save_peft
from motet.models._recurrent import LSTM, CharLSTM, WordLSTM
from motet.models._registry import build, default_for, names
from motet.models._resnet import ResNet18, ResNet34
from motet.models._surgery.ablations import linear_base
from motet.models._surgery.adapters import (
    with_bottleneck_adapters,
    with_conv_adapters,
    with_dropout,
)
from motet.models._surgery.lora import lora_layers, merge_lora, with_lora
from motet.models._surgery.sum_model import combined
from motet.models._transformer import Transformer
from motet.models._vgg import VGG11

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
    "adapted",
    "adapter_paths",
    "build",
    "combined",
    "count_parameters",
    "default_for",
    "efficientnet_lite0",
    "hugging_face",
    "linear_base",
    "lora_layers",
    "merge_lora",
    "names",
    "save_peft",
    "with_bottleneck_adapters",
    "with_conv_adapters",
    "with_dropout",
    "with_lora",
]
