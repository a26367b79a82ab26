"""The rounds of a deployment, seen from its server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from motet._core import tree
from motet._core.sampling import cohort_size
from motet._engine.evaluating import evaluation_of
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Round, Run
from motet._engine.looks import interval, is_due
from motet._engine.round_loop import RoundObserver, play_rounds
from motet._engine.run_spec import Point
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.backend import Remote
from motet.deploy._runtime.cross_site import CROSS_SITE, cross_site
from motet.deploy._runtime.data_schema import EmptyFederation
from motet.deploy._runtime.directory import ServerDirectory, noted_clients, open_directory
from motet.deploy._runtime.rehearsal import Rehearsal, first_server
from motet.deploy._runtime.roster import can_join, wait_for
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.site import require_one_network
from motet.deploy._runtime.transport import Transport
from motet.errors import CohortError, RequestError

log = logging.getLogger("motet.deploy._runtime")


def run_server(agreement: Agreement, limits: ServerLimits, transport: Transport) -> Run:
    """Run an experiment to its end, from wherever its run directory says it is."""
    listed, path = limits.clients or agreement.sites.clients(), Path(limits.out)
    federation = agreement.empty_federation(
        noted_clients(path) or listed or wait_for(transport, limits)
    )
    run = _fresh(agreement, limits, transport, federation)
    with open_directory(path, agreement, federation) as directory:
        directory.restore(run)
        ServerLoop(agreement, limits, directory, run, listed).finish()
    return run


@dataclass
class ServerLoop(RoundObserver):
    """Runs the rounds of a federation, with the clients that are online.

    Attributes:
        listed: Clients that may take part; (): any client.
        turned_away: Clients that could not join; each is logged once.
        attempt: Of the next round, from 1.
    """

    agreement: Agreement
    limits: ServerLimits
    directory: ServerDirectory
    run: Run
    listed: tuple[str, ...]
    turned_away: set[str] = field(default_factory=set)
    attempt: int = 1

    def finish(self) -> None:
        """Run the rounds that are left, if any are wanted, and score the clients' test data."""
        name, rounds = self.agreement.experiment, self.agreement.run.rounds
        who = f"{self.agreement.method.name}, {len(self._ours)} clients"
        log.info("experiment %s: %s, %d of %d rounds done", name, who, self.run.rounds_done, rounds)
        if self.limits.cross_site:
            require_one_network(self.agreement.method)
        if self.limits.evaluate_only or self.limits.cross_site:
            log.info("experiment %s: scores only, nothing is trained", name)
        else:
            for _ in play_rounds(self.run, [self]):
                pass
        final = [self.evaluate("test", point) for point in self._points]
        found = [table for table in final if table is not None]
        self.directory.conclude(found)
        for sentence in self.run.divergence.sentences(len(self._ours), *found[:1]):
            log.warning("%s", sentence)
        if self.limits.cross_site:
            self._compare_models()
        log.info("experiment %s: finished", name)

    def before_round(self) -> None:
        """Wait until enough clients are online."""
        self._welcome(self._backend.transport.present())
        self.run.present = wait_for(
            self._backend.transport, self.limits, lambda client: client in self._ours
        )

    def handles(self, error: Exception) -> bool:
        """Try a round again that too few clients answered: it has changed nothing."""
        if not isinstance(error, CohortError):
            return False
        attempts = self.limits.attempts
        log.warning("%s (attempt %d of %d)", error, self.attempt, attempts)
        if self.attempt == attempts:
            raise CohortError(
                f"round {self.run.rounds_done + 1} was tried {attempts} times, and fewer than "
                f"{self.limits.min_clients} clients replied; the log says why. When it is "
                "started again, the run continues with this round."
            ) from error
        self.attempt += 1
        return True

    def after_round(self, done: Round) -> None:
        """Log the round, score validation data when that is due, and save everything."""
        self.attempt = 1
        run = self.agreement.run
        heard = len(done.cohort) - len(done.lost) - len(done.rejected)
        counts = f"{heard} of {len(done.cohort)} replied"
        log.info("round %d of %d: %s, %.1f s", done.number, run.rounds, counts, done.seconds)
        if done.failed:
            log.warning("round %d: the server keeps its old state: %s", done.number, done.failed)
        looks = is_due(done.number, run.evaluate_every or interval(run.rounds), run.rounds)
        self.directory.record(done, self.evaluate("val", self._points[0]) if looks else None)
        self.directory.save()

    def evaluate(self, split: str, point: Point) -> Evaluation | None:
        """Ask the clients that are online for their scores; None without scores."""
        run, setting = self.run, self.run.setting
        info = setting.info(run.rounds_done, self._scored_by(), serving=True)
        down = setting.method.broadcast(run.server, info)
        rows = self._backend.scores(down, info, split, point)
        if not rows:
            return None
        table = evaluation_of(run, split, point, rows)
        for one in table.metrics:
            numbers = f"mean {one.mean:.4f}, worst {one.worst:.4f} ({len(one.rows)} clients)"
            log.info("%s on %s after round %d: %s", one.metric, split, run.rounds_done, numbers)
        for sentence in table.undefined_sentences():
            log.info("%s", sentence)
        return table

    def _compare_models(self) -> None:
        """Score every site's model at every site, and keep the matrix in the run directory."""
        info = self.run.setting.info(self.run.rounds_done, self._scored_by(), serving=True)
        down = self.run.setting.method.broadcast(self.run.server, info)
        found = cross_site(self._backend, down, info, self._points[0])
        found.write(self.directory.path / CROSS_SITE)
        for sentence in found.sentences():
            log.info("%s", sentence)

    def _scored_by(self) -> tuple[str, ...]:
        """Wait for enough clients to ask for scores; without them, those online are asked."""
        try:
            return wait_for(self._backend.transport, self.limits, lambda c: c in self._ours)
        except CohortError as reason:
            log.warning("scores: %s", reason)
            return tuple(c for c in self._backend.transport.present() if c in self._ours)

    @property
    def _points(self) -> tuple[Point, ...]:
        return self.agreement.run.scored(self.agreement.method)

    @property
    def _ours(self) -> tuple[str, ...]:
        return tuple(self.run.setting.federation.clients)

    @property
    def _backend(self) -> Remote:
        assert isinstance(self.run.backend, Remote)
        return self.run.backend

    def _welcome(self, present: Sequence[str]) -> None:
        """Let newcomers join who may, if the server has room for them; name the others, once."""
        new = sorted(set(present) - set(self._ours) - self.turned_away)
        invited = [client for client in new if not self.listed or client in self.listed]
        joined = invited if invited and self._has_grown_by(invited) else []
        for client in joined:
            log.info("%s joined", client)
        for client in sorted(set(new) - set(joined)):
            log.warning("%s is not among the clients of this experiment", client)
            self.turned_away.add(client)

    def _has_grown_by(self, clients: list[str]) -> bool:
        federation = self.agreement.empty_federation((*self._ours, *clients))
        grown = replace(self.run.setting, federation=federation)
        if not can_join(self.run.setting, grown):
            return False
        self.run.setting, self.run.backend = grown, replace(self._backend, setting=grown)
        self.directory.note_clients(federation)
        return True


def _fresh(
    agreement: Agreement, limits: ServerLimits, transport: Transport, federation: EmptyFederation
) -> Run:
    """Make a run before its first round, once everything that can be refused has been looked at."""
    setting = agreement.setting(federation)
    _check_reachable(agreement.run.cohort, limits.min_clients, len(federation.clients))
    for warning in setting.method.check(setting.task, setting.federation.clients):
        log.warning("%s", warning)
    backend = Remote(
        setting,
        transport,
        up=Rehearsal(setting).up(),
        agreed=agreement.agreed,
        deadline_s=limits.deadline_s,
        min_clients=limits.min_clients,
        attempts=limits.attempts,
        most_examples=limits.max_examples,
    )
    server = tree.clone(first_server(setting))
    return Run(setting, backend, agreement.run.cohort, server)


def _check_reachable(cohort: float, needed: int, clients: int) -> None:
    """Refuse limits that no round can meet."""
    largest = cohort if isinstance(cohort, int) else cohort_size(cohort, clients)
    if largest < needed:
        raise RequestError(
            f"min-clients={needed} can never reply: cohort={cohort} of {clients} clients is "
            f"{largest}."
        )
