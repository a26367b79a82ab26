"""Tables as people write them: whatever the style, they read as the plain table does."""

from __future__ import annotations

import re
import shlex
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet._cli.main import call
from motet.data import from_table
from motet.errors import DataError

ROWS = 36
SITES = ("Zürich", "Bern", "Genf")
HEADER = ("hospital", "age", "cost", "outcome")
GAPS = ("'", " ", "\u00a0", "\u202f", "\N{RIGHT SINGLE QUOTATION MARK}")
UNITS = ("", "%", " %", " kg", "mg/dl", " °C", " Jahre")


def costs(draw):
    return [1000 + 137 * n + draw for n in range(ROWS)]


def grouped(number, gap, point):
    whole, _, rest = f"{number:.1f}".partition(".")
    groups = re.sub(r"(?<=\d)(?=(\d{3})+$)", lambda _: gap, whole)
    return f"{groups}{point}{rest}"


def table(cells, delimiter=",", header=HEADER):
    lines = [delimiter.join(header)]
    for n, cell in enumerate(cells):
        row = (SITES[n % 3], str(40 + n % 31), cell, ("ill", "well")[n * n // 3 % 2])
        lines.append(delimiter.join(row))
    return "\n".join(lines) + "\n"


def opened(path, text, encoding="utf-8", **options):
    path.write_bytes(text.encode(encoding))
    asked = {"client": "hospital", "target": "outcome", **options}
    return from_table(path, **asked)


def inputs(data):
    return np.asarray(data.x.take(np.arange(ROWS)))


@given(
    draw=st.integers(0, 400),
    gap=st.sampled_from(("", *GAPS)),
    point=st.sampled_from(".,"),
    unit=st.sampled_from(UNITS),
    bare=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_numbers_read_the_same_however_they_are_written(
    draw, gap, point, unit, bare, tmp_path_factory
):
    path = tmp_path_factory.mktemp("styles") / "t.csv"
    numbers = costs(draw / 10)
    plain = opened(path, table([f"{n:.1f}" for n in numbers]))
    # Some cells may lack the unit, and be written plainly.
    cells = [
        f"{n:.1f}".replace(".", point)
        if bare and i % (bare + 3) == 0
        else f"{grouped(n, gap, point)}{unit}"
        for i, n in enumerate(numbers)
    ]
    styled = opened(path, table(cells, ";"))
    assert inputs(styled).tolist() == inputs(plain).tolist()
    (column,) = [c for c in styled.schema.columns if c.name == "cost"]
    assert (column.unit or "") == unit.strip()
    # A new row, written in the same style, is read in the same way; so is a plain one.
    row = {"age": ["50"], "cost": [cells[1]]}
    assert styled.schema.encode(row).x.tolist() == [[50.0, np.float32(round(numbers[1], 1))]]


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([f"{n} kg" if n % 2 else f"{2 * n} lb" for n in range(ROWS)], "in different units"),
        (["24O" if n == 3 else str(n) for n in range(ROWS)], 'row 5 .* has "24O".*--na 24O'),
        (["1,234" if n == 3 else f"{n},5" for n in range(ROWS)], '"0,5"|decimal comma'),
    ],
)
def test_numbers_that_may_mean_two_things_are_not_guessed(cells, sentence, tmp_path):
    text = table(cells, "\t").replace("Bern\t41\t", "Bern\t41.5\t")  # points are decimal points
    with pytest.raises(DataError, match=sentence):
        opened(tmp_path / "t.tsv", text)


def test_sites_with_different_units_are_refused(tmp_path):
    for site, unit in (("north", "kg"), ("south", "lb")):
        rows = "".join(f"{50 + n} {unit},{n % 2}\n" for n in range(20))
        (tmp_path / f"{site}.csv").write_text(f"weight,ill\n{rows}")
    with pytest.raises(
        DataError, match=r'"weight" is in kg at "north" and in lb at "south".*--drop'
    ):
        from_table(str(tmp_path / "*.csv"), target="ill")


@pytest.mark.parametrize("mark", ["\u200b", "\ufeff", "\u00ad", "\u2060"])
def test_invisible_marks_make_no_new_sites(mark, tmp_path):
    text = table([f"{n}.5" for n in range(ROWS)]).replace("\nBern", f"\n{mark}Bern", 4)
    assert opened(tmp_path / "t.csv", text).clients == tuple(sorted(SITES))


PLAIN = table([f"{180 + 7 * n % 90}.5" for n in range(ROWS)])
LINES = PLAIN.splitlines()
ENDS = ("\r\n", "\n", "\r")


def joined(lines):
    return "\n".join(lines) + "\n"


def dates(write):
    return joined([f"{LINES[0]},seen", *(f"{row},{write(n)}" for n, row in enumerate(LINES[1:]))])


SPOILED = {
    "utf-16 without a mark": PLAIN.encode("utf-16-le"),
    "utf-32": PLAIN.encode("utf-32"),
    "old Macintosh": PLAIN.replace("\n", "\r"),
    "mixed line ends": "".join(r + ENDS[i % 3] for i, r in enumerate(LINES)),
    "rows end with a delimiter": joined([LINES[0], *(f"{row}," for row in LINES[1:])]),
    "the header ends with a delimiter": joined([f"{LINES[0]},", *LINES[1:]]),
    "names of rows, as R writes them": joined(
        [LINES[0], *(f'"{n}",{row}' for n, row in enumerate(LINES[1:], 1))]
    ),
    "numbers of rows, as pandas writes them": joined(
        [f",{LINES[0]}", *(f"{n},{row}" for n, row in enumerate(LINES[1:]))]
    ),
    "the header on every page": joined([*LINES[:20], LINES[0], *LINES[20:], LINES[0]]),
    "rows of delimiters": joined([*LINES[:20], ",,,", *LINES[20:], ",,,", ",,,"]),
    "spaces before quotes": joined(", ".join(f'"{c}"' for c in r.split(",")) for r in LINES),
    "names in capitals": joined([LINES[0].upper(), *LINES[1:]]),
    "spaces between cells": PLAIN.replace(",", " "),
    "aligned columns": joined("".join(f"{c:12}" for c in row.split(",")) for row in LINES),
    "carets": PLAIN.replace(",", "^"),
    "a zero byte": PLAIN.encode().replace(b"Bern", b"Be\0rn", 1),
    "decomposed letters": unicodedata.normalize("NFD", PLAIN),
    "a comment in the middle": joined([*LINES[:20], "# page 2", *LINES[20:]]),
    "a footer": f"{PLAIN}Total,36 rows\n",
    "a number beyond float32": PLAIN.replace("180.5", "1e300", 1),
    "dates in several formats": dates(
        lambda n: f"2020-0{1 + n % 9}-11" if n % 2 else f"{10 + n % 18}.03.2020"
    ),
    "dates with times": dates(lambda n: f"{10 + n % 18}.03.2020 14:3{n % 10}"),
    "dates with names of months": dates(lambda n: f"{10 + n % 18} Mar 2020"),
    "a date that is none": dates(lambda n: "0000-00-00" if n == 4 else f"2020-03-{10 + n % 18}"),
    "dashes for most values": dates(lambda n: "-" if n % 3 else str(n)),
    "text that hardly repeats": dates(lambda n: f"note {n} of {n * n}"),
    "two columns with the client's name": PLAIN.replace("hospital,age", "hospital,hospital"),
}
FLAGS = ["--client-column", "hospital", "--target", "outcome"]


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_table_opens_with_its_three_sites_or_says_how(name, tmp_path, capsys):
    path, flags = tmp_path / "t.csv", list(FLAGS)
    contents = SPOILED[name]
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    for _ in range(4):
        code = call(["data", "--table", str(path), *flags, "--quiet"])
        said = capsys.readouterr()
        if code == 0:
            assert "3 clients" in said.out, said.out
            return
        (error,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert "unexpected" not in error
        flag = re.search(r"`(--[^`]+)`", error)
        assert flag is not None, f"the message names nothing to do: {error}"
        flags += shlex.split(flag.group(1))
    pytest.fail(f"still refused: {error}")


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b" \n \n", "is empty"),
        (b'[{"hospital": "Bern"}]', "is JSON, not a table"),
        (b"<html><table></table></html>", "is HTML or XML, not a table"),
    ],
)
def test_a_file_that_is_no_table_is_called_what_it_is(contents, sentence, tmp_path):
    (tmp_path / "t.csv").write_bytes(contents)
    with pytest.raises(DataError, match=sentence):
        from_table(tmp_path / "t.csv", client="hospital", target="outcome")


