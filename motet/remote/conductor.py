"""The rounds of a federation whose clients are elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from motet import tree
from motet.errors import CohortError, RequestError
from motet.evaluate import Evaluation
from motet.federation import Round, Run
from motet.remote.agreement import Agreement
from motet.remote.backend import Remote
from motet.remote.directory import ServerDirectory, noted_clients, open_directory
from motet.remote.outline import Outline
from motet.remote.rehearsal import Rehearsal, first_server
from motet.remote.roster import can_join, wait_for
from motet.remote.terms import Terms
from motet.remote.transport import Transport
from motet.sampling import cohort_size
from motet.setting import Point

log = logging.getLogger("motet.remote")


def conduct(agreement: Agreement, terms: Terms, transport: Transport) -> Run:
    """Run an experiment to its end, from wherever its run directory says it is."""
    listed, path = terms.clients or agreement.sites.clients(), Path(terms.out)
    outline = agreement.outline(noted_clients(path) or listed or wait_for(transport, terms))
    run = _fresh(agreement, terms, transport, outline)
    with open_directory(path, agreement, outline) as directory:
        directory.restore(run)
        Conductor(agreement, terms, directory, run, listed).finish()
    return run


@dataclass
class Conductor:
    """Leads a run through its rounds.

    Attributes:
        listed: Who may take part; (): whoever comes.
        turned_away: Who came and could not join; each is told of once.
    """

    agreement: Agreement
    terms: Terms
    directory: ServerDirectory
    run: Run
    listed: tuple[str, ...]
    turned_away: set[str] = field(default_factory=set)

    def finish(self) -> None:
        """Run what is left, and score everybody on their test data."""
        name, run = self.agreement.experiment, self.agreement.run
        who = f"{self.agreement.method.name}, {len(self._ours)} clients"
        log.info(
            "experiment %s: %s, %d of %d rounds done", name, who, self.run.finished, run.rounds
        )
        while self.run.finished < run.rounds:
            self.advance()
        final = [self.evaluate("test", point) for point in run.points]
        self.directory.conclude(table for table in final if table is not None)
        log.info("experiment %s: finished", name)

    def advance(self) -> Round:
        """Run one round, look at the validation data when that is due, and save everything."""
        done, total = self._tried(), self.agreement.run.rounds
        heard = len(done.cohort) - len(done.lost) - len(done.rejected)
        counts = f"{heard} of {len(done.cohort)} replied"
        log.info("round %d of %d: %s, %.1f s", done.number, total, counts, done.seconds)
        is_due = done.number % (self.agreement.run.evaluate_every or 1) == 0
        looks = is_due or done.number == total
        self.directory.record(done, self.evaluate("val", "after_adapt") if looks else None)
        self.directory.save()
        return done

    def evaluate(self, split: str, point: Point) -> Evaluation | None:
        """Ask those who are there for their scores; None if no score came."""
        run, setting = self.run, self.run.setting
        present = tuple(c for c in self._backend.transport.present() if c in self._ours)
        info = setting.info(run.finished, present, serving=True)
        down = setting.method.broadcast(run.server, info)
        rows = self._backend.scores(down, info, split, point)
        if not rows:
            return None
        metric = "rmse" if setting.task.criterion.kind == "values" else "accuracy"
        table = Evaluation(setting.method.name, metric, split, point, run.finished, tuple(rows))
        numbers = f"mean {table.mean:.4f}, worst {table.worst:.4f} ({len(rows)} clients)"
        log.info("%s on %s after round %d: %s", metric, split, run.finished, numbers)
        return table

    @property
    def _ours(self) -> tuple[str, ...]:
        return tuple(self.run.setting.federation.clients)

    @property
    def _backend(self) -> Remote:
        assert isinstance(self.run.backend, Remote)
        return self.run.backend

    def _tried(self) -> Round:
        """Run the round; where too few were heard nothing has changed, and it is run again."""
        attempts = self.terms.attempts
        for attempt in range(1, attempts + 1):
            self.run.present = self._present()
            try:
                return self.run.advance()
            except CohortError as reason:
                log.warning("%s (attempt %d of %d)", reason, attempt, attempts)
        raise CohortError(
            f"round {self.run.finished + 1} was tried {attempts} times, and fewer than "
            f"{self.terms.min_clients} clients were heard; the log says why. Started again, the "
            "run goes on with this round."
        )

    def _present(self) -> tuple[str, ...]:
        self._welcome(self._backend.transport.present())
        return wait_for(self._backend.transport, self.terms, lambda client: client in self._ours)

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
        outline = self.agreement.outline((*self._ours, *clients))
        grown = replace(self.run.setting, federation=outline)
        if not can_join(self.run.setting, grown):
            return False
        self.run.setting, self.run.backend = grown, replace(self._backend, setting=grown)
        self.directory.note_clients(outline)
        return True


def _fresh(agreement: Agreement, terms: Terms, transport: Transport, outline: Outline) -> Run:
    """Make a run before its first round, once everything that can be refused has been looked at."""
    setting = agreement.setting(outline)
    _check_reachable(agreement.run.cohort, terms.min_clients, len(outline.clients))
    for warning in setting.method.check(setting.task, setting.federation.clients):
        log.warning("%s", warning)
    backend = Remote(
        setting,
        transport,
        up=Rehearsal(setting).up(),
        agreed=agreement.agreed,
        deadline_s=terms.deadline_s,
        min_clients=terms.min_clients,
    )
    server = tree.clone(first_server(setting))
    return Run(setting, backend, agreement.run.cohort, server)


def _check_reachable(cohort: float, needed: int, clients: int) -> None:
    """Refuse terms that no round can meet."""
    largest = cohort if isinstance(cohort, int) else cohort_size(cohort, clients)
    if largest < needed:
        raise RequestError(
            f"min-clients={needed} can never be heard: cohort={cohort} of {clients} clients is "
            f"{largest}."
        )
