"""Training that diverges: what `run`, `resume`, `compare` and `report` say, and how they end."""

import json

import pytest
from events import events, result

from motet._engine.records import read_scores

SMALL = ("--data", "digits", "--clients", 4, "--rounds", 2, "--batch-size", 16)
WILD = (*SMALL, "--lr", 1e30)
# Two clients of four send the largest numbers there are; a mean of them is still finite.
HUGE = ("--set", 'run.faults.corrupt=["1", "3"]', "--set", 'run.faults.corruption="huge"')
NAN = ("--set", 'run.faults.corrupt=["1", "3"]', "--set", 'run.faults.corruption="nan"')


def squeezed(text):
    """Undo the wrapping of lines."""
    return " ".join(text.split())


@pytest.mark.parametrize("method", ["local", "ditto", "fedavg", "fedper"])
def test_a_run_in_which_everybody_diverges_says_so_and_fails(motet, method):
    done = motet("run", "--method", method, *WILD, "--out", "wild")
    assert done.code == 1
    assert "Training diverged at 4 of 4 clients" in done.err
    assert "0, 1, 2, 3." in done.err
    assert "round 1" in done.err
    assert "--lr" in done.err
    assert "error: training diverged everywhere" in done.err
    assert "! training diverged at 4 clients: what is scored is their last" in done.out
    assert "Traceback" not in done.err


def test_a_sound_run_says_nothing_of_it(motet):
    done = motet("run", "--method", "ditto", *SMALL, "--json", "--out", "sound")
    assert done.code == 0
    assert "diverged" not in done.err
    assert result(done.out)["divergence"] == {}
    assert not any(e.get("failed") or e.get("diverged") for e in events(done.out))


def test_a_run_that_diverges_for_some_is_a_result_with_a_warning(motet):
    done = motet("run", "--method", "fedavg", *SMALL, *NAN, "--json", "--out", "some")
    assert done.code == 0
    assert "Training diverged at 2 of 4 clients, first in round 1, last in 2: 1, 3." in done.err
    told = result(done.out)["divergence"]
    assert sorted(told["clients"]) == ["1", "3"]
    assert told["clients"]["1"]["rounds"] == 2
    assert told["total"] is False


def test_rounds_that_left_the_server_alone_are_in_the_lines_the_record_and_the_end(motet, tmp_path):
    done = motet("run", "--method", "fedadam", *SMALL, *HUGE, "--json", "--out", "failed")
    assert done.code == 1, "no round had an effect"
    rounds = [event for event in events(done.out) if event["event"] == "round"]
    assert all("from 1, 3" in event["failed"] for event in rounds)
    assert sorted(result(done.out)["divergence"]["failed_rounds"]) == ["1", "2"]
    lines = (tmp_path / "failed/rounds.jsonl").read_text().splitlines()
    assert all("new server state" in json.loads(line)["failed"] for line in lines)
    assert "The server kept its old state in 2 rounds, first in round 1" in done.err


def test_a_finished_run_that_is_resumed_ends_as_it_did(motet):
    first = motet("run", "--method", "ditto", *WILD, "--json", "--out", "wild")
    again = motet("resume", "wild", "--json")
    assert again.code == first.code == 1
    assert result(again.out)["divergence"] == result(first.out)["divergence"]


def test_a_comparison_lists_who_diverged_as_failed_local_too(motet):
    done = motet("compare", "--seeds", "1", "--methods", "ditto", *WILD)
    assert done.code == 1
    for label in ("local", "fedavg", "fedavg-ft", "ditto"):
        assert f"{label}, seed 0: failed: training diverged everywhere" in squeezed(done.err)


def test_a_comparison_marks_a_method_that_diverged_in_part(motet, tmp_path):
    done = motet("compare", "--seeds", "1", "--methods", "fedper", *SMALL, *NAN, "--out", "both")
    assert done.code == 0
    table, text = done.out, squeezed(done.out)
    assert max(map(len, table.splitlines())) <= 80
    assert next(line for line in table.splitlines() if line.startswith("fedper")).count("!") == 1
    assert "Training of fedper diverged at 2 clients (1, 3)" in text
    assert "! training diverged in part" in text
    assert "fedper: Training diverged at 2 of 4 clients" in squeezed(done.err)
    page = (tmp_path / "both/report.html").read_text()
    assert "Training of fedper diverged at 2 clients (1, 3)" in page


def test_the_page_of_a_run_says_that_it_diverged(motet, tmp_path):
    motet("run", "--method", "fedavg", *SMALL, *NAN, "--out", "some")
    assert motet("report", "some", "--out", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "Training of fedavg diverged at 2 clients (1, 3)" in page
    assert "Training diverged at 2 of 4 clients, first in round 1, last in 2" in page


def test_predictions_that_are_not_finite_are_marked_in_every_file(motet, tmp_path):
    """A healthy server, and fine-tuning that diverges when clients are served."""
    about = ("--method", "fedbabu", *SMALL, "--set", "method.optimizer.lr=1e30")
    done = motet("run", *about, "--out", "blind", "--json")
    rows = read_scores(tmp_path / "blind/clients.parquet")
    final = result(done.out)["results"][0]
    marked = sorted(row.client for row in rows if row.split == "test" and row.diverged)
    assert marked == sorted(score["client"] for score in final["scores"] if score["diverged"])
    assert final["diverged"] == len(marked) > 0
    assert done.code == 1
