"""The remote backend: sends parcels to clients at other sites, and combines what they reply."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from motet._core import tree, wire
from motet._engine.backends.backend import Outcome, combine
from motet._engine.evaluating import metrics_of
from motet._engine.run_spec import Point, RunSpec, down_for
from motet._engine.scoring import Scored
from motet._engine.upload_screening import LARGE
from motet.deploy._runtime import replies as reading
from motet.deploy._runtime.parcels import Arrays, Parcel, Scalar, digest, request_id
from motet.deploy._runtime.replies import MOST_EXAMPLES, refusing
from motet.deploy._runtime.site import SCORE, TRAIN
from motet.deploy._runtime.transport import Transport
from motet.errors import CapabilityError, CohortError, WireError
from motet.method import PerClient, RoundInfo

log = logging.getLogger("motet.deploy._runtime")
NAMED = 5  # clients whose refusals an error quotes


@dataclass(frozen=True)
class Remote:
    """Runs a cohort over a transport.

    Attributes:
        setting: Of an empty federation: the server has no data.
        transport: Reaches the clients.
        up: What an upload looks like; its values mean nothing.
        agreed: What the experiment is; sites refuse another.
        deadline_s: Seconds until a round continues without the clients that have not replied.
        min_clients: A round with fewer usable replies changes nothing.
        attempts: How often scores are asked for until as many clients have answered.
        most_examples: The largest number of examples that a site may claim.
        usable: Usable replies of a round that too few clients answered, by client, with the id of
            the request; when the round is run again, these clients are not asked again.
    """

    setting: RunSpec
    transport: Transport
    up: Any
    agreed: str
    deadline_s: float = 600.0
    min_clients: int = 1
    attempts: int = 1
    most_examples: int = MOST_EXAMPLES
    usable: dict[str, tuple[str, Parcel]] = field(default_factory=dict)
    name: ClassVar[str] = "remote"
    plan: ClassVar[None] = None  # every site makes its own
    failures: ClassVar[tuple[Exception, ...]] = ()

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Let the cohort work, and combine the valid replies in order of client id.

        Raises:
            CohortError: Too few clients replied. Nothing has changed here, and a client that is
                asked for the same round again does it again from the same state.
        """
        cohort = sorted(info.cohort)
        parcels = self._parcels(TRAIN, cohort, down, info, {})
        known = {
            client: reply
            for client, (request, reply) in self.usable.items()
            if client in parcels and parcels[client].request == request
        }
        missing = {client: parcels[client] for client in cohort if client not in known}
        replies = {**known, **self._ask(TRAIN, missing, info)}
        parts = [self._part(c, down_for(down, c), replies.get(c), info) for c in cohort]
        outcome = combine(self.setting.method.reduce, parts)
        self.usable.clear()
        if len(outcome.replied) < self.min_clients:
            self.usable.update({c: (parcels[c].request, replies[c]) for c in outcome.replied})
            refused = "; ".join(f"{c}: {why}" for c, why in [*outcome.rejected.items()][:NAMED])
            raise CohortError(
                f"round {info.number + 1}: {len(outcome.replied)} usable replies, at least "
                f"{self.min_clients} needed{f' (refused {refused})' if refused else ''}"
            )
        return outcome._replace(
            single=lambda client: self._read(client, replies[client], info).partial,
            needed=self.min_clients,
        )

    def scores(self, down: Any, info: RoundInfo, split: str, point: Point) -> list[Scored]:
        """Ask the cohort how well each does on its own data, by every metric.

        Clients that do not answer are asked again: a site may be restarting.
        """
        about = {"split": split, "point": point}
        parcels = self._parcels(SCORE, sorted(info.cohort), down, info, about)
        replies: dict[str, Parcel] = {}
        for _ in range(self.attempts):
            silent = {client: parcels[client] for client in parcels.keys() - replies.keys()}
            replies |= self._ask(SCORE, silent, info)
            if len(replies) >= min(self.min_clients, len(parcels)):
                break
        rows = [self.scored(client, reply, info) for client, reply in sorted(replies.items())]
        return [row for row in rows if row is not None]

    def ask_all(
        self, action: str, cohort: list[str], down: Any, info: RoundInfo, more: Mapping[str, Scalar]
    ) -> Mapping[str, Parcel]:
        """Ask every client of a cohort once, and return the replies as they arrive."""
        return self._ask(action, self._parcels(action, cohort, down, info, more), info)

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Refuse: predictions are made at the sites, and only scores leave them."""
        _refuse()

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Refuse: a predictor never leaves its site."""
        _refuse()

    def _parcels(
        self,
        action: str,
        cohort: list[str],
        down: Any,
        info: RoundInfo,
        more: Mapping[str, Scalar],
    ) -> dict[str, Parcel]:
        header: dict[str, Scalar] = {
            "round": info.number,
            "agreed": self.agreed,
            "clients": len(info.clients),
            **more,
        }
        frozen = self.setting.task.frozen_hash
        if frozen:
            header["frozen"] = frozen  # the weights themselves are at the sites
        arrays = _arrays(down, cohort)
        digests = {id(held): digest(held) for held in {id(a): a for a in arrays.values()}.values()}
        return {
            client: Parcel(
                {"client": client, **header},
                arrays[client],
                request_id(action, {"client": client, **header}, digests[id(arrays[client])]),
            )
            for client in cohort
        }

    def _ask(
        self, action: str, parcels: Mapping[str, Parcel], info: RoundInfo
    ) -> Mapping[str, Parcel]:
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
            outcome = self._read(client, reply, info)
        except WireError as reason:
            log.warning("round %d: %s rejected: %s", info.number + 1, client, reason)
            outcome = Outcome(None, 0, 0, 0.0, (), rejected={client: str(reason)})
        return outcome._replace(bytes_down=sent, diverged=_diverged(client, reply, info))

    def _read(self, client: str, reply: Parcel, info: RoundInfo) -> Outcome:
        """Read and lift one upload, or refuse it with a `WireError`."""
        with refusing():
            found = reading.read_upload(
                reply, info.number, self.up, self.most_examples, self.setting.uploads
            )
            reduce, largest = self.setting.method.reduce, tree.largest(found.up)
            weight = 1.0 if reduce.weights == "uniform" else found.weight
            weights = torch.tensor([weight], dtype=torch.float64)
            return Outcome(
                partial=reduce.lift([client], tree.stack([found.up]), weights),
                bytes_down=0,
                bytes_up=sum(array.nbytes for array in reply.arrays.values()),
                gradients=found.gradients,
                replied=(client,),
                large={client: largest} if largest >= LARGE else {},
            )

    def scored(self, client: str, reply: Parcel, info: RoundInfo) -> Scored | None:
        """Read a client's scores; None where it has no data, declines, or sends nonsense."""
        metrics = metrics_of(self.setting)
        try:
            with refusing():
                found = reading.read_scores(client, reply, info.number, metrics, self.most_examples)
        except WireError as reason:
            log.warning("%s sent no score: %s", client, reason)
            return None
        if found is None and "declined" in reply.header:
            log.info("%s keeps its scores to itself", client)
        return found


def _arrays(down: Any, cohort: list[str]) -> Mapping[str, Arrays]:
    """Turn every client's download into arrays; what all get is turned, and held, once."""
    if isinstance(down, PerClient):
        return {client: wire.to_arrays(down[client]) for client in cohort}
    return dict.fromkeys(cohort, wire.to_arrays(down))


def _diverged(client: str, reply: Parcel, info: RoundInfo) -> dict[str, str]:
    """Read whether a client had to keep its old private state, and why; also of a refused reply."""
    try:
        reason = reading.read_divergence(reply)
    except WireError:
        return {}
    if not reason:
        return {}
    log.warning("round %d: %s diverged: %s", info.number + 1, client, reason)
    return {client: reason}


def _refuse() -> NoReturn:
    raise CapabilityError(
        "the clients are elsewhere: predictors stay at their sites, and only scores leave them."
    )
