"""`motet reproduce` from the beginning, after a stop, and after `kill -9`."""

import json
import signal
import time

import pytest

from motet._recipes.records import RESULTS, differences, read_results
from motet._recipes.running import Stopped, open_records, run_left
from motet._recipes.shelf import find_recipe

TINY = """\
title = "Digits, a tiny recipe"
paper = "none"
table = "none"
source = "none"
data = ["digits"]
[rule]
margin = 0.02
[settings.data]
name = "digits"
partition = { name = "pathological", clients = 4, classes = 3 }
[settings.model]
name = "logistic"
[settings.method]
steps = 3
lr = 0.1
[settings.run]
rounds = 4
checkpoint_every = 1
mode = "stack"
chunk_size = 4
traced = false
channels_last = false
[trainings.fedavg.method]
name = "fedavg-ft"
adapt_epochs = 1
[trainings.fedper.method]
name = "fedper"
[[cells]]
name = "FedAvg"
training = "fedavg"
point = "after_broadcast"
published = 0.5
[[cells]]
name = "FedAvg+"
training = "fedavg"
point = "after_adapt"
published = 0.9
reference = "FedAvg"
[[cells]]
name = "FedPer, worst"
training = "fedper"
statistic = "worst"
[[claims]]
text = "Fine-tuning helps"
contrast = { "FedAvg+" = 1.0, FedAvg = -1.0 }
[scales.hour]
cost = "seconds"
seeds = 2
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def peaceful(tiny, tmp_path_factory):
    """Run the recipe without any interruption."""
    out = tmp_path_factory.mktemp("peaceful")
    recipe = find_recipe(str(tiny))
    with open_records(recipe, "hour", out) as records:
        list(run_left(recipe, "hour", records))
    return out / RESULTS


def test_a_second_command_from_scratch_has_identical_numbers(motet, tiny, peaceful):
    done = motet("reproduce", tiny, "--out", "again", "--check", peaceful)
    assert done.code == 0
    assert "All 4 runs have the same numbers" in done.err
    assert "direction only: as published" in " ".join(done.out.split())


def test_other_numbers_are_noticed(motet, tiny, peaceful, tmp_path):
    head, first, *others = peaceful.read_text().splitlines()
    changed = json.loads(first)
    changed["scores"]["after_adapt"]["clients"][0][2] += 1e-9
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join([head, json.dumps(changed), *others, ""]))
    (tmp_path / "same").mkdir()
    (tmp_path / "same" / RESULTS).write_bytes(peaceful.read_bytes())
    done = motet("reproduce", tiny, "--out", "same", "--check", other)
    assert done.code == 1
    assert "fedavg, seed 0: other numbers" in done.err


def test_a_stopped_recipe_goes_on_inside_a_run(tiny, peaceful, tmp_path):
    recipe, rounds = find_recipe(str(tiny)), 0

    def every_third_round():
        nonlocal rounds
        rounds += 1
        return rounds % 3 == 0

    for _ in range(20):
        try:
            with open_records(recipe, "hour", tmp_path) as records:
                list(run_left(recipe, "hour", records, every_third_round))
            break
        except Stopped:
            assert list((tmp_path / "running").iterdir())
    assert rounds < 20  # 16 rounds: none was run twice
    assert not differences(read_results(tmp_path / RESULTS), read_results(peaceful))
    assert not (tmp_path / "running").exists()


def test_half_a_line_is_dropped_and_its_run_repeated(tiny, peaceful, tmp_path):
    recipe = find_recipe(str(tiny))
    (tmp_path / RESULTS).write_bytes(peaceful.read_bytes()[:-40])
    with open_records(recipe, "hour", tmp_path) as records:
        assert len(list(run_left(recipe, "hour", records))) == 1
    assert not differences(read_results(tmp_path / RESULTS), read_results(peaceful))


def test_a_changed_recipe_does_not_continue_old_results(motet, tiny, peaceful, tmp_path):
    changed = tmp_path / "tiny.toml"
    changed.write_text(TINY.replace("margin = 0.02", "margin = 0.03"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RESULTS).write_bytes(peaceful.read_bytes())
    done = motet("reproduce", changed, "--out", "out")
    assert done.code == 2
    assert "with other settings, cells or rules than it has now" in done.err
    assert "choose another directory with --out" in done.err


@pytest.mark.parametrize("spoil", [b"{}\n", b"hello", b"[1]\n", b"", b'{"recipe": "tiny"}\n\xff\n'])
def test_a_file_that_holds_no_results_is_refused_before_anything_runs(motet, tiny, tmp_path, spoil):
    (tmp_path / "other.jsonl").write_bytes(spoil)
    done = motet("reproduce", tiny, "--out", "out", "--check", "other.jsonl")
    assert done.code == 2
    assert "other.jsonl does not hold results of a recipe; `motet reproduce` writes" in done.err
    assert not (tmp_path / "out").exists()


def test_results_of_another_recipe_are_refused_before_anything_runs(
    motet, tiny, peaceful, tmp_path
):
    for old, new, said in (
        ('"tiny"', '"huge"', 'holds results of the recipe "huge" at scale "hour"'),
        ('"hour"', '"full"', 'at scale "full", not of "tiny" at scale "hour"'),
        ('"hash": "', '"hash": "0', "other settings, cells or rules than it has now: its hash was"),
    ):
        (tmp_path / "other.jsonl").write_text(peaceful.read_text().replace(old, new, 1))
        done = motet("reproduce", tiny, "--out", "out", "--check", "other.jsonl")
        assert done.code == 2
        assert said in done.err
        assert not (tmp_path / "out").exists()


def test_a_wrong_training_is_refused_before_the_first_run(motet, tmp_path):
    wrong = TINY.replace('name = "fedper"', 'name = "fedper"\nepoch = 2')
    (tmp_path / "wrong.toml").write_text(wrong)
    done = motet("reproduce", "wrong.toml", "--out", "out")
    assert done.code == 2
    assert 'the training "fedper" of the recipe "wrong" is wrong: [method] has no key' in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["flamby-heart", "flamby-tcga", "fedfomo-table1", "knn-per-cifar10"]
)
def test_missing_files_are_named_before_the_first_run(motet, tmp_path, monkeypatch, name):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    done = motet("reproduce", name, "--out", "out")
    assert done.code == 2
    assert "none of these folders has all of them" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert ("cifar" in done.err) == (name == "knn-per-cifar10")  # Table 1 needs MNIST alone here
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["flow-poster"], "StackOverflow and Reddit are not at hand"),
        (["flamby-hart"], 'did you mean "flamby-heart"'),
        (["flamby-heart", "--scale", "year"], 'has no scale "year"'),
        (["nowhere.toml"], "cannot be read"),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(motet, arguments, said):
    done = motet("reproduce", *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_recipes_are_listed_with_data_and_costs(motet):
    listed = motet("recipes")
    assert listed.code == 0
    assert "flamby-heart" in listed.out
    assert "not available" in listed.out
    cards = json.loads(motet("recipes", "--json").out)
    assert {"name", "paper", "table", "data", "scales", "not_available"} <= set(cards[0])
    assert "margin 0.02" in motet("recipes", "flamby-heart").out


@pytest.mark.distributed
def test_a_killed_recipe_goes_on_to_the_same_numbers(process, motet, tiny, peaceful, tmp_path):
    running = process("reproduce", tiny, "--out", "killed")
    results = tmp_path / "killed" / RESULTS
    for _ in range(6000):
        if results.exists() and len(results.read_bytes().splitlines()) > 2:
            break
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert len(read_results(results).runs) < 4
    assert motet("reproduce", tiny, "--out", "killed", "--check", peaceful).code == 0
