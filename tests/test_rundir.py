"""Run directories: complete, atomic, resumable to the same bits, and careful with what is there."""

import json
from dataclasses import replace

import pyarrow.parquet as parquet
import pytest
import torch

import motet
from motet import checkpoint, tree
from motet.atomic import write_atomically
from motet.config import Experiment, NamedData, RunChoice, load_experiment
from motet.data import Pathological
from motet.errors import DataError, StateError, WireError
from motet.evaluate import Evaluation, Score
from motet.records import json_text, read_scores, score_rows, write_scores
from motet.rundir import RunDirectory
from motet.session import begin, resume

DIGITS = NamedData(partition=Pathological(clients=6, classes=2))
FILES = {"config.toml", "data.json", "rounds.jsonl", "clients.parquet", "checkpoint"}


def experiment(method=None, **run):
    settings = {"rounds": 4, "cohort": 0.5, "checkpoint_every": 2, **run}
    return Experiment(method=method or motet.FedPer(), data=DIGITS, run=RunChoice(**settings))


def finish(session):
    with session.directory:
        list(session.rounds())
        return session.conclude()


def without_seconds(directory):
    lines = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def saved_state(directory):
    return {p.name: p.read_bytes() for p in (directory / "checkpoint").glob("*.safetensors")}


def assert_same_run(a, b):
    assert without_seconds(a) == without_seconds(b)
    assert parquet.read_table(a / "clients.parquet").equals(
        parquet.read_table(b / "clients.parquet")
    )
    assert saved_state(a) == saved_state(b)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A FedPer run from beginning to end."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    finish(begin(experiment(), path))
    return path


# --- what is written -------------------------------------------------------------------------


def test_a_finished_run_has_exactly_its_files(whole):
    assert {path.name for path in whole.iterdir()} == FILES
    assert sorted(path.name for path in (whole / "checkpoint").iterdir()) == [
        "clients-000004.safetensors",
        "meta.json",
        "server-000004.safetensors",
    ]


def test_every_round_is_on_record_and_validation_says_which_round_it_is_of(whole):
    lines = without_seconds(whole)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert all(len(line["cohort"]) == 3 and line["bytes_up"] > 0 for line in lines)
    assert [line["validation"]["round"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["validation"]["split"] == "val"


def test_scores_have_a_row_per_client_and_evaluation(whole):
    rows = read_scores(whole / "clients.parquet")
    assert len(rows) == 6 * 4 + 6
    test = [row for row in rows if row.split == "test"]
    assert {row.client for row in test} == set(map(str, range(6)))
    assert {(row.round, row.point, row.metric, row.method) for row in test} == {
        (4, "after_adapt", "accuracy", "fedper")
    }


def test_the_config_of_a_run_gives_the_same_run(whole, tmp_path):
    finish(begin(load_experiment(whole / "config.toml"), tmp_path / "again"))
    assert_same_run(whole, tmp_path / "again")
    config = (whole / "config.toml").read_text()
    assert (tmp_path / "again" / "config.toml").read_text() == config


def test_the_same_objects_in_python_give_the_same_numbers(whole):
    chosen = experiment()
    data = motet.data.load("digits", DIGITS.partition, seed=0)
    task = motet.Task(
        lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes), "cross_entropy"
    )
    run = motet.run(chosen.method, task, data, rounds=4, cohort=0.5, seed=0)
    on_disk = [row for row in read_scores(whole / "clients.parquet") if row.split == "test"]
    assert [(row.client, row.value, row.loss) for row in on_disk] == [
        (row.client, row.value, row.loss) for row in run.evaluate(split="test").rows
    ]


def test_rounds_may_be_zero(tmp_path):
    final = finish(begin(experiment(rounds=0), tmp_path / "none"))
    assert final[0].round == 0


def test_points_are_scored_in_their_order(tmp_path):
    points = ("after_adapt", "after_broadcast")
    final = finish(begin(experiment(rounds=1, points=points), tmp_path / "points"))
    assert tuple(one.point for one in final) == points


# --- going on --------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds_before", [0, 1, 3, 4])
def test_resuming_gives_the_same_bits_wherever_the_process_died(whole, tmp_path, rounds_before):
    path = tmp_path / "broken"
    session = begin(experiment(), path)
    with session.directory:  # dies without another word after some rounds
        for _, _ in zip(range(rounds_before), session.rounds(), strict=False):
            pass
    again = resume(path)
    assert again.run.finished == rounds_before // 2 * 2  # the last checkpoint
    finish(again)
    assert_same_run(whole, path)


def test_saving_between_rounds_moves_the_point_of_resumption(whole, tmp_path):
    session = begin(experiment(), tmp_path / "saved")
    with session.directory:
        next(session.rounds())
        session.save()
    again = resume(tmp_path / "saved")
    assert again.run.finished == 1
    finish(again)
    assert_same_run(whole, tmp_path / "saved")


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path):
    finish(begin(experiment(), tmp_path / "done"))
    finish(resume(tmp_path / "done"))
    assert_same_run(whole, tmp_path / "done")


