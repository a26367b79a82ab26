"""`motet compare` from the command line."""

import json

import motet as library

SMALL = ("--clients", 4, "--rounds", 2, "--cohort", 0.5)


def results(text):
    return [(run["label"], run["seed"], run["scores"]) for run in json.loads(text)["runs"]]


def test_a_comparison_shows_a_table_that_fits(motet):
    shown = motet("compare", "--methods", "fedper", *SMALL, "--seeds", 2)
    assert shown.code == 0
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    for word in ("local", "fedavg-ft", "fedper", "Added for reference", "seeds 0, 1"):
        assert word in shown.out
    assert "round 16/16: fedper, seed 1" in shown.err


def test_the_command_and_python_give_bitwise_the_same_numbers(motet):
    shown = motet("compare", *SMALL, "--lr", 0.05, "--seed", 3, "--json", "--quiet")
    assert shown.err == ""
    data = library.data.load("digits", library.data.Pathological(clients=4, classes=2), seed=3)
    task = library.Task(
        build=lambda: library.models.build("mlp", shape=data.shape, classes=data.classes)
    )
    kinds = (library.Local, library.FedAvg, library.FedAvgFT, library.FedPer)
    methods = [kind(optimizer=library.Sgd(lr=0.05)) for kind in kinds]
    from motet.contest import compare

    table = compare(methods, task, data, rounds=2, cohort=0.5, seeds=[3])
    assert results(shown.out) == results(json.dumps(table.to_dict()))


def test_a_kept_comparison_goes_on_after_an_interruption(motet, monkeypatch, tmp_path):
    from motet.contest import Contest

    row = Contest.row

    def interrupted_at_fedper(self, label, seed, watch=None):
        if label == "fedper":
            raise KeyboardInterrupt
        return row(self, label, seed, watch)

    with monkeypatch.context() as patch:
        patch.setattr(Contest, "row", interrupted_at_fedper)
        stopped = motet("compare", *SMALL, "--out", "kept")
    assert stopped.code == 130
    assert "3 of 4 runs have finished. Go on with `motet resume kept`." in stopped.err
    assert not (tmp_path / "kept" / "comparison.json").exists()
    resumed = motet("resume", "kept", "--json")
    assert resumed.code == 0
    assert "fedavg" not in resumed.err  # it had finished
    whole = motet("compare", *SMALL, "--json")
    assert results(resumed.out) == results(whole.out)
    assert results((tmp_path / "kept" / "comparison.json").read_text()) == results(whole.out)
    assert motet("compare", *SMALL, "--out", "kept").code == 2
    assert motet("compare", *SMALL, "--out", "kept", "--overwrite", "--quiet").code == 0


def test_wrong_methods_are_one_sentence_and_code_2(motet):
    failed = motet("compare", "--methods", "local,fedperr")
    assert (failed.code, failed.out) == (2, "")
    assert 'did you mean "fedper"' in failed.err
    failed = motet("compare", "--set", "method.personal=[]")
    assert failed.code == 2
    assert "belongs in [methods.NAME]" in failed.err


def test_a_run_that_fails_is_code_1(motet, monkeypatch):
    from motet.federation import Run

    def broken(self):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Run, "advance", broken)
    failed = motet("compare", *SMALL)
    assert failed.code == 1
    assert "a run failed: out of memory" in failed.err
