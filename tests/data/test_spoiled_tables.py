"""Spoiled versions of a table: each opens, or says in one sentence how to open it."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import pytest

from motet._cli.main import call

HEADER = ["hospital", "age", "chol", "sex", "outcome"]
ROWS = [
    [
        ("Zürich", "Bern", "Genf")[n % 3],
        str(40 + n % 31),
        f"{180 + 7 * n % 90}.5",
        "fm"[n // 2 % 2],
        ("ill", "well")[n * n // 3 % 2],
    ]
    for n in range(90)
]
USUAL = ["--client-column", "hospital", "--target", "outcome", "--categorical", "sex"]
MOST_STEPS = 4


def text(rows=ROWS, header=HEADER, delimiter=","):
    return "\n".join(delimiter.join(row) for row in ([header] if header else []) + rows) + "\n"


def put(row, column, value, rows=ROWS):
    """Replace one cell."""
    place = HEADER.index(column)
    return [
        [*cells[:place], value, *cells[place + 1 :]] if number == row else cells
        for number, cells in enumerate(rows)
    ]


def with_column(name, value):
    return text([[*row, value(n)] for n, row in enumerate(ROWS)], [*HEADER, name])


def comma(rows=ROWS):
    return [[row[0], row[1], row[2].replace(".", ","), *row[3:]] for row in rows]


def excel(**sheets):
    def write(path):
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        book.save(path)

    return write


EXCEL_ROWS = [HEADER, *([r[0], int(r[1]), float(r[2]), r[3], r[4]] for r in ROWS)]

# name: (file name, contents, further flags that the user gave)
SPOILED = {
    "as it should be": ("t.csv", text(), []),
    "latin-1": ("t.csv", text().encode("latin-1"), []),
    "utf-16 with a mark": ("t.csv", text().encode("utf-16"), []),
    "utf-8 with a mark": ("t.csv", text().encode("utf-8-sig"), []),
    "semicolons and decimal commas": ("t.csv", text(comma(), delimiter=";"), []),
    "tabs in a csv": ("t.csv", text(delimiter="\t"), []),
    "bars in a txt": ("t.txt", text(delimiter="|"), []),
    "gzip": ("t.csv.gz", gzip.compress(text().encode()), []),
    "gzip without the ending": ("t.csv", gzip.compress(text().encode()), []),
    "question marks": ("t.csv", text(put(3, "chol", "?", put(9, "age", "?"))), []),
    "n/a with spaces": ("t.csv", text(put(3, "chol", " n/a ")), []),
    "a typing error in a number": ("t.csv", text(put(3, "chol", "24O")), []),
    "a code for missing": ("t.csv", text(put(4, "chol", "unknown", put(8, "chol", "lost"))), []),
    "an infinity": ("t.csv", text(put(4, "chol", "inf")), []),
    "a missing target": ("t.csv", text(put(5, "outcome", "")), []),
    "a missing client": ("t.csv", text(put(5, "hospital", "")), []),
    "clients in other spellings": ("t.csv", text(put(5, "hospital", " BERN ")), []),
    "targets in other spellings": ("t.csv", text(put(5, "outcome", "Ill")), []),
    "a date column": ("t.csv", with_column("seen", lambda n: f"2020-0{1 + n % 9}-11"), []),
    "a date with points": ("t.csv", with_column("seen", lambda n: f"{10 + n % 19}.03.2020"), []),
    "a date that is ambiguous": (
        "t.csv",
        with_column("seen", lambda n: f"0{1 + n % 9}/0{1 + n % 7}/2020"),
        ["--dates", "seen"],
    ),
    "a text column": ("t.csv", with_column("ward", lambda n: "AB"[n % 2]), []),
    "an empty column": ("t.csv", with_column("notes", lambda _: ""), []),
    "a row with too many cells": ("t.csv", text([*ROWS[:7], [*ROWS[7], "x"], *ROWS[8:]]), []),
    "lines before the header": ("t.csv", "Export of 2020\nall wards\n" + text(), []),
    "a title as wide as the table": ("t.csv", "Export of 2020,,,,\n\nall wards,,,,\n" + text(), []),
    "Excel's first line": ("t.csv", "sep=;\n" + text(delimiter=";"), []),
    "spaces around names": ("t.csv", text(header=[f" {name} " for name in HEADER]), []),
    "cells with line breaks": ("t.csv", text(put(2, "hospital", '"Zürich"')), []),
    "a decimal comma in quotes": (
        "t.csv",
        text([[*r[:2], f'"{r[2].replace(".", ",")}"', *r[3:]] for r in ROWS]),
        [],
    ),
    "commas among points": ("t.tsv", text(put(3, "chol", "200,5"), delimiter="\t"), []),
    "thousands": ("t.csv", with_column("cost", lambda n: f'"{n + 1},200.50"'), []),
    "an Excel file": ("t.xlsx", excel(first=EXCEL_ROWS), []),
    "an Excel file called csv": ("t.csv", excel(first=EXCEL_ROWS), []),
    "the wrong delimiter": ("t.csv", text(delimiter=";"), ["--delimiter", ","]),
    "the wrong encoding": ("t.csv", text().encode("cp1252"), ["--encoding", "utf-8"]),
    "two columns of one name": (
        "t.csv",
        text(header=["hospital", "age", "age", "sex", "outcome"]),
        [],
    ),
    "a label that was forgotten": (
        "t.csv",
        text(put(5, "outcome", "dead")),
        ["--label", "ill=ill", "--label", "well=well"],
    ),
    "an order with a hole": (
        "t.csv",
        with_column("stage", lambda n: ("I", "II", "III")[n % 3]),
        ["--ordinal", "stage=I<II"],
    ),
    "delimiters after the last cell": ("t.csv", text([[*r, "", ""] for r in ROWS]), []),
    "three columns of one name": (
        "t.csv",
        text(header=["hospital", "x", "x", "sex", "outcome"]),
        [],
    ),
    "answers in many spellings": (
        "t.csv",
        with_column("smoker", lambda n: ("yes", "No", "TRUE", "false", "1", "0", "y", "N")[n % 8]),
        [],
    ),
    "a date column with an equals sign": (
        "t.csv",
        with_column("seen=age", lambda n: f"2020-0{1 + n % 9}-11"),
        [],
    ),
    "a column with a comma": ("t.csv", with_column('"ward, bed"', lambda n: "AB"[n % 2]), []),
    "a column with an invisible mark": ("t.csv", with_column("❤️", lambda n: "AB"[n % 2]), []),
    "a column with quotes": ("t.csv", with_column("patient's \"", lambda n: "AB"[n % 2]), []),
    "short American dates": (
        "t.csv",
        with_column("seen", lambda n: f"{1 + n % 9}/{13 + n % 9}/20"),
        [],
    ),
    "ids beyond doubles": ("t.csv", with_column("id", lambda n: str(10**18 + n)), []),
    "zero bytes": ("t.csv", text().replace("Bern", "Be\0rn"), []),
    "single quotes": (
        "t.csv",
        text([[f"'{c}'" for c in row] for row in ROWS], [f"'{name}'" for name in HEADER]),
        [],
    ),
    "negative numbers of accountants": (
        "t.csv",
        with_column("balance", lambda n: (f"({n}.5)", f"{n}.5-", f"{n}.5")[n % 3]),
        [],
    ),
    "numbers that a spreadsheet keeps as text": (
        "t.csv",
        with_column("code", lambda n: (f'"=""{n}"""', f"'{n}")[n % 2]),
        [],
    ),
    "too many texts to name": (
        "t.csv",
        with_column("dose", lambda n: f"{n}.5" if n % 2 else f"see note {n}"),
        [],
    ),
    "no header": (
        "t.csv",
        text([[str(n % 3), str(40 + n % 9), str(n % 7), str(n // 3 % 2)] for n in range(90)], None),
        ["--client-column", "0", "--target", "3", "--drop", "1"],
    ),
    "a sheet with a title and a margin": (
        "t.xlsx",
        excel(first=[["Export of the ward"], [], *([None, *row] for row in EXCEL_ROWS)]),
        [],
    ),
    "a sheet after others": (
        "t.xlsx",
        excel(readme=[["Two sheets follow."]], nothing=[], data=EXCEL_ROWS),
        [],
    ),
    "a rare limit that is too high": ("t.csv", text(), ["--rare", "80"]),
}


def write(folder, name, contents):
    path = folder / name
    if callable(contents):
        contents(path if path.suffix == ".xlsx" else folder / "t.xlsx")
        if path.suffix != ".xlsx":
            (folder / "t.xlsx").rename(path)
    else:
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return path


def follow(sentence: str, path: Path, flags: list[str]) -> tuple[Path, list[str]]:
    """Do what a message says, literally: the first thing that it names."""
    flag = re.search(r"`(--.+?)` \(", sentence)
    if flag is not None:
        return path, [*flags, *shlex.split(flag.group(1))]
    rename = re.search(r"Rename it to (\S+)\.", sentence)
    if rename is not None:
        return path.rename(path.with_name(rename.group(1))), flags
    if "Leave the encoding out" in sentence:
        place = flags.index("--encoding")
        return path, flags[:place] + flags[place + 2 :]
    raise AssertionError(f"the message names nothing to do: {sentence}")


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_table_opens_or_says_how(name, tmp_path, capsys):
    filename, contents, more = SPOILED[name]
    usual = [] if "--target" in more else USUAL
    path, flags = write(tmp_path, filename, contents), [*usual, *more]
    for _ in range(MOST_STEPS):
        code = call(["data", "--table", str(path), *flags, "--quiet"])
        said = capsys.readouterr()
        if code == 0:
            assert "3 clients" in said.out, said.out
            return
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, said.err
        assert "Traceback" not in said.err
        assert "unexpected" not in errors[0]
        path, flags = follow(errors[0], path, flags)
    pytest.fail(f"still refused after {MOST_STEPS} steps: {errors[0]} ({flags})")
