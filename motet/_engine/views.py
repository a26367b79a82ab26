"""Mappings by client whose entries are made on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from motet._core import tree
from motet._engine.run_spec import RunSpec
from motet.data._federation import Federation


class PrivateStates(Mapping[str, Any]):
    """Copies of private states; clients that never trained have fresh ones."""

    def __init__(self, setting: RunSpec) -> None:
        self.setting = setting

    def __getitem__(self, client: str) -> Any:
        if client not in self.setting.federation.clients:
            raise KeyError(client)
        return tree.clone(self.setting.client(client))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.setting.federation.clients))

    def __len__(self) -> int:
        return len(self.setting.federation.clients)


class Inputs(Mapping[str, Tensor]):
    """The inputs of a split, materialised client by client."""

    def __init__(self, federation: Federation, split: str, clients: list[str]) -> None:
        self.federation, self.split, self.order = federation, split, clients

    def __getitem__(self, client: str) -> Tensor:
        return self.federation.examples(client, self.split).x

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)
