"""Wrong values of flags: every one is refused by a sentence that names the flag and the value."""

import errno
import re
from pathlib import Path

import pytest
import typer

from motet._cli.main import app
from motet._core.option_table import TABLE, Toml, rows_of

ROWS = "hospital,age,ill\n" + "basel,40,no\nbasel,71,yes\nlyon,55,no\nlyon,63,yes\n" * 5
FEW = ("--data", "digits", "--limit", 60, "--partition", "iid", "--clients", 3)
ON_TABLE = ("--table", "patients.csv", "--client-column", "hospital", "--target", "ill")
SHORT = ("--rounds", 1, "--backend", "serial", "--quiet")
BASES = {
    "run": ("run", "--method", "fedprox", *FEW, *SHORT),
    "compare": ("compare", "--methods", "fedprox", "--seeds", 1, *FEW, *SHORT),
}
HUGE = "1" + "0" * 30
WRONG = ("-1", "0", "nan", "abc", HUGE)
# Words, of which a number is none either.
NAMES = (
    *("--method", "--methods", "--model", "--data", "--partition", "--backbone", "--augment"),
    *("--kind", "--missing", "--standardize", "--encoding", "--delimiter", "--decimal"),
    *("--date-format", "--reference-date", "--bad-rows", "--backend", "--store", "--weigh"),
    *("--uploads", "--choose", "--tune-kind", "--metric"),
)
PARTITIONS = {"--alpha": "dirichlet", "--classes": "pathological"}
FITTING = {  # values that look wrong and are not
    "--alpha": (HUGE,),
    "--missing": ("-1", "0", HUGE),
    "--rare": ("0", HUGE),
    "--delimiter": ("0",),
    "--skip-rows": ("0",),
    "--lr": (HUGE,),  # the run diverges, and says so
    "--seed": ("0", HUGE),
    "--serving-steps": ("0",),
    "--budget-gradients": (HUGE,),
    "--budget-seconds": (HUGE,),
}


def cases():
    for command in BASES:
        for row in rows_of(command):
            is_number = row.type in (int, float, Toml)
            if (command == "run" or "run" not in row.commands) and (is_number or row.flag in NAMES):
                values = (v for v in WRONG if v not in FITTING.get(row.flag, ()))
                for value in values if is_number else ("abc", HUGE):
                    yield pytest.param(command, row, value, id=f"{command} {row.flag} {value[:9]}")