@pytest.mark.parametrize(
    "method",
    [
        motet.FedAvgFT(adapt_epochs=1),
        motet.FedAvg(server_optimizer=motet.Adam(lr=0.1)),
        motet.Local(),
    ],
    ids=lambda method: method.name,
)
def test_methods_with_other_kinds_of_state_resume_to_the_same_bits(tmp_path, method):
    finish(begin(experiment(method), tmp_path / "whole"))
    session = begin(experiment(method), tmp_path / "broken")
    with session.directory:
        for _, _ in zip(range(3), session.rounds(), strict=False):
            pass
    finish(resume(tmp_path / "broken"))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_line_that_a_crash_cut_short_is_forgotten(whole, tmp_path):
    session = begin(experiment(), tmp_path / "torn")
    with session.directory:
        for _, _ in zip(range(3), session.rounds(), strict=False):
            pass
    with (tmp_path / "torn" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "coh')
    finish(resume(tmp_path / "torn"))
    assert_same_run(whole, tmp_path / "torn")


def test_a_run_is_refused_when_its_data_have_changed(tmp_path):
    (tmp_path / "visits.csv").write_text("site,age,sick\n" + "a,1.5,0\nb,2.5,1\n" * 9)
    config = tmp_path / "visits.toml"
    config.write_text(
        '[method]\nname = "local"\n[run]\nrounds = 1\n'
        '[data]\ntable = "visits.csv"\nclient = "site"\ntarget = "sick"\n'
    )
    finish(begin(load_experiment(config), tmp_path / "run"))
    (tmp_path / "visits.csv").write_text("site,age,sick\n" + "a,1.5,1\nb,2.5,0\n" * 9)
    with pytest.raises(DataError, match="targets differ"):
        resume(tmp_path / "run")


# --- checkpoints -----------------------------------------------------------------------------


def started(method):
    chosen = experiment(method)
    return chosen.start(chosen.federation())


def test_a_client_without_tensors_still_counts_as_trained(tmp_path):
    run = started(motet.FedAvg())
    done = run.advance()
    checkpoint.save(run, tmp_path)
    fresh = started(motet.FedAvg())
    checkpoint.restore(fresh, tmp_path)
    assert list(fresh.setting.store) == sorted(done.cohort)


def test_a_checkpoint_restores_every_bit(tmp_path):
    run = started(motet.FedPer())
    run.advance()
    checkpoint.save(run, tmp_path)
    fresh = started(motet.FedPer())
    checkpoint.restore(fresh, tmp_path)
    assert fresh.finished == 1
    for mine, theirs in [(fresh.server, run.server), (fresh.clients["0"], run.clients["0"])]:
        pairs = zip(tree.leaves(mine), tree.leaves(theirs), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_a_damaged_checkpoint_is_noticed(tmp_path):
    checkpoint.save(started(motet.FedPer()), tmp_path)
    file = next(tmp_path.glob("server-*"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(WireError, match="damaged"):
        checkpoint.restore(started(motet.FedPer()), tmp_path)


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    checkpoint.save(started(motet.FedPer()), tmp_path)
    with pytest.raises(StateError, match=r"is of fedper .* this run is fedavg"):
        checkpoint.restore(started(motet.FedAvg()), tmp_path)


@pytest.mark.parametrize("text", ["not json", "[]", "{}", '{"format": 99}'])
def test_meta_data_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(StateError):
        checkpoint.read_meta(tmp_path)


def test_a_crash_while_saving_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    run = started(motet.FedPer())
    run.advance()
    checkpoint.save(run, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run.advance()

    def crash_at_the_commit(path, contents):
        if path.name == "meta.json":
            raise OSError("no space left on device")
        write_atomically(path, contents)

    monkeypatch.setattr(checkpoint, "write_atomically", crash_at_the_commit)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(run, tmp_path)
    assert before.items() <= {p.name: p.read_bytes() for p in tmp_path.iterdir()}.items()
    fresh = started(motet.FedPer())
    checkpoint.restore(fresh, tmp_path)
    assert fresh.finished == 1


# --- what is there already -------------------------------------------------------------------


def test_a_directory_with_a_run_is_refused_and_left_alone(whole):
    before = {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    with pytest.raises(StateError, match="already holds a run"):
        begin(experiment(), whole)
    assert {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()} == before


def test_overwriting_removes_the_old_run_and_nothing_else(tmp_path):
    path = tmp_path / "run"
    finish(begin(experiment(), path))
    (path / "notes.txt").write_text("mine")
    (path / "checkpoint" / "notes.txt").write_text("mine too")
    session = begin(experiment(rounds=1), path, overwrite=True)
    assert not (path / "rounds.jsonl").exists()
    assert [p.name for p in (path / "checkpoint").iterdir()] == ["notes.txt"]
    finish(session)
    assert len(without_seconds(path)) == 1
    assert (path / "notes.txt").read_text() == "mine"


def test_a_config_that_is_not_ours_is_never_replaced(tmp_path):
    (tmp_path / "config.toml").write_text("[mine]\n")
    with pytest.raises(StateError, match="not written by Motet"):
        begin(experiment(), tmp_path, overwrite=True)
    assert (tmp_path / "config.toml").read_text() == "[mine]\n"


def test_a_wrong_request_makes_no_directory(tmp_path):
    with pytest.raises(motet.errors.SelectorError):
        begin(experiment(motet.FedPer(personal=("haed",))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be written: .*--out"):
        begin(experiment(rounds=0), tmp_path / "file" / "run")


def test_data_without_test_examples_are_refused_before_the_first_round(tmp_path):
    data = replace(DIGITS, test=0.0)
    with pytest.raises(DataError, match=r"no client .* has test data"):
        begin(replace(experiment(), data=data), tmp_path / "run")


def test_two_processes_cannot_hold_a_directory(whole):
    with RunDirectory.open(whole), pytest.raises(StateError, match="another process"):
        RunDirectory.open(whole)
    RunDirectory.open(whole).close()


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(StateError, match="holds no run"):
        resume(tmp_path)


# --- records ---------------------------------------------------------------------------------


def test_scores_come_back_from_parquet_even_when_there_are_none(tmp_path):
    rows = score_rows(
        Evaluation("m", "rmse", "val", "after_adapt", 3, (Score("ä/b", 2, 0.5, float("inf")),))
    )
    write_scores(tmp_path / "some.parquet", rows)
    write_scores(tmp_path / "none.parquet", [])
    assert read_scores(tmp_path / "some.parquet") == rows
    assert read_scores(tmp_path / "none.parquet") == read_scores(tmp_path / "absent") == []
    (tmp_path / "bad.parquet").write_text("no table")
    with pytest.raises(StateError, match="no table of scores"):
        read_scores(tmp_path / "bad.parquet")


def test_json_is_strict_and_takes_tensors():
    written = json_text({"a": torch.tensor([1.0, float("inf")]), 3: float("nan"), "n": (1,)})
    assert json.loads(written) == {"a": [1.0, None], "3": None, "n": [1]}
