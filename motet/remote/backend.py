"""The backend whose clients are elsewhere: parcels out, parcels in, and nothing believed unseen."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from motet import tree, wire
from motet.backends.backend import Outcome, combine
from motet.errors import CapabilityError, CohortError, WireError
from motet.evaluate import Score
from motet.method import PerClient, RoundInfo
from motet.remote.parcels import Arrays, Parcel, Scalar, scalar, unpack
from motet.remote.site import SCORE, TRAIN
from motet.remote.transport import Transport
from motet.setting import Point, Setting, down_for

log = logging.getLogger("motet.remote")


@dataclass(frozen=True)
class Remote:
    """Runs a cohort over a transport.

    Attributes:
        setting: Of an outline: the server has no data.
        transport: Reaches the clients.
        up: What an upload looks like; its values mean nothing.
        agreed: What the experiment is; sites refuse another.
        deadline_s: Seconds until a round goes on without those that are still silent.
        min_clients: A round with fewer usable replies changes nothing.
    """

    setting: Setting
    transport: Transport
    up: Any
    agreed: str
    deadline_s: float = 600.0
    min_clients: int = 1
    name: ClassVar[str] = "remote"

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Let the cohort work, and combine what came back whole, in order of client id.

        Raises:
            CohortError: Too few were heard. Nothing has changed here, and a client that is asked
                for the same round again does it again from the same state.
        """
        cohort = sorted(info.cohort)
        replies = self._ask(TRAIN, cohort, down, info, {})
        parts = [self._part(c, down_for(down, c), replies.get(c), info) for c in cohort]
        outcome = combine(self.setting.method.reduce, parts)
        if len(outcome.replied) < self.min_clients:
            raise CohortError(
                f"round {info.number + 1}: {len(outcome.replied)} usable replies, at least "
                f"{self.min_clients} needed"
            )
        return outcome

    def scores(self, down: Any, info: RoundInfo, split: str, point: Point) -> list[Score]:
        """Ask the cohort how well each does on its own data."""
        replies = self._ask(
            SCORE, sorted(info.cohort), down, info, {"split": split, "point": point}
        )
        rows = [_score(client, reply, info) for client, reply in sorted(replies.items())]
        return [row for row in rows if row is not None]

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Refuse: predictions are made at the sites, and only scores leave them."""
        _refuse()

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Refuse: a predictor never leaves its site."""
        _refuse()

    def _ask(
        self, action: str, cohort: list[str], down: Any, info: RoundInfo, more: dict[str, Scalar]
    ) -> Mapping[str, Parcel]:
        header = {"round": info.number, "agreed": self.agreed, "clients": len(info.clients), **more}
        arrays = _arrays(down, cohort)
        parcels = {c: Parcel({"client": c, **header}, arrays[c]) for c in cohort}
        replies, lost = self.transport.exchange(
            action, parcels, number=info.number, deadline_s=self.deadline_s
        )
        for client, reason in sorted(lost.items()):
            log.warning("round %d: %s lost: %s", info.number + 1, client, reason)
        return replies

    def _part(self, client: str, down: Any, reply: Parcel | None, info: RoundInfo) -> Outcome:
        sent = tree.count_bytes(down)
        if reply is None:
            return Outcome(None, sent, 0, 0.0, (), lost=(client,))
        try:
            return self._received(client, sent, reply, info)
        except WireError as reason:
            log.warning("round %d: %s rejected: %s", info.number + 1, client, reason)
            return Outcome(None, sent, 0, 0.0, (), rejected={client: str(reason)})

    def _received(self, client: str, sent: int, reply: Parcel, info: RoundInfo) -> Outcome:
        _check_header(reply, info)
        up = unpack(self.up, reply.arrays)
        reduce = self.setting.method.reduce
        weight = 1.0 if reduce.weights == "uniform" else _weight(reply)
        return Outcome(
            partial=reduce.lift([client], tree.stack([up]), torch.tensor([weight])),
            bytes_down=sent,
            bytes_up=tree.count_bytes(up),
            gradients=scalar(reply.header, "gradients", float),
            replied=(client,),
        )


def _arrays(down: Any, cohort: list[str]) -> Mapping[str, Arrays]:
    """Turn every client's download into arrays; what all get is turned, and held, once."""
    if isinstance(down, PerClient):
        return {client: wire.to_arrays(down[client]) for client in cohort}
    return dict.fromkeys(cohort, wire.to_arrays(down))


def _check_header(reply: Parcel, info: RoundInfo) -> None:
    if "refused" in reply.header:
        raise WireError(scalar(reply.header, "refused", str))
    number = scalar(reply.header, "round", int)
    if number != info.number:
        raise WireError(f"a reply of round {number + 1} came in round {info.number + 1}.")


def _weight(reply: Parcel) -> float:
    weight = scalar(reply.header, "weight", float)
    if not (math.isfinite(weight) and weight > 0):
        raise WireError(f"a weight is above 0 and finite; {weight} came.")
    return weight


def _score(client: str, reply: Parcel, info: RoundInfo) -> Score | None:
    """Read a client's score; None where it has no data, keeps it to itself, or sends nonsense."""
    try:
        _check_header(reply, info)
        if "declined" in reply.header:
            log.info("%s keeps its scores to itself", client)
            return None
        examples = scalar(reply.header, "examples", int)
        if not examples:
            return None
        value, loss = (scalar(reply.header, name, float) for name in ("value", "loss"))
        return Score(client, examples, value, loss)
    except WireError as reason:
        log.warning("%s sent no score: %s", client, reason)
        return None


def _refuse() -> NoReturn:
    raise CapabilityError(
        "the clients are elsewhere: predictors stay at their sites, and only scores leave them."
    )