def test_ids_keep_their_zeros_although_the_header_is_written_in_another_way(tmp_path):
    text = PLAIN.replace("hospital", " Hospital ").replace("Bern", "007").replace("Genf", "012")
    assert opened(tmp_path / "t.csv", text).clients == ("007", "012", "Zürich")


THOUSANDS = ["1.234", "2,5", "12,75", "3"]


@pytest.mark.parametrize(
    ("cells", "asked", "numbers", "said"),
    [
        (THOUSANDS, {}, [1234, 2.5, 12.75, 3], '"1.234" is read as 1234. If it is 1.234, name'),
        (THOUSANDS, {"decimal": "."}, [1.234, 2.5, 12.75, 3], None),
        (["1.234", "2,5", "1.5", "3"], {}, [1.234, 2.5, 1.5, 3], '"1.234" is read as 1.234.'),
        (["1.234.567", "2.345", "8", "9"], {}, [1234567, 2345, 8, 9], '"2.345" is read as 2345'),
        (["1,234", "2.5", "8", "9"], {}, [1234, 2.5, 8, 9], '"1,234" is read as 1234. If it'),
        (["1.234", "2.345", "8", "9"], {}, [1.234, 2.345, 8, 9], None),
    ],
)
def test_a_mark_that_may_mean_thousands_is_said(cells, asked, numbers, said, tmp_path):
    data = opened(tmp_path / "t.csv", table(cells * (ROWS // 4), ";"), **asked)
    assert inputs(data)[:4, 1].tolist() == [np.float32(number) for number in numbers]
    notes = [note for note in data.notes if "is read as" in note and '"cost"' in note]
    assert any(said in note for note in notes) if said else not any("1" in n[16:] for n in notes)
    flag = re.search(r"`--decimal (.)`", " ".join(notes))
    if flag:  # followed literally, it reads the other number and says nothing more
        again = opened(tmp_path / "t.csv", table(cells * (ROWS // 4), ";"), decimal=flag[1])
        assert inputs(again)[:4, 1].tolist() != inputs(data)[:4, 1].tolist()


def test_points_between_thousands_beside_decimal_points_are_asked_about(tmp_path):
    lines = table(["1.234.567", "2.345.678"] * (ROWS // 2), ";").splitlines()
    text = "\n".join(line + (";mg" if n == 0 else ";2.5") for n, line in enumerate(lines))
    with pytest.raises(DataError, match=r"a point between thousands .*`--decimal ,`"):
        opened(tmp_path / "t.csv", text)
    data = opened(tmp_path / "t.csv", text, decimal=",")
    assert inputs(data)[0, 1:].tolist() == [1234567, 2.5]


def test_a_new_row_is_read_with_the_decimal_separator_of_training(tmp_path):
    data = opened(tmp_path / "t.csv", table(THOUSANDS * (ROWS // 4), ";"))
    (tmp_path / "new.csv").write_text("age;cost\n50;1.234\n")
    from motet._export.reading import read_rows

    for rows in (tmp_path / "new.csv", [{"age": "50", "cost": "1.234"}]):
        read = read_rows(rows, data.schema)
        assert data.schema.encode(read.table).x.tolist() == [[50, 1234]]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (unicodedata.normalize("NFD", "Zürich"), "with U+0308, combining diaeresis"),
        ("Zürich\u200b", "with U+200B, zero width space"),
    ],
)
def test_a_name_that_only_looks_the_same_is_merged_and_its_character_named(other, said, tmp_path):
    text = table(["1.5"] * ROWS).replace("Zürich", other, 3)
    data = opened(tmp_path / "t.csv", text)
    assert data.clients == ("Bern", "Genf", "Zürich")
    (note,) = [note for note in data.notes if "Unicode form" in note]
    assert said in note
    assert "merge-spellings" not in note  # such names are never kept apart
