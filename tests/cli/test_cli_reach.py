"""Settings of the papers from the command line: subsets, augmentation, shifted targets, weights."""

import tomllib

import pytest

import motet as library
from motet._engine.records import read_scores

FEW = ("--data", "digits", "--limit", 120, "--partition", "iid", "--clients", 3)
SHORT = ("--rounds", 1, "--backend", "serial", "--quiet")


def scores(directory):
    rows = read_scores(directory / "clients.parquet")
    return [(row.client, row.value, row.loss) for row in rows if row.split == "test"]


def config(directory):
    return tomllib.loads((directory / "config.toml").read_text())


def test_flags_reach_every_key_and_the_run_is_that_of_python(motet, tmp_path):
    flags = ("--image-size", 10, "--augment", "flip", "--augment", "crop", "--retarget")
    more = (
        "--serving-steps",
        2,
        "--set",
        "data.classes=[3, 5, 8]",
        "--set",
        "method.adapt_steps=9",
    )
    done = motet(
        "run", "--method", "fedavg-ft", *FEW, *flags, *more, *SHORT, "--out", "a", "--json"
    )
    assert done.code == 0, done.err
    written = config(tmp_path / "a")
    assert written["data"]["limit"] == 120
    assert written["data"]["size"] == 10
    assert written["data"]["classes"] == [3, 5, 8]
    assert written["data"]["augment"] == ["flip", "crop"]
    assert written["data"]["retarget"] is True
    assert written["run"]["serving_steps"] == 2
    data = library.data.load(
        "digits", library.data.IID(clients=3), limit=120, classes=[3, 5, 8], size=10
    )
    data = data.retarget(seed=0).augmented("flip", "crop")
    task = library.Task(lambda: library.models.build("mlp", shape=data.shape, classes=3))
    run = library.run(
        library.FedAvgFT(adapt_steps=9), task, data, rounds=1, backend="serial", serving_steps=2
    )
    assert scores(tmp_path / "a") == [(r.client, r.value, r.loss) for r in run.evaluate().rows]
    again = motet("run", "a/config.toml", "--quiet", "--out", "b")
    assert again.code == 0
    assert scores(tmp_path / "b") == scores(tmp_path / "a")


def test_a_second_method_starts_from_the_first_run(motet, tmp_path):
    assert motet("run", "--method", "fedavg", *FEW, *SHORT, "--out", "first").code == 0
    chained = motet("run", "--method", "fedalt", *FEW, *SHORT, "--init", "first", "--out", "second")
    assert chained.code == 0, chained.err
    written = config(tmp_path / "second")["model"]
    assert written["init"] == str(tmp_path / "first")
    assert len(written["init_sha256"]) == 64
    compared = ("compare", "--methods", "fedper", "--seeds", 1, *FEW, *SHORT)
    assert motet(*compared, "--init", "first", "--out", "table").code == 0
    assert config(tmp_path / "table")["model"]["init_sha256"] == written["init_sha256"]


def test_latent_groups_by_a_function_and_by_a_trained_network(motet, tmp_path):
    groups = ("--partition", "latent", "--clients", 4, "--set", "data.partition.groups=2")
    data = ("data", "--set", "data.name=digits", "--limit", 200, *groups, "--json")
    for embed in ("numpy:sqrt", "{kind = 'trained', network = 'mlp', accuracy = 0.2}", "mlp"):
        found = motet(*data, "--set", f"data.partition.embed={embed}")
        shown = found.code == 0 or "reached an accuracy" in found.err
        assert shown, found.err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--augment", "spin"), 'no augmentation is called "spin"'),
        (("--image-size", 0), "--image-size must be a whole number of at least 1, got 0"),
        (("--init", "nowhere"), "there is no run, checkpoint or .safetensors file at"),
        (("--serving-steps", -1), "--serving-steps must be 0 or more; got -1"),
        (("--set", "data.retarget={a = 'b'}"), 'unknown client "a"'),
        (("--set", "method.schedule={kind='multi-step', milestones=[3, 2]}"), "increasing order"),
        (("--set", "method.personal=['adapters']"), '"MLP" has no adapters'),
        (
            (
                "--set",
                "data.partition.name=latent",
                "--set",
                "data.partition.clients=2",
                "--set",
                "data.partition.groups=2",
                "--set",
                "data.partition.embed=vgg-1",
            ),
            "no network is called",
        ),
        (
            (
                "--set",
                "data.partition.name=latent",
                "--set",
                "data.partition.clients=2",
                "--set",
                "data.partition.groups=2",
                "--set",
                "data.partition.embed=os:nothing",
            ),
            "cannot be import",
        ),
    ],
)
def test_wrong_values_are_refused_in_one_sentence_before_round_1(motet, tmp_path, flags, sentence):
    refused = motet("run", "--method", "fedper", *FEW, *SHORT, *flags, "--out", "a")
    assert refused.code == 2
    assert sentence in " ".join(refused.err.split())
    assert "Traceback" not in refused.err
    assert not (tmp_path / "a").exists()
