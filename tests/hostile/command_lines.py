"""Command lines with one wrong value each, generated from the parameters of every command.

Parameters are read from the parser, which is built from the table of options: a new flag needs no
line here. Written by hand are only the command lines that work, one or two per command.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import typer
from victims import CONFIG, TABLE

from motet._cli.main import app

TABLE_FLAGS = ("--table", "t.csv", "--client-column", "site", "--target", "sick")
DIGITS = ("--limit", "60", "--partition", "iid", "--clients", "2")
SHORT = ("--rounds", "1", "--quiet")
SITE = "net/sites/a"
WORKS = {  # one or more command lines per command; an option is added, an argument replaced
    "data": (("data", *TABLE_FLAGS), ("data", "digits", *DIGITS)),
    "init": (("init", "new.toml", *TABLE_FLAGS), ("init", "new.toml", "--data", "digits", *DIGITS)),
    "run": (
        ("run", "c.toml", "--out", "out", *SHORT),
        ("run", "--method", "fedper", "--data", "digits", *DIGITS, "--out", "out", *SHORT),
    ),
    "compare": (
        ("compare", "c.toml", "--methods", "local", "--seeds", "1", "--out", "out", *SHORT),
    ),
    "resume": (("resume", "done", "--quiet"),),
    "report": (("report", "done", "-o", "page.html"),),
    "export": (("export", "done", "--client", "a", "-o", "m/a", "--no-references", "--no-onnx"),),
    "predict": (("predict", "models", "rows.csv", "-o", "out.csv"),),
    "serve": (("serve", "models", "--site", "a", "--port", "0"),),
    "methods": (("methods",),),
    "doctor": (("doctor",),),
    "recipes": (("recipes",),),
    "reproduce": (("reproduce", "flamby-heart"),),
    "deploy init": (("deploy", "init", "new", "--from", "done"),),
    "deploy trial": (("deploy", "trial", "net"),),
    "deploy status": (("deploy", "status", "net"),),
    "deploy check": (("deploy", "check", SITE),),
    "deploy statistics": (("deploy", "statistics", SITE),),
    "deploy agree": (("deploy", "agree", "net", "statistics.json"),),
    "deploy export": (("deploy", "export", SITE, "-o", "m/a"),),
    "deploy register": (("deploy", "register", "net"),),
    "deploy submit": (("deploy", "submit", "net"),),
    "deploy stop": (("deploy", "stop", "net"),),
    "deploy start": (("deploy", "start", SITE),),
    "deploy filter": (("deploy", "filter", "net"),),
    "deploy key": (("deploy", "key", SITE),),
    "deploy renew": (("deploy", "renew", "net"),),
    "deploy site add": (("deploy", "site", "add", "c", "net"),),
    "deploy site remove": (("deploy", "site", "remove", "a", "net"),),
    "deploy site rekey": (("deploy", "site", "rekey", "a", "net", "--key", "site.key.pub"),),
}
LATIN, BINARY, EMPTY, FIFO, LOOP = (
    "latin.csv",
    "binary.parquet",
    "empty.csv",
    "fifo.csv",
    "loop.csv",
)
FILES = {
    "c.toml": CONFIG.encode(),
    "t.csv": TABLE.encode(),
    "rows.csv": b"site,age,dose\na,41,0.3\nb,55,0.1\n",
    LATIN: "site,age,sick\nK\u00f6ln,1,0\nK\u00f6ln,2,1\n".encode("latin-1"),
    BINARY: bytes(range(256)) * 4,
    EMPTY: b"",
    "bom.toml": b"\xef\xbb\xbf" + CONFIG.encode(),
    "latin.toml": b'[run]\nrounds = 1\n[method]\nname = "fed\xfcper"\n',
}
NUMBERS = (
    "-1",
    "0",
    "2",
    "1.5",
    "9" * 40,
    "-" + "9" * 40,
    "1e999",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1_0",
)
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\udcff",
    "x" * 5000,
    "\U0001f600",
    "\u202egnp",
    "\x1b[31m",
    "none",
    "true",
    "auto",
    "[]",
    "{}",
    "=",
    "a=",
    "=b",
    "a=b",
    "a=b<c",
    "a.b=c",
    ",",
    "a,,b",
    "os:system",
    ":",
    "%",
    "%Q",
    "*",
    "[",
    "age",
    "sick",
)
PATHS = (
    ".",
    "..",
    "t.csv",
    "t.csv/below",
    "no/such.csv",
    LATIN,
    BINARY,
    EMPTY,
    LOOP,
    FIFO,
    "/dev/null",
    "/",
    "done",
    "n" * 300,
    "~",
    "bom.toml",
    "latin.toml",
)
VALUES = (*NUMBERS, *TEXTS, *PATHS)


class Case(NamedTuple):
    """A command line, the parameter that is tried and its value (None: a switch)."""

    command: str
    arguments: tuple[str, ...]
    parameter: Any
    value: str | None


def commands(group: Any, *above: str) -> dict[str, Any]:
    """Find every command of the parser by its full name."""
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, *above, name)
        else:
            found[" ".join((*above, name))] = command
    return found


PARSER = typer.main.get_command(app)  # making it takes longer than most calls
COMMANDS = commands(PARSER)


def cases() -> list[Case]:
    """Every parameter of every command with every value, and every pair of switches."""
    return [
        case
        for name, command in COMMANDS.items()
        for line in WORKS[name]
        for parameter in command.params
        if parameter.name != "help"
        for case in _tried(name, line, parameter)
    ]


def _tried(name: str, line: tuple[str, ...], parameter: Any) -> list[Case]:
    if parameter.param_type_name == "argument":
        return [
            Case(name, _replaced(name, line, parameter, value), parameter, value)
            for value in VALUES
        ]
    if parameter.is_flag:
        flags = (*parameter.opts, *parameter.secondary_opts)
        given = [(flag,) for flag in flags] + list(itertools.product(flags, repeat=2))
        return [Case(name, (*line, *flags), parameter, None) for flags in given]
    flag = parameter.opts[0]
    once = [Case(name, (*line, f"{flag}={value}"), parameter, value) for value in VALUES]
    twice = [Case(name, (*line, flag, "2", flag, "x"), parameter, "x")]
    return [*once, *twice, Case(name, (*line, flag), parameter, None)]


def _replaced(name: str, line: tuple[str, ...], parameter: Any, value: str) -> tuple[str, ...]:
    """Put a value in the place of an argument, behind `--`: it may begin with a dash."""
    arguments = [p for p in COMMANDS[name].params if p.param_type_name == "argument"]
    first = len(name.split())
    given = 0
    while (
        first + given < len(line)
        and given < len(arguments)
        and not line[first + given].startswith("-")
    ):
        given += 1
    place = [p.name for p in arguments].index(parameter.name)
    texts = [*line[first : first + given]]
    texts[place : place + 1] = [value]
    return (*line[:first], *line[first + given :], "--", *texts)
