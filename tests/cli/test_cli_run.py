"""`motet run`: flags, files and Python give the same run; bad input gets one sentence."""

import json
import re
import sys

import numpy as np
import pytest
from events import events, result

import motet as library
from motet._engine.records import read_scores

SMALL = ("--clients", 4, "--rounds", 2, "--cohort", 0.5, "--batch-size", 16)


def scores(directory):
    rows = read_scores(directory / "clients.parquet")
    return [(row.client, row.value, row.loss) for row in rows if row.split == "test"]


def table_of(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return ("--table", name, "--client-column", "site", "--target", "sick")


ROWS = "a,1.5,0\na,2.5,1\na,0.5,0\nb,3.5,1\nb,2.0,0\nb,1.0,1\n" * 3


# --- the same run, three ways ----------------------------------------------------------------


def test_flags_a_file_and_python_give_bitwise_the_same_run(motet, tmp_path):
    (tmp_path / "small.toml").write_text(
        """
        [method]
        name = "fedper"
        lr = 0.05
        batch_size = 16
        personal = {blocks = 1}

        [data]
        name = "digits"

        [data.partition]
        name = "pathological"
        clients = 4
        classes = 2

        [run]
        rounds = 2
        cohort = 0.5
        seed = 3
        """
    )
    flags = ("--method", "fedper", "--data", "digits", "--partition", "pathological")
    more = ("--classes", 2, "--lr", 0.05, "--seed", 3, "--set", "method.personal={blocks = 1}")
    assert motet("run", "small.toml", "--out", "file").code == 0
    assert motet("run", *flags, *SMALL, *more, "--out", "flags").code == 0
    assert motet("run", "file/config.toml", "--out", "again").code == 0

    data = library.data.load("digits", library.data.Pathological(clients=4, classes=2), seed=3)
    task = library.Task(
        build=lambda: library.models.build("mlp", shape=data.shape, classes=data.classes)
    )
    method = library.FedPer(
        personal=library.Blocks(last=1), optimizer=library.Sgd(lr=0.05), batch_size=16
    )
    run = library.run(method, task, data, rounds=2, cohort=0.5, seed=3)
    expected = [(row.client, row.value, row.loss) for row in run.evaluate(split="test").rows]

    for name in ("file", "flags", "again"):
        assert scores(tmp_path / name) == expected
        assert (tmp_path / name / "config.toml").read_text() == (
            tmp_path / "flags" / "config.toml"
        ).read_text()


def test_flags_win_over_the_file_and_assignments_over_both(motet, tmp_path):
    (tmp_path / "c.toml").write_text('[method]\nname = "local"\nepochs = 3\n[run]\nrounds = 7\n')
    arguments = ("run", "c.toml", *SMALL, "--epochs", 2, "--set", "method.epochs=1", "--json")
    experiment = result(motet(*arguments).out)["experiment"]
    assert experiment["method"]["epochs"] == 1
    assert experiment["run"]["rounds"] == 2


def test_the_seed_names_the_split_too_unless_the_file_does(motet, tmp_path):
    def seeds(*arguments):
        written = result(motet("run", *arguments, *SMALL, "--rounds", 1, "--json").out)
        experiment = written["experiment"]
        return experiment["run"]["seed"], experiment["data"]["seed"]

    (tmp_path / "c.toml").write_text("[data]\nseed = 9\n")
    assert seeds("--method", "local", "--seed", 5) == (5, 5)
    assert seeds("c.toml", "--method", "local", "--seed", 5) == (5, 9)


# --- what is shown ---------------------------------------------------------------------------


def test_a_run_shows_its_result_on_stdout_and_the_rest_on_stderr(motet, tmp_path):
    shown = motet("run", "--method", "fedper", *SMALL)
    assert shown.code == 0
    assert (
        "Accuracy on each client's own test data\nwith each client's final model, round 2"
        in shown.out
    )
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    assert re.search(r"fedper, seed 0: done in \d+ s, best validation accuracy 0\.\d+", shown.err)
    assert "Kept in runs/fedper-1" in shown.err
    assert (tmp_path / "runs" / "fedper-1" / "config.toml").exists()


def test_json_is_a_line_per_event_and_nothing_else_is_on_stdout(motet):
    shown = motet("run", "--method", "fedavg", *SMALL, "--json", "--out", "run")
    kinds = [event["event"] for event in events(shown.out)]
    assert kinds == ["begin", "round", "look", "round", "look", "finished", "result"]
    written = result(shown.out)
    assert written["directory"] == "run"
    assert written["results"][0]["round"] == 2
    assert len(written["results"][0]["scores"]) == 4
    assert written["cost"]["bytes_up"] > 0


def test_quiet_leaves_one_json_document(motet):
    shown = motet("run", "--method", "fedavg", *SMALL, "--json", "--quiet")
    assert shown.err == ""
    assert json.loads(shown.out) == {"event": "result", **result(shown.out)}


def test_quiet_leaves_only_the_result(motet):
    shown = motet("run", "--method", "fedavg", *SMALL, "--quiet")
    assert shown.err == ""
    assert "mean" in shown.out


def test_a_warning_is_shown_once_and_kept_in_the_json(motet):
    shown = motet("run", "--method", "fedper", "--model", "logistic", *SMALL, "--json")
    warnings = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "keeps every parameter" in warnings[0]
    assert result(shown.out)["warnings"] == [warnings[0].removeprefix("warning: ")]


def test_a_table_runs_from_flags(motet, tmp_path):
    flags = table_of(tmp_path, "site,age,sick\n" + ROWS)
    shown = motet("run", "--method", "fedavg", *flags, "--rounds", 1, "--json")
    written = result(shown.out)
    assert written["experiment"]["model"]["name"] == "mlp"
    assert [score["client"] for score in written["results"][0]["scores"]] == ["a", "b"]


def test_a_folder_runs_and_a_regression_is_scored_by_its_error(motet, tmp_path):
    rng = np.random.default_rng(0)
    for client in ("a", "b"):
        (tmp_path / "arrays" / client).mkdir(parents=True)
        x = rng.normal(size=(20, 3)).astype(np.float32)
        np.savez(tmp_path / "arrays" / client / "train.npz", x=x, y=x.sum(1))
    cut = ("--set", "data.val=0.2", "--set", "data.test=0.2")
    shown = motet("run", "--method", "local", "--folder", "arrays", *cut, "--rounds", 1)
    assert shown.code == 0
    assert "RMSE on each client's own test data" in shown.out


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no method is named; say --method fedper"),
        (("--method", "fedperr"), 'did you mean "fedper"'),
        (("--method", "local", "--data", "digit"), 'did you mean "digits"'),
        (("--method", "local", "--partition", "dirichle"), 'did you mean "dirichlet"'),
        (("--method", "local", "--partition", "dirichlet"), "needs clients"),
        (("--method", "local", "--classes", 11), "more classes per client than exist"),
        (("--method", "local", "--model", "mpl"), 'did you mean "mlp"'),
        (("--method", "local", "--backend", "gpu"), "no backend is called"),
        (("--method", "local", "--cohort", 99), "there are 20 clients"),
        (("--method", "local", "--cohort", "some"), "--cohort expects a number"),
        (("--method", "local", "--set", "method.epoch=2"), 'did you mean "epochs"'),
        (("--method", "local", "--set", "method.epochs=two"), "expects a whole number"),
        (("--method", "fedper", "--set", "method.personal=['haed']"), 'did you mean "head"'),
        (("--method", "local", "--lr", "-1"), "must be 0 or more"),
        (("absent.toml",), "no config file at absent.toml"),
        (("--method", "local", "--table", "absent.csv"), "needs target"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_code_2_and_leaves_nothing(
    motet, tmp_path, arguments, sentence
):
    failed = motet("run", *arguments, "--rounds", 1)
    assert (failed.code, failed.out) == (2, "")
    assert failed.err.startswith("error: ")
    assert sentence in failed.err
    assert failed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("clinic,age,sick\n" + ROWS, 'the table has no column "site"'),
        ("site,age,sick\n" + ROWS + "c,,1\n", 'column "age": 1 of 19 values are missing'),
        ("site,age,sick\n" + ROWS + "c,old,1\n", 'column "age" holds numbers, except in 1 row'),
        ("site,age,sick\n" + ROWS + "c,inf,1\n", "should hold finite numbers"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence_and_code_2(motet, tmp_path, text, sentence):
    failed = motet("run", "--method", "local", *table_of(tmp_path, text), "--rounds", 1)
    assert (failed.code, failed.out) == (2, "")
    assert sentence in failed.err


def test_labels_outside_the_models_outputs_are_refused(motet, tmp_path):
    (tmp_path / "arrays" / "a").mkdir(parents=True)
    np.savez(tmp_path / "arrays" / "a" / "train.npz", x=np.zeros((9, 2)), y=np.arange(9))
    settings = ("--set", "data.classes=3", "--set", "data.test=0.3")
    failed = motet("run", "--method", "local", "--folder", "arrays", *settings)
    assert failed.code == 2
    assert "a label that is not a whole number from 0 to 2" in failed.err


def test_a_client_without_training_data_is_refused(motet, tmp_path):
    (tmp_path / "arrays" / "a").mkdir(parents=True)
    (tmp_path / "arrays" / "b").mkdir()
    np.savez(tmp_path / "arrays" / "a" / "train.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2)
    np.savez(tmp_path / "arrays" / "b" / "test.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2)
    failed = motet("run", "--method", "local", "--folder", "arrays")
    assert failed.code == 2
    assert '"b"' in failed.err
    assert "no training data" in failed.err


def test_a_directory_that_holds_a_run_needs_overwrite(motet):
    motet("run", "--method", "local", *SMALL, "--out", "run")
    refused = motet("run", "--method", "fedavg", *SMALL, "--out", "run")
    assert refused.code == 2
    assert "`motet resume run`" in refused.err
    replaced = motet("run", "--method", "fedavg", *SMALL, "--out", "run", "--overwrite", "--json")
    assert result(replaced.out)["results"][0]["method"] == "fedavg"


def test_a_run_that_fails_on_the_way_is_code_1_and_says_how_to_go_on(motet, monkeypatch):
    from motet._engine.federation import Run

    advance = Run.advance

    def fail_in_round_2(self):
        if self.rounds_done == 1:
            raise RuntimeError("out of memory\nwith details")
        return advance(self)

    monkeypatch.setattr(Run, "advance", fail_in_round_2)
    failed = motet("run", "--method", "local", *SMALL, "--out", "run")
    assert failed.code == 1
    assert "the run failed after round 1 of 2: out of memory; continue with" in failed.err
    assert "motet resume run" in failed.err


# -- networks that cannot be stacked ------------------------------------------


@pytest.mark.parametrize("method", ["local", "fedavg-ft"])
def test_a_deep_residual_network_of_every_client_s_own_is_trained_and_scored(motet, method):
    digits = ["--method", method, "--data", "digits", "--partition", "iid", "--clients", 2]
    network = ["--model", "resnet-18", "--set", "model.width=2", "--rounds", 1]
    done = motet("run", *digits, *network, "--set", "method.batch_size=512", "--quiet", "--json")
    assert done.code == 0, done.err
    assert '"mean"' in done.out


OWN_NETWORK = """
from torch import nn

class Reader(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.rows = nn.LSTM(8, 4, batch_first=True)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.rows(x.flatten(1, 2))[0][:, -1])
"""


def test_a_recurrent_network_of_the_user_s_own_is_trained_scored_and_resumed(
    motet, tmp_path, monkeypatch
):
    (tmp_path / "own_recurrent_network.py").write_text(OWN_NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["--data", "digits", "--clients", 3, "--model", "own_recurrent_network:Reader"]
    done = motet("run", "--method", "fedper", *asked, "--rounds", 1, "--out", "run")
    assert done.code == 0, done.err
    told = motet("run", "--method", "fedper", *asked, "--explain-plan")
    assert "trained one after another" in told.out
    assert motet("resume", "run").code == 0


def test_a_method_that_cannot_run_is_one_sentence_and_code_2(motet, tmp_path, monkeypatch):
    (tmp_path / "own_failing_network.py").write_text(
        OWN_NETWORK.replace("[:, -1]", "[:, -1] + self.rows.weight_hh_l0[:, :3]")
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["--data", "digits", "--clients", 3, "--model", "own_failing_network:Reader"]
    for backend in ("serial", "auto"):
        done = motet("run", "--method", "fedper", *asked, "--backend", backend, "--out", "run")
        assert done.code == 2
        assert "the network does not accept the data" in done.err
        assert not (tmp_path / "run").exists()


def test_a_run_of_no_rounds_or_no_epochs_is_refused(motet):
    for command in (("run", "--method", "local"), ("compare", "--methods", "local")):
        failed = motet(*command, "--rounds", 0)
        assert (failed.code, failed.out) == (2, "")
        assert "--rounds must be 1 or more; got 0" in failed.err
        failed = motet(*command, "--epochs", 0, "--rounds", 1)
        assert (failed.code, failed.out) == (2, "")
        assert "--epochs must be 1 or more, or Local would not train; got 0" in failed.err


def test_a_network_beside_the_config_is_found_when_the_run_is_resumed_elsewhere(
    motet, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "network_beside.py").write_text(
        "from torch import nn\n"
        "def build(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    (folder / "c.toml").write_text('[model]\nname = "network_beside:build"\n')
    arguments = (*SMALL, "--method", "fedavg", "--out", tmp_path / "run", "--quiet")
    assert motet("run", "study/c.toml", *arguments).code == 0
    monkeypatch.chdir("/")
    sys.path[:] = [place for place in sys.path if place != str(folder)]
    assert motet("resume", tmp_path / "run", "--quiet").code == 0


def test_a_path_that_the_system_refuses_is_named_and_no_surprise(motet):
    columns = ("--client-column", "c", "--target", "y")
    done = motet("data", "--table", "x" * 5000, *columns)
    assert done.code == 2
    assert "file name too long" in done.err
    assert "unexpected" not in done.err
