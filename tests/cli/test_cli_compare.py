"""`motet compare` from the command line."""

import json

import pytest

import motet as library
from motet._compare.comparison_spec import ComparisonSpec

SMALL = ("--clients", 4, "--rounds", 2, "--cohort", 0.5, "--limit", 240)


def result(shown):
    """Return the last of the JSON lines."""
    return json.loads(shown.out.splitlines()[-1])


def results(written):
    return [(run["label"], run["seed"], run["scores"]) for run in written["runs"]]


def test_a_comparison_shows_a_table_that_fits_and_a_verdict(motet):
    shown = motet("compare", "--methods", "fedper", *SMALL, "--seeds", 2)
    assert shown.code == 0
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    for word in ("local", "fedavg-ft", "fedper", "Added for reference", "seeds 0, 1"):
        assert word in shown.out
    assert "fedper, seed 1: done" in shown.err
    assert "8 of 8 runs" in shown.err


def test_the_command_and_python_give_bitwise_the_same_numbers(motet):
    shown = motet("compare", "--seeds", "1", *SMALL, "--lr", 0.05, "--seed", 3, "--json", "--quiet")
    assert shown.err == ""
    pathological = library.data.Pathological(clients=4, classes=2)
    data = library.data.load("digits", pathological, seed=3, limit=240)
    task = library.Task(
        build=lambda: library.models.build("mlp", shape=data.shape, classes=data.classes)
    )
    kinds = (library.Local, library.FedAvg, library.FedAvgFT, library.FedPer)
    methods = [kind(optimizer=library.Sgd(lr=0.05)) for kind in kinds]
    table = library.compare(methods, task, data, rounds=2, cohort=0.5, seeds=[3])
    assert results(result(shown)) == results(json.loads(json.dumps(table.to_dict())))


def test_json_lines_tell_of_rounds_and_end_with_the_result(motet):
    shown = motet(
        "compare", "--seeds", "1", "--methods", "fedper", *SMALL, "--evaluate-every", 2, "--json"
    )
    events = [json.loads(line) for line in shown.out.splitlines()]
    assert [event["event"] for event in events if event.get("label") == "fedper"] == [
        "begin",
        "round",
        "round",
        "look",
        "finished",
    ]
    assert events[-1]["event"] == "result"
    assert [look["round"] for look in events[-1]["runs"][0]["curve"]] == [2]


def test_every_flag_of_a_comparison_reaches_it(motet, tmp_path):
    flags = ("--choose", "validation", "--evaluate-every", 2, "--tune", 2, "--tune-kind", "random")
    budget = ("--budget-gradients", 5000, "--budget-bytes", 10**9, "--budget-seconds", 600)
    shown = motet(
        "compare",
        "--seeds",
        "1",
        "--methods",
        "fedprox",
        *SMALL,
        *flags,
        *budget,
        "--out",
        "kept",
        "--json",
    )
    assert shown.code == 0
    written = result(shown)
    assert written["choose"] == "validation"
    assert written["budget"] == {"gradients": 5000, "bytes": 10**9, "seconds": 600}
    assert written["search"]["tries"] == 2
    assert set(written["runs"][-1]["tuned"]) == {"optimizer.lr", "mu"}


def test_a_kept_comparison_goes_on_after_an_interruption(motet, monkeypatch, tmp_path):
    run = ComparisonSpec.run

    def interrupted_at_fedper(self, labels, seed, watcher):
        if "fedper" in labels:
            raise KeyboardInterrupt
        return run(self, labels, seed, watcher)

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonSpec, "run", interrupted_at_fedper)
        stopped = motet("compare", "--seeds", "1", *SMALL, "--out", "kept")
    assert stopped.code == 130
    assert "3 of 4 runs have finished. Go on with `motet resume kept`." in stopped.err
    assert not (tmp_path / "kept" / "comparison.json").exists()
    resumed = motet("resume", "kept", "--json")
    assert resumed.code == 0
    assert "fedavg" not in resumed.err  # it had finished
    whole = result(motet("compare", "--seeds", "1", *SMALL, "--json"))
    assert results(result(resumed)) == results(whole)
    kept = json.loads((tmp_path / "kept" / "comparison.json").read_text())
    assert results(kept) == results(whole)
    assert motet("compare", "--seeds", "1", *SMALL, "--out", "kept").code == 2
    assert (
        motet("compare", "--seeds", "1", *SMALL, "--out", "kept", "--overwrite", "--quiet").code
        == 0
    )


def test_clients_left_out_in_turn_are_not_left_out_again_after_an_interruption(
    motet, monkeypatch, tmp_path
):
    asked = ("compare", "--seeds", "2", "--methods", "fedper", *SMALL, "--leave-one-out")
    run, without = ComparisonSpec.run, []

    def interrupted_at_the_fourth(self, labels, seed, watcher):
        if len(self.data.clients) == 3:
            without.append((self.data.clients, seed))
            if len(without) == 4:
                raise KeyboardInterrupt
        return run(self, labels, seed, watcher)

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonSpec, "run", interrupted_at_the_fourth)
        stopped = motet(*asked, "--out", "kept")
        assert stopped.code == 130
        assert "8 of 8 runs have finished, and 3 of 8 without one client." in stopped.err
        resumed = motet("resume", "kept", "--json")
    assert len(without) == 9  # four, of which one was interrupted, and the five that were left
    assert len(set(without)) == 8
    whole = result(motet(*asked, "--json"))
    assert result(resumed)["contributions"] == whole["contributions"]
    assert len(whole["contributions"]) == 4


