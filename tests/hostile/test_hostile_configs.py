"""Configs that are broken, absurd or malicious: they run, or get a sentence, and touch nothing."""

import contextlib
import tomllib

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import spoilt_bytes, spoilt_tree
from victims import CONFIG, TABLE, assert_civil, motet, run

from motet import models
from motet.config import _limits as limits
from motet.config._sections import ModelChoice
from motet.errors import RequestError

TABLES = tomllib.loads(CONFIG)


def changed(key, value):
    """The config with another value at a dotted key."""
    tables = tomllib.loads(CONFIG)
    *path, last = key.split(".")
    below = tables
    for step in path:
        below = below.setdefault(step, {})
    below[last] = value
    return tomli_w.dumps(tables)


def test_the_config_that_is_spoilt_is_a_good_one():
    outcome = run()
    assert (outcome.code, outcome.written) == (0, frozenset())


@settings(max_examples=40)
@given(spoilt_bytes(CONFIG.encode()))
def test_a_config_with_spoilt_bytes_runs_or_gets_a_sentence(spoilt):
    assert_civil(run(spoilt))


@settings(max_examples=40)
@given(spoilt_tree(TABLES))
def test_a_config_with_values_of_any_kind_runs_or_gets_a_sentence(spoilt):
    assert_civil(run(tomli_w.dumps(spoilt)))


@settings(max_examples=10)
@given(spoilt_tree({**TABLES, "compare": {"methods": ["local", "fedper"], "seeds": 1}}))
def test_a_comparison_with_values_of_any_kind_gets_a_sentence_or_a_result(spoilt):
    files = {"c.toml": tomli_w.dumps(spoilt), "t.csv": TABLE}
    assert_civil(motet(files, "compare", "c.toml", "--out", "out", "--quiet"))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("run.rounds", 10**18, "run.rounds is at most 1,000,000,000"),
        ("run.workers", 10**12, "run.workers is at most 1,000;"),
        ("method.epochs", 10**18, "method.epochs is at most 100,000"),
        ("method.adapt_epochs", 10**9, "method.adapt_epochs is at most 100,000"),
        ("method.batch_size", 10**15, "method.batch_size is at most"),
        ("model.hidden", [10**9], "model.hidden[0] is at most 10,000,000"),
        ("model.hidden", [10**5] * 9, "GB of parameters, and this machine"),
        ("model.hidden", [-5], "mlp cannot be built with these options"),
        ("data.val", float("nan"), "data.val expects a number; got nan"),
        ("method.optimizer.lr", 10**400, "is too large"),
        ("model.name", "os:system", '"os:system" cannot be called for a model'),
        ("model.name", "builtins:dict", '"builtins:dict" makes a dict'),
    ],
)
def test_what_nobody_can_mean_is_refused_by_name(key, value, sentence):
    outcome = run(changed(key, value))
    assert_civil(outcome)
    assert outcome.code == 2
    assert sentence in outcome.err


def test_clients_by_the_trillion_are_refused():
    arguments = ("run", "--method", "local", "--data", "digits", "--clients", 10**12)
    outcome = motet({}, *arguments, "--out", "out")
    assert outcome.code == 2
    assert "--clients is at most" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000,
        "x = " + "{a = " * 10_000,
        "a." * 50_000 + "b = 1",
        "x = " + "9" * 10_000,
        "[run]\nseed = 1\n" * 1000,
        "x = '" + "y" * 2_000_000 + "'",
        "\x00" * 100,
        "x = '''",
    ],
    ids=["lists", "tables", "dots", "digits", "repeated", "long", "nul", "open"],
)
def test_text_that_makes_parsers_sweat_is_a_sentence(text):
    outcome = run(text)
    assert_civil(outcome)
    assert outcome.code == 2


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (b"\xef\xbb\xbf" + CONFIG.encode(), None),
        (CONFIG.replace("\n", "\r\n").encode(), None),
        (CONFIG.encode() + b"# without a line end", None),
        (CONFIG.encode("utf-16"), "is not UTF-8. Save it as UTF-8."),
        (CONFIG.encode() + b"rounds = 2\n", "is not valid TOML: Cannot overwrite a value"),
        (CONFIG.encode() + b"[run]\n", "is not valid TOML: Cannot declare ('run',) twice"),
        (CONFIG.encode() + b"[runs]\nrounds = 2\n", "no section [runs]; did you mean"),
        (CONFIG.encode() + b"round = 2\n", '[run] has no key "round"; did you mean "rounds"'),
        (changed("data.table", "a\0b").encode(), "data.table expects text"),
        (changed("data.limit", 3).encode(), "data.limit is for a data set by name (--data)"),
        (changed("run.modules", "a\0b").encode(), "run.modules expects text"),
    ],
)
def test_a_config_is_read_as_editors_write_it_and_faults_are_named(contents, sentence):
    outcome = run(contents)
    assert_civil(outcome)
    assert outcome.code == (0 if sentence is None else 2), outcome.err
    assert sentence is None or sentence in outcome.err


@pytest.mark.parametrize("path", [".", "/dev/zero", "no/such.toml"])
def test_a_config_that_is_no_file_gets_a_sentence(path):
    outcome = motet({}, "run", path, "--out", "out")
    assert_civil(outcome)
    assert outcome.code == 2
    assert path in outcome.err


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000])
def test_so_is_an_assignment_on_the_command_line(text):
    arguments = ("run", "c.toml", "--set", f"method.epochs={text}", "--out", "out")
    outcome = motet({"c.toml": CONFIG, "t.csv": TABLE}, *arguments)
    assert_civil(outcome)
    assert outcome.code == 2


@settings(max_examples=60)
@given(st.sampled_from(models.names()), st.data())
def test_networks_with_any_options_are_built_or_refused(name, data):
    shape = {"char-lstm": (5,), "word-lstm": (5,), "transformer": (5,), "sensor-cnn": (9, 128)}
    options = {
        key: data.draw(st.sampled_from((-1, 0, 3, 10**5, -0.5, 1.5, float("nan"))))
        for key in ("hidden", "width", "dropout", "embedding", "heads")
        if data.draw(st.booleans())
    }
    with contextlib.suppress(RequestError):  # anything else would be a traceback
        limits.check_network(
            name,
            lambda: models.build(name, shape=shape.get(name, (3, 32, 32)), classes=10, **options),
        )


@pytest.mark.parametrize("name", models.names())
def test_every_network_can_be_measured_before_it_is_built(name):
    shape = {"char-lstm": (5,), "word-lstm": (5,), "transformer": (5,), "sensor-cnn": (9, 128)}
    choice = ModelChoice(name=name, loss="cross_entropy")
    assert choice.task_for(shape.get(name, (3, 32, 32)), 10).names


def test_seeds_may_be_any_number_and_counts_may_not():
    assert run(changed("run.seed", 10**30)).code == 0
    with pytest.raises(RequestError, match=r"compare.seeds is at most 1,000;"):
        limits.check_count(10**6, "compare.seeds")
