"""One client, where its data are: it answers messages, and its private state stays on its disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet import wire
from motet.errors import CapabilityError, StateError, WireError
from motet.evaluate import score
from motet.remote.agreement import Agreement
from motet.remote.parcels import Parcel, Scalar, scalar, unpack_first
from motet.remote.private import Kept, PrivateFile
from motet.remote.rehearsal import Rehearsal
from motet.setting import POINTS, Point, Setting

TRAIN, SCORE = "train", "score"  # what a site may be asked to do
# Errors about messages, rounds and methods. Others may quote a row or a path, which stays here.
SAYABLE = (WireError, StateError, CapabilityError)

log = logging.getLogger("motet.remote")


@dataclass(frozen=True)
class Site:
    """A client and its data.

    Attributes:
        client: Its name.
        setting: Of a federation of this client alone.
        private: What it keeps.
        agreed: What the experiment is; a message about another one is refused.
        share_scores: Whether scores on its own data may leave.
    """

    client: str
    setting: Setting
    private: PrivateFile
    agreed: str
    share_scores: bool = True

    def train(self, parcel: Parcel) -> Parcel:
        """Do the local work of a round; what is kept is on disk before the reply exists."""
        number, setting, method = self._round(parcel), self.setting, self.setting.method
        before = self._before(number)
        down = self._down(parcel, serving=False)
        data = setting.data(self.client, method.plans(), number)
        up, after = method.client_update(down, before, data, setting.task)
        self.private.write(Kept(number, before, after))
        header = {
            "round": number,
            "weight": setting.weight(self.client),
            "gradients": float(method.gradient_evaluations(down, data)),
        }
        return Parcel(header, wire.to_arrays(up))

    def score(self, parcel: Parcel) -> Parcel:
        """Score the client's own predictor on its own data; nothing but the score leaves."""
        number, setting = self._round(parcel), self.setting
        if not self.share_scores:
            return Parcel({"round": number, "declined": True})
        x, y = setting.federation.examples(self.client, scalar(parcel.header, "split", str))
        if not len(y):
            return Parcel({"round": number, "examples": 0})
        predicted = setting.method.predict(self._predictor(parcel, number), x, setting.task)
        result = score(self.client, predicted, y, setting.task.criterion)
        values = {"examples": result.examples, "value": result.value, "loss": result.loss}
        return Parcel({"round": number, **values})

    def _predictor(self, parcel: Parcel, number: int) -> Any:
        setting, point = self.setting, _point(parcel)
        fresh = setting.fresh_client(self.client)
        kept = self.private.read(fresh)
        client = fresh if kept is None else kept.after
        down = self._down(parcel, serving=True)
        data = setting.data(self.client, setting.serving_plans(point), number)
        return setting.predictor(down, client, data, point=point, new=kept is None)

    def _round(self, parcel: Parcel) -> int:
        """Read which round a message is about, once it is about us."""
        client, agreed = (scalar(parcel.header, name, str) for name in ("client", "agreed"))
        if client != self.client:
            raise WireError(f'a message for "{client}" came to "{self.client}".')
        if agreed != self.agreed:
            raise WireError(
                "the server's configuration is another than this site's; start both from the same."
            )
        return scalar(parcel.header, "round", int)

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
    folder = node_config.get("state-dir") or run_config.get("state-dir")
    if not folder:
        raise StateError('this site has nowhere to keep its state; set state-dir="..." there.')
    name = str(client) if client is not None else scalar(parcel.header, "client", str)
    private = PrivateFile.of(Path(str(folder)), agreement.experiment, name, agreement.agreed)
    where, is_new = None if place is None else str(place), not private.path.exists()
    return Site(
        client=name,
        setting=agreement.setting_at(name, where, check=is_new),
        private=private,
        agreed=agreement.agreed,
        share_scores=bool(node_config.get("share-scores", True)),
    )


def answer(make_site: Callable[[], Site], action: str, parcel: Parcel) -> Parcel:
    """Let a site answer; where it cannot, the reply says why without quoting its data."""
    try:
        site = make_site()
        return site.train(parcel) if action == TRAIN else site.score(parcel)
    except SAYABLE as reason:
        log.warning("refused: %s", reason)
        return Parcel({"refused": str(reason)})
    except Exception as reason:
        log.exception("failed")
        kind = type(reason).__name__
        return Parcel({"refused": f"its site failed with {kind}; the log there says more."})


def _point(parcel: Parcel) -> Point:
    came = scalar(parcel.header, "point", str)
    for point in POINTS:
        if came == point:
            return point
    raise WireError(f'no point is called "{came}".')
