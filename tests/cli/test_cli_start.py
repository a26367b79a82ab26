"""Before anything runs: the tour, help, and how the command line fails."""

import re
import subprocess
import sys

import pytest

COMMANDS = ("run", "compare", "methods", "data", "resume")


def test_the_tour_fits_one_screen_and_shows_three_commands(motet):
    shown = motet()
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80
    first = shown.out.split("And then:")[0]
    assert len(re.findall(r"^  motet ", first, re.MULTILINE)) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_common_options(motet, command):
    shown = motet(command, "--help")
    assert shown.code == 0
    for option in (
        ("--json", "--quiet") if command == "methods" else ("--json", "--quiet", "--seed")
    ):
        assert option in shown.out
    assert max(len(line) for line in shown.out.splitlines()) <= 80


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], []], ids=" ".join)
def test_help_loads_no_large_library_and_few_modules(arguments):
    script = (
        "import sys\n"
        "from motet._cli.main import call\n"
        "code = call(sys.argv[1:])\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'pyarrow', 'jinja2'} & set(sys.modules)\n"
        "print(sum(name.startswith('motet.') for name in sys.modules), file=sys.stderr)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stderr) < 60  # of about 500: what a command needs is loaded when it runs


def test_the_version_is_the_packages(motet):
    from motet import __version__

    assert motet("--version").out == f"motet {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["foo"], "No such command 'foo'; see `motet --help`."),
        (["run", "--roundz", "3"], "there is no option --roundz. Did you mean --rounds?"),
        (["run", "--workers", "2"], "use `--set run.workers=VALUE`"),
        (["run", "--client", "site"], "use --client-column"),
        (["run", "--mu", "0.1"], "`--set method.mu=VALUE`"),
        (["compare", "--budget", "9"], "Did you mean --budget-gradients or --budget-bytes"),
        (["run", "fedper"], "to name a method, use `--method fedper`"),
        (["run", "patients.csv"], "there is no config file at patients.csv"),
        (["data", "patients.csv"], "use `--table patients.csv`"),
        (["compare", "--seeds", "-1"], "--seeds must be 1 or more; got -1."),
        (["run", "--rounds", "many"], "--rounds"),
        (["resume"], "DIR"),
    ],
)
def test_wrong_usage_is_one_sentence_and_code_2(motet, arguments, sentence):
    failed = motet(*arguments)
    assert failed.code == 2
    assert failed.out == ""
    assert failed.err.startswith("error: ")
    assert sentence in failed.err
    assert failed.err.count("\n") == 1


def test_a_table_given_as_a_config_is_told_apart_from_bad_toml(motet, tmp_path):
    table, config = tmp_path / "patients.csv", tmp_path / "study.toml"
    table.write_text("age,site\n3,a\n")
    config.write_text("rounds = ")
    assert f"use `--table {table}`" in motet("run", str(table)).err
    assert "study.toml is not valid TOML" in motet("run", str(config)).err
    assert f"Did you mean {config}?" in motet("run", str(tmp_path / "studi.toml")).err


def test_the_unexpected_is_a_sentence_and_code_1_with_a_way_to_the_traceback(motet, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("the sky fell\nin many lines")

    monkeypatch.setattr("motet.methods._catalog.method_names", broken)
    failed = motet("methods")
    assert failed.code == 1
    assert "unexpected ZeroDivisionError: the sky fell. Set MOTET_TRACEBACK=1" in failed.err
    with pytest.raises(ZeroDivisionError):
        motet("--traceback", "methods")
    assert motet("methods").code == 1  # asked for once, shown once
    monkeypatch.setenv("MOTET_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        motet("methods")
