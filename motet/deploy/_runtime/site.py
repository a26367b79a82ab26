"""A site: answers messages with its own data; its private state stays on its disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from motet._core import tree, wire
from motet._core.half_precision import packed
from motet._core.visible_text import excerpt
from motet._engine.backends.client_work import predict_alone, predictor_alone, train_clients
from motet._engine.evaluating import metrics_of
from motet._engine.run_spec import POINTS, Point, RunSpec
from motet._engine.scoring import score_all
from motet._engine.stores.memory import MemoryStore
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.parcels import Parcel, Scalar, scalar, unpack, unpack_first
from motet.deploy._runtime.private import Kept, PrivateFile
from motet.deploy._runtime.received import Received, ReceivedFile
from motet.deploy._runtime.rehearsal import Rehearsal
from motet.errors import CapabilityError, StateError, WireError
from motet.method import AnyMethod

TRAIN, SCORE, LEND, JUDGE = "train", "score", "lend", "judge"  # what a site may be asked to do
SCORED = ("val", "test")  # splits that a site scores
MOST_CLIENTS = 1000  # of a federation, unless the site's node config says max-clients
# Errors about messages, rounds and methods. Others may quote a row or a path, which stays here.
SAYABLE = (WireError, StateError, CapabilityError)

log = logging.getLogger("motet.deploy._runtime")


@dataclass(frozen=True)
class Site:
    """A client and its data.

    Attributes:
        client: Its name.
        setting: Of a federation of this client alone.
        private: What it keeps.
        agreed: What the experiment is; a message about another one is refused.
        share_scores: Whether scores on its own data may leave.
        cross_site: Whether its own model may leave, to be scored by others, and theirs come here.
        most_clients: The largest federation that a message may be about: the work of checking a
            message grows with it.
    """

    client: str
    setting: RunSpec
    private: PrivateFile
    agreed: str
    share_scores: bool = True
    cross_site: bool = False
    most_clients: int = MOST_CLIENTS

    def train(self, parcel: Parcel) -> Parcel:
        """Do the local work of a round; what is kept is on disk before the reply exists."""
        number = self._round(parcel, last=self.setting.rounds - 1)
        before = self._before(number)
        down, setting = self._down(parcel, serving=False), self._holding(before)
        info = setting.info(number, (self.client,))
        work = train_clients(setting, down, info, [self.client])
        self.private.write(Kept(number, before, setting.client(self.client)))
        header: dict[str, Scalar] = {
            "round": number,
            "weight": setting.weight(self.client),
            "gradients": float(work.gradients),
        }
        spoiled = work.diverged.get(self.client)
        if spoiled:
            log.warning("round %d: diverged, so the old state stays: %s", number + 1, spoiled)
            header["diverged"] = spoiled  # names a tensor, and quotes nothing of it
        up = packed(tree.row(work.uploads, 0), setting.uploads)
        return Parcel(header, wire.to_arrays(up))

    def score(self, parcel: Parcel) -> Parcel:
        """Score the client's own predictor on its own data; nothing but the score leaves."""
        number = self._round(parcel, last=self.setting.rounds)
        split, point = _choice(parcel, "split", SCORED), _point(parcel)
        down = self._down(parcel, serving=True)
        received = Received(number, scalar(parcel.header, "clients", int), parcel.arrays)
        ReceivedFile.beside(self.private.path, self.agreed).write(received)
        if not self.share_scores:
            return Parcel({"round": number, "declined": True})
        x, y = self.setting.federation.examples(self.client, split)
        if not len(y):
            return Parcel({"round": number, "examples": 0})
        down, setting = self._down(parcel, serving=True), self._at_its_end()
        info = setting.info(number, (self.client,), serving=True)
        predicted = predict_alone(setting, down, info, self.client, x, point)
        return self._scored(number, predicted, y)

    def lend(self, parcel: Parcel) -> Parcel:
        """Send the client's own predictor, if the site has agreed to that."""
        number = self._round(parcel, last=self.setting.rounds)
        if not self.cross_site:
            return Parcel({"round": number, "declined": True})
        require_one_network(self.setting.method)
        point, down, setting = _point(parcel), self._down(parcel, serving=True), self._at_its_end()
        info = setting.info(number, (self.client,), serving=True)
        personal = predictor_alone(setting, down, info, self.client, point)
        return Parcel({"round": number}, wire.to_arrays(personal))

    def judge(self, parcel: Parcel) -> Parcel:
        """Score another client's predictor on this client's data, if the site has agreed to it."""
        number = self._round(parcel, last=self.setting.rounds)
        if not (self.cross_site and self.share_scores):
            return Parcel({"round": number, "declined": True})
        require_one_network(self.setting.method)
        x, y = self.setting.federation.examples(self.client, _choice(parcel, "split", SCORED))
        if not len(y):
            return Parcel({"round": number, "examples": 0})
        personal = unpack(self.setting.initial, parcel.arrays)
        return self._scored(number, self.setting.answer(personal, x), y)

    def _scored(self, number: int, predicted: Tensor, y: Tensor) -> Parcel:
        header: dict[str, Scalar] = {"round": number}
        criterion, metrics = self.setting.task.criterion, metrics_of(self.setting)
        found = score_all(self.client, predicted, y, criterion, metrics).scores
        for position, result in enumerate(found):
            prefix = f"{position}." if position else ""  # the deciding metric has none
            values = result._asdict()
            del values["client"]
            header |= {f"{prefix}{name}": value for name, value in values.items()}
        return Parcel(header)

    def _at_its_end(self) -> RunSpec:
        """Return the setting with what the client keeps after its last round, if it had one."""
        kept = self.private.read(self.setting.fresh_client(self.client))
        return self._holding(*([] if kept is None else [kept.after]))

    def _holding(self, *states: Any) -> RunSpec:
        """Return the setting with the client's private state, if it has trained."""
        store = MemoryStore()
        for state in states:
            store.put(self.client, state)
        return replace(self.setting, store=store)

    def _round(self, parcel: Parcel, *, last: int) -> int:
        """Read which round a message is about, once it is about us."""
        client, agreed = (scalar(parcel.header, name, str) for name in ("client", "agreed"))
        if client != self.client:
            raise WireError(f'"{self.client}" got a message for "{excerpt(client, most=60)}".')
        if agreed != self.agreed:
            raise WireError(
                f"this site runs the experiment {self.agreed}, and the message is about "
                f"{excerpt(agreed, most=64)}; start both from the same configuration."
            )
        frozen, own = str(parcel.header.get("frozen", "")), self.setting.task.frozen_hash
        if frozen != own:
            raise WireError(
                f"the frozen weights of this site have the hash {own or '(none)'}, and those of "
                f"the server {excerpt(frozen, most=64) or '(none)'}; give this site the server's "
                'file: base = "..." in its site.toml.'
            )
        number = scalar(parcel.header, "round", int)
        if not 0 <= number <= last:
            raise WireError(
                f"the agreed number of rounds is {self.setting.rounds}; got round {number + 1}."
            )
        return number

    def _before(self, number: int) -> Any:
        fresh = self.setting.fresh_client(self.client)
        kept = self.private.read(fresh)
        if kept is None:
            return fresh
        if number < kept.number:
            raise StateError(
                f"round {kept.number + 1} is done here, and round {number + 1} was asked for; go "
                "on from the server's last checkpoint, or give the experiment another name."
            )
        return kept.before if number == kept.number else kept.after

    def _down(self, parcel: Parcel, *, serving: bool) -> Any:
        clients = scalar(parcel.header, "clients", int)
        if not 1 <= clients <= self.most_clients:
            raise WireError(
                f"this site accepts federations of 1 to {self.most_clients} clients; got "
                f'{clients}. Its engineer can set max-clients="..." in the node config.'
            )
        rehearsal = Rehearsal.at(self.setting, self.client, clients)
        return unpack_first(rehearsal.downs(self.client, serving=serving), parcel.arrays)