def test_an_interrupted_search_goes_on_where_it_stopped(motet, monkeypatch, tmp_path):
    run, asked = ComparisonSpec.run, []

    def interrupted_at_the_third(self, labels, seed, watcher):
        asked.extend(labels)
        if "fedper #2" in labels:
            raise KeyboardInterrupt
        return run(self, labels, seed, watcher)

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonSpec, "run", interrupted_at_the_third)
        assert motet("compare", "--seeds", "1", *SMALL, "--tune", 3, "--out", "kept").code == 130
    tried = (tmp_path / "kept" / "trials.jsonl").read_text().splitlines()
    assert len(tried) == len(asked) - 1
    again = []
    monkeypatch.setattr(
        ComparisonSpec, "run", lambda self, *about: again.extend(about[0]) or run(self, *about)
    )
    resumed = motet("resume", "kept", "--json")
    assert not set(again) & set(asked[:-1])
    whole = result(motet("compare", "--seeds", "1", *SMALL, "--tune", 3, "--json"))
    assert results(result(resumed)) == results(whole)
    assert result(resumed)["tried"] == whole["tried"]


def test_a_directory_holds_everything_and_its_configs_give_the_same_numbers(motet, tmp_path):
    import pyarrow.parquet as parquet

    first = result(motet("compare", "--seeds", "1", *SMALL, "--tune", 2, "--out", "kept", "--json"))
    kept = tmp_path / "kept"
    assert (kept / "report.html").stat().st_size > 1000
    scores = parquet.read_table(kept / "clients.parquet").to_pylist()
    assert len(scores) == 4 * 4
    mean = sum(row["value"] for row in scores if row["label"] == "fedper") / 4
    assert mean == pytest.approx(first["methods"][-1]["mean"])
    assert library.Comparison.read(kept).to_dict()["runs"] == first["runs"]
    for config in ("config.toml", "tuned.toml"):
        again = result(motet("compare", kept / config, "--json", "--quiet"))
        assert results(again) == results(first)
    assert again["tried"] == []


def test_wrong_requests_are_one_sentence_and_code_2(motet):
    failed = motet("compare", "--seeds", "1", "--methods", "local,fedperr")
    assert (failed.code, failed.out) == (2, "")
    assert 'did you mean "fedper"' in failed.err
    failed = motet("compare", "--set", "method.personal=[]")
    assert failed.code == 2
    assert "in [methods.NAME]" in failed.err
    failed = motet("compare", "--set", "compare.tune.space.optimizer.rate=[0.1]")
    assert failed.code == 2
    assert 'no compared method has "optimizer.rate"' in failed.err


def fails_for(*names):
    """Break the rounds of some methods."""
    from motet._engine.federation import Run

    advance = Run.advance

    def broken(self):
        if self.setting.method.name in names:
            raise RuntimeError("out of memory")
        return advance(self)

    return broken


def test_a_method_that_fails_is_said_and_the_others_are_shown(motet, monkeypatch):
    monkeypatch.setattr("motet._engine.federation.Run.advance", fails_for("fedper"))
    shown = motet("compare", "--seeds", "1", "--methods", "fedper,fedprox", *SMALL)
    assert shown.code == 0
    assert "fedper, seed 0: failed: out of memory" in shown.err
    assert "fedper gave no result with seed 0" in " ".join(shown.out.split())
    assert "fedprox" in shown.out


def test_code_1_is_for_a_comparison_in_which_every_method_asked_for_failed(motet, monkeypatch):
    monkeypatch.setattr("motet._engine.federation.Run.advance", fails_for("fedper", "fedprox"))
    shown = motet("compare", "--seeds", "1", "--methods", "fedper,fedprox", *SMALL)
    assert shown.code == 1
    assert "local" in shown.out  # the references stand
    assert "every method failed: out of memory" in shown.err
    everything = fails_for("local", "fedavg", "fedavg-ft", "fedper")
    monkeypatch.setattr("motet._engine.federation.Run.advance", everything)
    assert motet("compare", "--seeds", "1", *SMALL).code == 1


def test_sinks_hear_of_a_comparison(motet, tmp_path):
    shown = motet(
        "compare", "--seeds", "1", "--methods", "fedper", *SMALL, "--tensorboard", "events"
    )
    assert shown.code == 0
    assert list((tmp_path / "events").rglob("*tfevents*"))


def test_methods_that_nobody_named_are_left_out_if_they_cannot_run(motet, tmp_path):
    """A linear model has no head to keep; a comparison by default or of all goes on without."""
    (tmp_path / "c.toml").write_text('[compare]\nmethods = ["all"]\n[model]\nname = "logistic"\n')
    few = ("--clients", 3, "--rounds", 1, "--seeds", 1, "--limit", 120)
    shown = motet("compare", "c.toml", *few, "--json")
    assert shown.code == 0
    assert "left out fedbabu: head= covers the whole network" in shown.err
    labels = {run["label"] for run in result(shown)["runs"]}
    assert {"local", "fedavg", "ditto"} <= labels
    assert "fedbabu" not in labels
    assert motet("compare", "--model", "logistic", *few).code == 0
    assert motet("compare", "--model", "logistic", "--methods", "fedbabu", *few).code == 2


def test_a_warning_about_the_data_is_shown_once(motet, tmp_path):
    rows = "".join(f"{'ab'[i % 2]},{i}.5,{i % 3 // 2},{i}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("site,x,y,id\n" + rows)
    table = ("--table", "t.csv", "--client-column", "site", "--target", "y")
    shown = motet("compare", *table, "--rounds", 1, "--seeds", 1, "--standardize", "site")
    assert shown.err.count('column "id" is different in every row') == 1
