"""Messy files: each reads as the plain table does, cell by cell, or says how."""

from __future__ import annotations

import codecs
import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from motet._export.reading import read_rows
from motet.data import Split, from_table
from motet.data._tables.cells import same_spelling
from motet.errors import DataError

ROWS = 30
SITES = ("Zürich", "Genève", "Córdoba")
CELLS = [
    (
        SITES[n % 3],
        str(40 + n % 17),
        f"{180 + 7 * n % 90}.5",
        "fm"[n // 2 % 2],
        ("no", "yes")[n * n // 3 % 2],
    )
    for n in range(ROWS)
]
HEADER = ("hospital", "age", "chol", "sex", "ill")


def text(cells=CELLS, delimiter=",", end="\n"):
    return "".join(delimiter.join(row) + end for row in (HEADER, *cells))


def opened(path, contents, **options):
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return from_table(path, client="hospital", target="ill", categorical=["sex"], **options)


def told(data):
    rows = np.arange(len(data.x))
    return data.clients, data.labels, data.x.take(rows).tolist(), data.y.take(rows).tolist()


MESSY = {
    "two marks": b"\xef\xbb\xbf" * 2 + text().encode(),
    "a mark and Excel's first line": b"\xef\xbb\xbfsep=;\r\n" + text(delimiter=";").encode(),
    "tabs announced": "sep=\t\n" + text(delimiter="\t"),
    "big-endian with a mark": codecs.BOM_UTF16_BE + text(end="\r\n").encode("utf-16-be"),
    "an additional carriage return": text(end="\r\r\n"),
    "an empty line after each row": text(end="\n\n"),
    "letters of DOS": text().encode("cp850"),
    "letters of an old Macintosh": text().encode("mac_roman"),
    "letters of Windows, packed": gzip.compress(text().encode("cp1252")),
}


@pytest.mark.parametrize("name", MESSY)
def test_a_messy_file_reads_as_the_plain_table_does(name, tmp_path):
    plain = told(opened(tmp_path / "plain.csv", text()))
    assert told(opened(tmp_path / "t.csv", MESSY[name])) == plain


@given(rows=st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=3), place=st.integers(0, 4))
@settings(max_examples=15, deadline=None)
def test_a_quote_without_an_end_swallows_no_rows(rows, place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quotes")
    spoiled = [
        tuple(f'"{cell}' if n in rows and p == place else cell for p, cell in enumerate(row))
        for n, row in enumerate(CELLS)
    ]
    data = opened(folder / "t.csv", text(spoiled))
    assert told(data) == told(opened(folder / "plain.csv", text()))


def test_cells_with_line_breaks_stay_whole(tmp_path):
    notes = [f'"first, {n}\nsecond, third\n4, 5, 6, 7, 8"' for n in range(ROWS)]
    cells = [(*row[:3], note, row[4]) for row, note in zip(CELLS, notes, strict=True)]
    data = opened(tmp_path / "t.csv", text(cells))
    assert len(data.x) == ROWS
    assert data.schema.column("sex").categories[0] == "first, 0 second, third 4, 5, 6, 7, 8"


def test_many_numbers_beyond_float32_name_the_column_to_leave_out(tmp_path):
    cells = [(*row[:2], f"{n + 1}e40", *row[3:]) for n, row in enumerate(CELLS)]
    with pytest.raises(DataError, match=r"row 2 .* has 1e\+40.*`--drop chol`.*its 30 such numbers"):
        opened(tmp_path / "t.csv", text(cells))


def test_text_that_a_program_stored_as_bytes_is_text(tmp_path):
    columns = dict(zip(HEADER, zip(*CELLS, strict=True), strict=True))
    table = pa.table({**columns, "hospital": [name.encode() for name in columns["hospital"]]})
    parquet.write_table(table, tmp_path / "t.parquet")
    data = from_table(tmp_path / "t.parquet", client="hospital", target="ill", categorical=["sex"])
    assert told(data) == told(opened(tmp_path / "plain.csv", text()))


def test_a_packed_file_that_ends_early_is_said_to_be_damaged(tmp_path):
    with pytest.raises(DataError, match="It is damaged or incomplete; copy it again"):
        opened(tmp_path / "t.csv.gz", gzip.compress(text().encode())[:150])


def test_large_numbers_that_are_not_scaled_are_noted(tmp_path):
    cells = [(*row[:2], f"{n + 1}e20", *row[3:]) for n, row in enumerate(CELLS)]
    asked = "Scale the inputs with `--standardize federation`"
    note = f'"chol" holds numbers up to 3e+21, with which training may diverge. {asked}'
    assert any(
        note in said for said in opened(tmp_path / "t.csv", text(cells), split=Split(0, 0)).notes
    )
    scaled = opened(tmp_path / "t.csv", text(cells), standardize=True)
    assert not any("diverge" in said for said in scaled.notes)


@pytest.mark.parametrize("written", ["{:03d}", "{}", "{}.0"])
def test_sites_named_by_numbers_are_found_again_in_rows_to_predict(written, tmp_path):
    cells = [(written.format(n % 3), *row[1:]) for n, row in enumerate(CELLS)]
    data = opened(tmp_path / "t.csv", text(cells))
    rows = read_rows(tmp_path / "t.csv", data.schema)
    found = {same_spelling(str(name)) for name in rows.table["hospital"].to_pylist()}
    assert found == {same_spelling(name) for name in data.clients}


def test_columns_without_names_are_left_out_by_one_flag(tmp_path):
    lines = [
        "hospital,age,,,ill",
        *(f"{row[0]},{row[1]},{n % 3},5,{row[4]}" for n, row in enumerate(CELLS)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"They have no name; leave them out with `--drop ''`"):
        from_table(tmp_path / "t.csv", client="hospital", target="ill")
    assert from_table(tmp_path / "t.csv", client="hospital", target="ill", drop=[""]).features == (
        "age",
    )