def open_site(
    agreement: Agreement,
    parcel: Parcel,
    run_config: Mapping[str, Scalar],
    node_config: Mapping[str, Scalar],
) -> Site:
    """Open the site that a node config describes; without a name it is the parcel's client.

    In simulations nodes have no config of their own, so `state-dir` may also be in the run config.
    """
    place, client = node_config.get("data"), node_config.get("client")
    if client is None and place is not None:
        raise StateError('this site does not know its name; set client="..." in its node config.')
    most = node_config.get("max-clients", MOST_CLIENTS)
    if type(most) is not int or most < 1:
        raise StateError(f"max-clients in the node config must be a whole number; got {most!r}.")
    folder = node_config.get("state-dir") or run_config.get("state-dir")
    if not folder:
        raise StateError('this site has nowhere to keep its state; set state-dir="..." there.')
    name = str(client) if client is not None else scalar(parcel.header, "client", str)
    private = PrivateFile.of(Path(str(folder)), agreement.experiment, name, agreement.agreed)
    where, is_new = None if place is None else str(place), not private.path.exists()
    base = node_config.get("base")
    if base is not None:
        agreement = agreement.with_base(str(base))
    return Site(
        client=name,
        setting=agreement.setting_at(name, where, check=is_new),
        private=private,
        agreed=agreement.agreed,
        share_scores=bool(node_config.get("share-scores", True)),
        cross_site=node_config.get("cross-site") is True,
        most_clients=most,
    )


def answer(read: Callable[[], Parcel], make_site: Callable[[Parcel], Site], action: str) -> Parcel:
    """Let a site answer; where it cannot, the reply says why without quoting its data.

    Args:
        read: Reads the message, which may be anything.
        make_site: Opens the site that the message is for.
        action: `TRAIN`, `SCORE`, `LEND` or `JUDGE`.
    """
    try:
        parcel = read()
        site = make_site(parcel)
        does = {TRAIN: site.train, SCORE: site.score, LEND: site.lend, JUDGE: site.judge}
        return does[action](parcel)
    except SAYABLE as reason:
        said = excerpt(str(reason))
        log.warning("refused: %s", said)
        return Parcel({"refused": said})
    except Exception as reason:
        log.exception("failed")
        kind = type(reason).__name__
        return Parcel({"refused": f"its site failed with {kind}; the log there says more."})


def require_one_network(method: AnyMethod) -> None:
    """Refuse a method whose predictor is more than a network: it may hold examples of its site."""
    if not method.one_network:
        raise CapabilityError(
            f"the predictor of {method.name} is more than one network, and may contain examples of "
            "its site, so it never leaves it; a cross-site matrix needs another method."
        )


def _choice(parcel: Parcel, name: str, choices: tuple[str, ...]) -> str:
    found = scalar(parcel.header, name, str)
    if found not in choices:
        raise WireError(f'{name} is {" or ".join(choices)}; got "{excerpt(found, most=60)}".')
    return found


def _point(parcel: Parcel) -> Point:
    found = scalar(parcel.header, "point", str)
    for point in POINTS:
        if found == point:
            return point
    raise WireError(f'no point is called "{excerpt(found, most=60)}".')