@pytest.mark.parametrize(("command", "row", "value"), list(cases()))
def test_a_wrong_value_is_refused_by_the_name_of_its_flag(motet, tmp_path, command, row, value):
    (tmp_path / "patients.csv").write_text(ROWS)
    base = BASES[command]
    if row.panel == TABLE:
        base = ("run", "--method", "fedprox", *ON_TABLE, *SHORT)
    base = [PARTITIONS.get(row.flag, part) if part == "iid" else part for part in base]
    refused = motet(*base, f"{row.flag}={value}", "--out", "a")
    said = " ".join(refused.err.split())
    assert refused.code == 2, said
    assert refused.out == ""
    assert "Traceback" not in said
    assert re.search(rf"{row.flag}\b", said), said
    assert value in said.replace(",", ""), said
    assert not (tmp_path / "a").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a run on a table, its models and its deployment."""
    from motet._cli.main import call

    folder = tmp_path_factory.mktemp("made")
    (folder / "patients.csv").write_text(ROWS)
    table = ("--table", str(folder / "patients.csv"), *ON_TABLE[2:])
    run, models, net = (str(folder / name) for name in ("run", "models", "net"))
    export = ("export", run, "--all", "-o", models, "--no-onnx", "--no-references", "--quiet")
    assert call(["run", "--method", "fedavg", *table, *map(str, SHORT), "--out", run]) == 0
    assert call([*export]) == 0
    assert call(["deploy", "init", net, "--from", run, "--quiet"]) == 0
    return folder


PORTS = ("-1", "0", "nan", "abc", HUGE)
SERVED = {
    ("serve", "models", "--site=basel"): {
        "--port": ("-1", "nan", "abc", HUGE),
        "--max-bytes": ("-1", "0", "nan", "abc"),
        "--max-rows": ("-1", "0", "nan", "abc"),
    },
    ("deploy", "init", "new", "--from=run"): dict.fromkeys(
        ("--port", "--superlink-port", "--site-port"), PORTS
    ),
    ("deploy", "submit", "net"): dict.fromkeys(("--min-clients", "--deadline"), PORTS),
    ("deploy", "trial", "net"): dict.fromkeys(("--sites", "--rounds"), PORTS),
    ("deploy", "filter", "net"): {
        **dict.fromkeys(("--port", "--superlink-port"), PORTS),
        "--per-address": ("-1", "0", "nan", "abc"),
    },
}


@pytest.mark.parametrize("base", SERVED, ids=" ".join)
def test_a_wrong_number_for_a_server_is_refused_by_the_name_of_its_flag(
    motet, made, monkeypatch, base
):
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    for flag, values in SERVED[base].items():
        for value in values:
            refused = motet(*base, f"{flag}={value}")
            said = " ".join(refused.err.split())
            assert refused.code == 2, said
            assert refused.out == ""
            assert "Traceback" not in said
            assert re.search(rf"{flag}\b", said), said
            assert value in said or f"{float(value):g}" in said, said
    assert sorted(made.rglob("*")) == before


def test_every_number_of_a_server_is_tried():
    numbers = {
        (path, option)
        for path in (("serve",), *(base[:2] for base in SERVED if base[0] == "deploy"))
        for parameter in _command(path).params
        for option in parameter.opts
        if parameter.type.name in ("integer", "float") and not parameter.hidden
    }
    tried = {
        (base[: 1 if base[0] == "serve" else 2], flag) for base in SERVED for flag in SERVED[base]
    }
    assert numbers == tried


def _command(path):
    found = typer.main.get_command(app)
    for name in path:
        found = found.commands[name]
    return found


@pytest.mark.parametrize("out", ["notes.txt", "notes.txt/below"])
@pytest.mark.parametrize("command", ["run --method fedavg", "compare", "reproduce flamby-heart"])
def test_an_output_directory_that_is_a_file_is_refused_and_kept(motet, tmp_path, command, out):
    (tmp_path / "notes.txt").write_text("mine")
    refused = motet(*command.split(), "--out", out)
    assert refused.code == 2
    assert re.search(r"notes\.txt(/below)? is a file", " ".join(refused.err.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("run", "x", "--method"),
            "--method expects a value, and nothing follows it; see `motet run",
        ),
        (("deploy", "submit", "net", "--deadline"), "--deadline expects a value"),
        (("deploy", "site", "add", "a", "--key"), "see `motet deploy site add --help`"),
        (("run", "a.toml"), "data.seed must be 0 or more; got -3"),
        (("data", "digits", "--set", "data.seed=-3"), "--set data.seed must be 0 or more; got -3"),
        (("compare", "--set", "compare.seeds=[1, -3]"), "--set compare.seeds must be 0 or more"),
    ],
)
def test_values_that_are_missing_or_negative_are_refused(motet, tmp_path, arguments, sentence):
    (tmp_path / "a.toml").write_text('[method]\nname = "fedavg"\n[data]\nseed = -3\n')
    refused = motet(*arguments)
    assert refused.code == 2
    assert sentence in " ".join(refused.err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--lr", "-1"), "--lr must be 0 or more; got -1.0"),
        (("--set", "method.optimizer.lr=-1"), "--set method.optimizer.lr must be 0 or more"),
        (("--set", "run.workers=0"), "--set run.workers must be 1 or more; got 0"),
        (("study.toml",), "method.epochs must be 0 or more; got -2"),
        (("study.toml", "--epochs", -3), "--epochs must be 0 or more; got -3"),
    ],
)
def test_an_error_names_what_was_written(motet, tmp_path, flags, sentence):
    (tmp_path / "study.toml").write_text('[method]\nname = "fedavg"\nepochs = -2\n')
    base = () if "study.toml" in flags else ("--method", "fedavg")
    refused = motet("run", *base, *flags)
    assert refused.code == 2
    assert f"error: {sentence}" in refused.err


@pytest.mark.parametrize(
    ("flag", "wrong"),
    [("--client-column", "hospitl"), ("--target", "il"), ("--drop", "agee"), ("--split", "spilt")],
)
def test_a_column_that_is_not_there_is_blamed_on_its_flag(motet, tmp_path, flag, wrong):
    (tmp_path / "patients.csv").write_text(ROWS)
    given = {"--client-column": "hospital", "--target": "ill", flag: wrong}
    flags = [part for pair in given.items() for part in pair]
    refused = motet("data", "--table", "patients.csv", *flags)
    assert refused.code == 2
    assert f'error: {flag}: the table has no column "{wrong}"' in refused.err


def commands(command, path=()):
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_has_room_for_what_options_mean(motet, path):
    shown = motet(*path, "--help").out
    assert max(map(len, shown.splitlines())) <= 80
    for panel in shown.split("╭─ ")[1:]:
        lines = [line for line in panel.splitlines() if line.startswith("│ ")]
        # Lines that go on begin where the descriptions do.
        starts = [re.match(r"│ {8,}", line) for line in lines]
        room = [80 - len("│") - found.end() for found in starts if found]
        assert min(room, default=80) >= 40, panel


@pytest.mark.parametrize(
    "arguments",
    [
        "run study.tml",
        "run --method local --table patient.csv --client-column hospital --target ill",
        "compare --table sites/patient.csv --client-column hospital --target ill",
        "data --table Patients.CSV --client-column hospital --target ill",
        "init new.toml --table patient.csv --client-column hospital --target ill",
        "data --folder site",
        "run --method local --init weight.safetensors",
        "resume runs/frist",
        "report runs/frist",
        "report rnus/first",
        "export runs/frist --all -o models",
        "predict weight.safetensors patients.csv",
        "serve weight.safetensors",
        "deploy init net2 --from runs/frist",
        "deploy status nett",
        "deploy start nett",
    ],
)
def test_a_path_that_is_not_there_is_answered_with_the_nearest_name(motet, tmp_path, arguments):
    for file in ("study.toml", "patients.csv", "sites/patients.csv", "weights.safetensors"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(ROWS)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "net").mkdir()
    refused = motet(*arguments.split())
    said = " ".join(refused.err.split())
    assert refused.code == 2, said
    assert re.search(r"Did you mean (\S+/)?(study|patients|sites|weights|first|net)", said)


def test_what_newcomers_write_is_answered_with_what_to_write(motet, tmp_path):
    (tmp_path / "my patients.csv").write_text(ROWS)
    (tmp_path / "a.toml").write_text("[data]\nname = digits\n")
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.toml").write_text("")
    for arguments, answer in (
        (("data", "--table", "my"), "Did you mean 'my patients.csv'? A path with spaces needs"),
        (("data", "my patients.csv"), "use `--table 'my patients.csv'`"),
        (("run", "a.toml"), 'which is "name = digits"; text needs quotes: name = "digits"'),
        (("run", "-o", "x"), "there is no option -o. Did you mean --ordinal or --out"),
        (("compare", "--methods", "fedper", "a", "ditto"), "Separate names by commas"),
        (("report", "runs"), "neither a run nor a comparison itself; name runs/one"),
        (("report", "a.toml"), "a.toml is a file; expected the directory of a run"),
    ):
        more = ("--client-column", "hospital", "--target", "ill") if "--table" in arguments else ()
        refused = motet(*arguments, *more)
        assert refused.code == 2
        assert answer in " ".join(refused.err.split())


def test_a_full_disk_is_called_one(motet, monkeypatch):
    def write(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    failed = motet("init", "a.toml", "--data", "digits")
    assert failed.code == 1
    assert failed.err == "error: the disk is full. Free some space, or write to another disk.\n"
