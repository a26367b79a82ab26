"""Real actors of a real Ray: they agree with one process, and survive `kill -9`."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from unittest.mock import patch

import pytest
import ray
from rehearsed import WITH_RAY, finished, require_same_runs, sharded, started

import motet
from motet import Ditto, FedAvg, FedFomo, FedPer
from motet._engine import ray_tasks
from motet._engine.backends import ray_actors
from motet._engine.backends.ray_actors import QUIET
from motet._engine.observers import Watcher
from motet._runs.recorded_run import begin, resume
from motet.config import Experiment, ModelChoice, NamedData, RunChoice
from motet.data import Pathological
from motet.errors import StateError
from motet.methods import _catalog as catalog
from motet.testing import ragged
from motet.testing._comparing import require_close

pytestmark = WITH_RAY

# Every actor is a new process that imports torch: messages for each client, and states on both
# sides. All methods are compared in test_sharding.py, in one process, and so are most of the runs
# that nothing disturbs here.
METHODS = ("fedfomo", "scaffold")
PLAN = {
    "mode": "stack",
    "chunk_size": 4,
    "traced": False,
    "channels_last": False,
}  # to the last bit


@pytest.fixture(scope="module", autouse=True)
def one_ray():
    """Starting Ray takes longer than most tests."""
    with patch.dict(os.environ, QUIET):
        ray.init(
            "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
        )
        yield
        ray.shutdown()


def process_of(run, shard):
    """The process id of an actor."""
    actor = run.setting.store.shards.crew._actors[shard]
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))


def calm_run(method, folder, rounds=3):
    """The same shards as those of two actors, in this process."""
    run, _ = sharded(method, folder, backend="vectorized", **PLAN)
    for _ in range(rounds):
        run.advance()
    return run


@pytest.mark.parametrize("name", METHODS)
def test_two_actors_end_where_one_process_does(name):
    method = catalog.method_class(name)()
    oracle, run = finished(method, backend="serial"), finished(method, backend="ray", actors=2)
    require_close(oracle.server, run.server, "the server's state", 1e-5)
    for client in oracle.clients:
        require_close(oracle.clients[client], run.clients[client], f"what {client} keeps", 1e-5)
    expected, scored = oracle.evaluate(), run.evaluate()
    assert [row.client for row in scored.rows] == [row.client for row in expected.rows]
    assert scored.loss == pytest.approx(expected.loss, abs=1e-4)
    require_same_service(oracle, run)


def require_same_service(oracle, run):
    """Clients get the same predictions, models and answers."""
    x = oracle.setting.federation.examples("many", "test").x
    require_close(oracle.predict("many", x), run.predict("many", x), "predictions", 1e-5)
    require_close(oracle.personal("few"), run.personal("few"), "a predictor", 1e-5)
    asked = [
        r.ask(lambda personal, x, task: task.predict(personal, x), ["one"]) for r in (oracle, run)
    ]
    require_close(*asked, "answers", 1e-5)


@dataclass(frozen=True, kw_only=True)
class FatalOnce(Ditto):
    """Kills the process that trains, the first time that a file is missing."""

    sign: str = ""

    def client_update(self, down, client, data, task):
        try:
            os.close(os.open(self.sign, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
        return super().client_update(down, client, data, task)


def test_an_actor_killed_at_work_comes_back_and_changes_nothing(tmp_path):
    calm = calm_run(Ditto(), tmp_path / "calm")
    sign = tmp_path / "killed"
    sign.touch()
    run = started(
        FatalOnce(sign=str(sign)),
        backend="ray",
        actors=2,
        state_dir=tmp_path / "killed-runs",
        **PLAN,
    )
    run.advance()
    before = {process_of(run, shard) for shard in range(2)}
    sign.unlink()
    run.advance()
    assert sign.exists()
    assert len(before & {process_of(run, shard) for shard in range(2)}) == 1
    run.advance()
    require_same_runs(calm, run)


def test_an_actor_killed_between_rounds_comes_back_with_its_states(tmp_path):
    calm = calm_run(FedFomo(), tmp_path)
    run = finished(FedFomo(), backend="ray", actors=2, rounds=3, **PLAN)
    require_same_runs(calm, run)
    os.kill(process_of(run, 1), signal.SIGKILL)
    assert run.evaluate() == calm.evaluate()
    calm.advance()
    os.kill(process_of(run, 0), signal.SIGKILL)
    run.advance()
    require_same_runs(calm, run)


class Fatal(FedAvg):
    """Kills every process that trains."""

    def client_update(self, down, client, data, task):
        os.kill(os.getpid(), signal.SIGKILL)


def test_work_that_kills_every_process_ends_with_a_sentence(monkeypatch):
    monkeypatch.setattr(ray_actors, "RETRIES", 1)
    run = started(Fatal(), backend="ray", actors=1, trial=False)  # it would kill this process
    with pytest.raises(StateError, match="died 2 times in one call"):
        run.advance()


class Broken(FedAvg):
    """A method with a mistake."""

    def client_update(self, down, client, data, task):
        return {}[down.keys() is None], client


def test_an_error_at_a_client_is_raised_here_as_it_was():
    run = started(Broken(), backend="ray", actors=1, trial=False)
    with pytest.raises(KeyError) as caught:
        run.advance()
    assert type(caught.value) is KeyError
    assert "in round 1, at client" in caught.value.__notes__[0]


def experiment(rounds=4):
    return Experiment(
        method=FedPer(),
        data=NamedData(partition=Pathological(clients=6, classes=2)),
        model=ModelChoice(name="mlp"),
        run=RunChoice(rounds=rounds, cohort=0.5, backend="ray", actors=1, checkpoint_every=2),
    )


def test_a_run_directory_is_resumed_on_new_actors(tmp_path):
    calm = begin(experiment(), tmp_path / "calm")
    with calm.directory:
        list(calm.rounds())
        expected = calm.conclude()
    broken = begin(experiment(), tmp_path / "broken")
    with broken.directory:
        steps = broken.rounds()
        for _ in range(3):  # the third is not saved
            next(steps)
    taken_up = resume(tmp_path / "broken")
    with taken_up.directory:
        assert taken_up.run.rounds_done == 2
        assert taken_up.run.backend.name == "ray"
        list(taken_up.rounds())
        assert taken_up.conclude() == expected
    require_same_runs(calm.run, taken_up.run)


@dataclass(frozen=True, kw_only=True)
class FatalElsewhere(Ditto):
    """Kills processes other than the driver's: one of them if a file can be made, or all."""

    driver: int = 0
    sign: str = ""

    def client_update(self, down, client, data, task):
        if os.getpid() != self.driver:
            try:
                if self.sign:
                    os.close(os.open(self.sign, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return super().client_update(down, client, data, task)


class Seen(Watcher):
    """Notes which runs have ended."""

    def __init__(self):
        self.ended = []

    def finished(self, label, seed, row):
        self.ended.append((label, seed))


def test_methods_and_seeds_of_a_comparison_are_tasks(tmp_path):
    """Also if the process of one is killed at work, and whatever the order in which they end."""
    world, seen, sign = ragged(), Seen(), tmp_path / "killed"
    settings = {"rounds": 1, "seeds": 2}
    methods = {"fatal": FatalElsewhere(driver=os.getpid(), sign=str(sign))}
    on_ray = {"backend": "ray", "actors": 2, "watcher": seen}
    found = motet.compare(methods, world.task, world.data, **on_ray, **settings)
    assert sign.exists()
    expected = motet.compare(methods, world.task, world.data, **settings)
    for came, row in zip(found.rows, expected.rows, strict=True):
        assert (came.label, came.seed) == (row.label, row.seed)
        assert came.evaluation.rows == row.evaluation.rows
    assert sorted(seen.ended) == sorted((row.label, row.seed) for row in expected.rows)


def test_a_task_that_always_dies_ends_the_comparison_with_a_sentence(monkeypatch):
    monkeypatch.setattr(ray_tasks, "RETRIES", 1)
    world, fatal = ragged(), FatalElsewhere(driver=os.getpid())
    with pytest.raises(StateError, match="a task on Ray died 2 times"):
        motet.compare([fatal], world.task, world.data, rounds=1, seeds=1, backend="ray")
