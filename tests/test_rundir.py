"""Run directories: complete, atomic, resumable to the same bits, and careful with what is there."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from saved import assert_same_run, saved_state

import motet
from motet._core import tree
from motet._engine.evaluation import Evaluation, Score
from motet._engine.records import json_text, read_scores, score_rows, write_scores
from motet._runs import checkpoint
from motet._runs.checkpoint import Checkpoint
from motet._runs.recorded_run import begin, resume
from motet._runs.run_dir import RunDirectory
from motet.config import Experiment, NamedData, RunChoice, load_experiment
from motet.data import Pathological
from motet.errors import DataError, StateError, WireError

LAST_BYTE = "CAST(substr({0}, 1, length({0}) - 1) || x'07' AS BLOB)"  # changed
DIGITS = NamedData(partition=Pathological(clients=6, classes=2))
FILES = {
    "config.toml",
    "data.json",
    "rounds.jsonl",
    "timings.jsonl",
    "clients.parquet",
    "checkpoint",
}


def experiment(method=None, **run):
    settings = {"rounds": 4, "cohort": 0.5, "checkpoint_every": 2, "evaluate_every": 1, **run}
    return Experiment(method=method or motet.FedPer(), data=DIGITS, run=RunChoice(**settings))


def finish(session):
    with session.directory:
        list(session.rounds())
        return session.conclude()


def lines_of(directory, name="rounds.jsonl"):
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A FedPer run from beginning to end."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    finish(begin(experiment(), path))
    return path


# --- what is written -------------------------------------------------------------------------


def test_a_finished_run_has_exactly_its_files(whole):
    assert {path.name for path in whole.iterdir()} == FILES
    assert [path.name for path in (whole / "checkpoint").iterdir()] == ["state.sqlite"]


def test_only_the_time_it_took_differs_between_equal_runs(whole, tmp_path):
    finish(begin(experiment(), tmp_path / "again"))
    assert_same_run(whole, tmp_path / "again")
    assert [line["round"] for line in lines_of(whole, "timings.jsonl")] == [1, 2, 3, 4]
    with RunDirectory.open(whole) as directory:
        assert all(line["seconds"] > 0 for line in directory.rounds())


def test_a_store_on_disk_gives_the_same_run(whole, tmp_path):
    finish(begin(experiment(store="disk"), tmp_path / "disk"))
    for name in ("rounds.jsonl", "clients.parquet"):
        assert (tmp_path / "disk" / name).read_bytes() == (whole / name).read_bytes()
    assert saved_state(tmp_path / "disk") == saved_state(whole)


def test_every_round_is_on_record_and_validation_says_which_round_it_is_of(whole):
    lines = lines_of(whole)
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


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("rounds_before", [0, 1, 3, 4])
def test_resuming_gives_the_same_bits_wherever_the_process_died(tmp_path, rounds_before, store):
    whole, path = tmp_path / "whole", tmp_path / "broken"
    finish(begin(experiment(store=store), whole))
    session = begin(experiment(store=store), path)
    with session.directory:  # dies without another word after some rounds
        for _, _ in zip(range(rounds_before), session.rounds(), strict=False):
            pass
    again = resume(path)
    assert again.run.rounds_done == rounds_before // 2 * 2  # the last checkpoint
    finish(again)
    assert_same_run(whole, path)


def test_saving_between_rounds_moves_the_point_of_resumption(whole, tmp_path):
    session = begin(experiment(), tmp_path / "saved")
    with session.directory:
        next(session.rounds())
        session.save()
    again = resume(tmp_path / "saved")
    assert again.run.rounds_done == 1
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


def save(run, folder):
    saving = Checkpoint(run, folder)
    saving.save()
    saving.close()


def restored(method, folder):
    run = started(method)
    saved = Checkpoint(run, folder)
    try:
        saved.restore()
    finally:
        saved.close()
    return run


def rewrite(folder, statement, *values):
    with closing(sqlite3.connect(folder / "state.sqlite")) as database, database:
        assert database.execute(statement, values).rowcount == 1


def test_a_client_without_tensors_still_counts_as_trained(tmp_path):
    run = started(motet.FedAvg())
    done = run.advance()
    save(run, tmp_path)
    assert list(restored(motet.FedAvg(), tmp_path).setting.store) == sorted(done.cohort)


def test_a_checkpoint_restores_every_bit(tmp_path):
    run = started(motet.FedPer())
    run.advance()
    run.extras["accountant"] = {"spent/so far": torch.tensor([0.1, 0.2], dtype=torch.float64)}
    save(run, tmp_path)
    fresh = restored(motet.FedPer(), tmp_path)
    assert fresh.rounds_done == 1
    for mine, theirs in [
        (fresh.server, run.server),
        (fresh.clients["0"], run.clients["0"]),
        (fresh.extras, run.extras),
    ]:
        for (name, a), (other, b) in zip(tree.flatten(mine), tree.flatten(theirs), strict=True):
            assert name == other
            assert torch.equal(a, b)


def test_only_what_has_changed_is_written(tmp_path):
    run = started(motet.FedPer())
    saving, written = Checkpoint(run, tmp_path), []
    write = saving.states.database.write

    def watched(statement, *values):
        written.append((statement.split()[2], values[0]))
        return write(statement, *values)

    saving.states.database.write = watched
    first, second = run.advance(), None
    saving.save()
    assert {row[0] for row in written} >= {"clients", "states", "tensors", "checkpoint", "seal"}
    written.clear()
    saving.save()
    assert {table for table, _ in written} == {"checkpoint", "seal"}
    written.clear()
    second = run.advance()
    saving.save()
    saving.close()
    assert first.cohort != second.cohort
    keys = {key.decode() for table, key in written if table == "clients"}
    assert keys == set(second.cohort)


def test_a_damaged_server_state_is_noticed(tmp_path):
    save(started(motet.FedPer()), tmp_path)
    flip = f"UPDATE tensors SET bytes = {LAST_BYTE.format('bytes')} WHERE name = ?"
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        (name,) = database.execute("SELECT name FROM tensors").fetchone()
    rewrite(tmp_path, flip, name)
    with pytest.raises(WireError, match=r"damaged: the tensor .* is not what was saved"):
        restored(motet.FedPer(), tmp_path)


def test_a_damaged_private_state_costs_one_client_and_is_said(tmp_path):
    path = tmp_path / "run"
    session = begin(experiment(cohort=1.0), path)
    with session.directory:
        next(session.rounds())
        session.save()
    flip = f"UPDATE states SET state = {LAST_BYTE.format('state')} WHERE slot = 3"
    rewrite(path / "checkpoint", flip)
    again = resume(path)
    with again.directory:
        (warning,) = again.run.warnings
        assert 'client "2"' in warning
        assert "starts afresh" in warning
        assert list(again.run.setting.store) == ["0", "1", "3", "4", "5"]
        next(again.rounds())
    assert list(lines_of(path)[1]["damaged"]) == ["2"]


def test_what_was_written_down_is_checked_too(tmp_path):
    path = tmp_path / "run"
    finish(begin(experiment(rounds=2), path))
    change = (
        "UPDATE records SET text = replace(text, 'fedper', 'fedavg') WHERE number = 2 AND kind = ?"
    )
    rewrite(path / "checkpoint", change, "rounds.jsonl")
    with pytest.raises(WireError, match=r"damaged: rounds\.jsonl 2 is not what was saved"):
        resume(path)


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    save(started(motet.FedPer()), tmp_path)
    with pytest.raises(StateError, match=r"is of fedper .* this run is fedavg"):
        restored(motet.FedAvg(), tmp_path)


def test_a_checkpoint_of_the_old_format_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "run"
    with begin(experiment(), path).directory:
        pass
    (path / "checkpoint").mkdir(exist_ok=True)
    (path / "checkpoint" / "meta.json").write_text('{"format": 1, "finished": 2}')
    with pytest.raises(StateError, match=r"format 1, and this version reads 2.*--overwrite"):
        resume(path)


def test_a_checkpoint_can_be_looked_at_while_the_run_goes_on(tmp_path):
    run = started(motet.FedPer())
    saving = Checkpoint(run, tmp_path)
    with pytest.raises(StateError, match="there is no checkpoint"):
        checkpoint.read_meta(tmp_path)
    run.advance()
    saving.save()
    run.advance()
    saving.note("anything", 1, "not saved yet")
    assert checkpoint.read_meta(tmp_path)["finished"] == 1
    saving.save()
    assert checkpoint.read_meta(tmp_path)["finished"] == 2
    saving.close()


def test_after_a_save_has_failed_nothing_more_is_written(tmp_path):
    run = started(motet.FedPer())
    run.advance()
    saving = Checkpoint(run, tmp_path)
    saving.save()
    run.advance()
    saving.states.database.write("PRAGMA max_page_count = 1")  # as if the disk were full
    with pytest.raises(StateError, match=r"cannot be read or written: .*full"):
        saving.save()
    with pytest.raises(StateError, match="closed after a failure"):
        saving.save()
    saving.close()
    assert restored(motet.FedPer(), tmp_path).rounds_done == 1


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
    assert len(lines_of(path)) == 1
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


def test_a_directory_below_a_file_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"--out expects a directory; .*file is a file"):
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
    with pytest.raises(StateError, match="not a table of scores"):
        read_scores(tmp_path / "bad.parquet")


def test_json_is_strict_and_takes_tensors():
    written = json_text({"a": torch.tensor([1.0, float("inf")]), 3: float("nan"), "n": (1,)})
    assert json.loads(written) == {"a": [1.0, None], "3": None, "n": [1]}
