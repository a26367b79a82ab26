"""Divergence over a run: which clients, since when, and which rounds had no effect.

It is built round by round, from what `Round` tells or from the lines of rounds.jsonl, so that a
resumed run tells the same as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from motet._engine.evaluation import Evaluation
from motet.errors import NOT_FINITE

NAMED = 5  # clients named in a sentence
TOTAL = "training diverged everywhere, so the result means nothing"
REMEDY = (
    "Try a smaller learning rate (--lr, optimizer.lr) or a bound on the gradients "
    "(--set method.optimizer.clip=1, optimizer.clip)."
)
ROBUST = (
    "Where a few clients send numbers that are too large, leave them out or combine uploads "
    "robustly (docs/guides/robust.md)."
)


@dataclass(frozen=True)
class Diverged:
    """In which rounds (from 1) a client's work was not finite, and what was wrong at first."""

    first: int
    last: int
    rounds: int
    reason: str


@dataclass
class Divergence:
    """What has diverged so far.

    Attributes:
        clients: Whose work was not finite: the upload was left out, or the old private state kept.
        failed: Rounds that left the server as it was, and why.
        effective: How many rounds had an effect: on the server, or on what clients keep.
        sound: Clients whose last work was finite.
        ended: The round since which no client's last work has been finite; None if some is.
    """

    clients: dict[str, Diverged] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    effective: int = 0
    sound: set[str] = field(default_factory=set)
    ended: int | None = None

    def add(
        self,
        number: int,
        cohort: Collection[str],
        *,
        lost: Collection[str] = (),
        rejected: Mapping[str, str] | None = None,
        diverged: Mapping[str, str] | None = None,
        failed: str = "",
    ) -> None:
        """Take in a round."""
        rejected, diverged = rejected or {}, diverged or {}
        refused = {client: why for client, why in rejected.items() if NOT_FINITE in why}
        spoiled = {**refused, **diverged}
        for client, why in spoiled.items():
            known = self.clients.get(client) or Diverged(number, number, 0, why)
            self.clients[client] = replace(known, last=number, rounds=known.rounds + 1)
        sound = set(cohort) - set(lost) - set(rejected) - set(diverged)
        self.sound = (self.sound | sound) - set(spoiled)
        is_over = bool(self.clients) and not self.sound
        self.ended = (self.ended or number) if is_over else None
        if failed:
            self.failed[number] = failed
        elif sound:
            self.effective += 1

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Take in a round as rounds.jsonl has it."""
        names = ("lost", "rejected", "diverged", "failed")
        self.add(line["round"], line["cohort"], **{n: line[n] for n in names if n in line})

    def __bool__(self) -> bool:
        return bool(self.clients or self.failed)

    def is_total(self, evaluation: Evaluation | None = None) -> bool:
        """Tell whether nothing useful is left.

        No round had an effect, no client's last work was finite by the round that is evaluated, or
        no client's predictions are.
        """
        if bool(self) and not self.effective:
            return True
        if evaluation is None:
            return self.ended is not None
        blind = len(evaluation.diverged) == len(evaluation.rows) > 0
        return blind or (self.ended is not None and evaluation.round >= self.ended)

    def sentences(self, total: int, evaluation: Evaluation | None = None) -> tuple[str, ...]:
        """Say what diverged and what to try; nothing if nothing did.

        Args:
            total: Clients of the federation.
            evaluation: Scores whose predictions may not be finite, too.
        """
        scored = () if evaluation is None else evaluation.diverged_sentences()
        told = [*self._of_clients(total), *self._of_rounds(), *scored]
        remedies = [REMEDY, *([ROBUST] if self.failed else [])]
        return (*told, *remedies) if told else ()

    def failure(self, total: int, evaluation: Evaluation | None = None) -> str:
        """Say in one line why a run has no result."""
        told = self.sentences(total, evaluation)
        return " ".join([f"{TOTAL}.", *told])

    def faults(self) -> dict[str, Any]:
        """Say what was discarded on the way, by client and by round, as values for JSON."""
        kept = {client: self.clients[client].reason for client in sorted(self.clients)}
        failed = {str(number): why for number, why in sorted(self.failed.items())}
        found = {"diverged_clients": kept, "failed_rounds": failed}
        return {name: fault for name, fault in found.items() if fault}

    def to_dict(self, evaluation: Evaluation | None = None) -> dict[str, Any]:
        """Write it down as values for JSON; empty if nothing diverged."""
        blind = () if evaluation is None else evaluation.diverged
        if not self and not blind:
            return {}
        return {
            "total": self.is_total(evaluation),
            "clients": {client: asdict(self.clients[client]) for client in sorted(self.clients)},
            "predictions": list(blind),
            "failed_rounds": {str(number): why for number, why in sorted(self.failed.items())},
        }

    def _of_clients(self, total: int) -> list[str]:
        if not self.clients:
            return []
        first = min(one.first for one in self.clients.values())
        last = max(one.last for one in self.clients.values())
        when = f"in round {first}" if first == last else f"first in round {first}, last in {last}"
        return [
            f"Training diverged at {len(self.clients)} of {total} clients, {when}: "
            f"{named(sorted(self.clients))}. What was not finite in their work was discarded, and "
            "they keep their last finite state."
        ]

    def _of_rounds(self) -> list[str]:
        if not self.failed:
            return []
        first = min(self.failed)
        rounds = "1 round" if len(self.failed) == 1 else f"{len(self.failed)} rounds"
        return [
            f"The server kept its old state in {rounds}, first in round {first}: "
            f"{self.failed[first]}."
        ]


def named(clients: Sequence[str]) -> str:
    """Name a few clients, and count the others.

    >>> named(["a", "b"]), named(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    return ", ".join(clients[:NAMED]) + more


def of_lines(lines: Sequence[Mapping[str, Any]]) -> Divergence:
    """Rebuild the account of a run from its rounds on record."""
    account = Divergence()
    for line in lines:
        account.add_line(line)
    return account
