"""Files that are no tables: one sentence says what was found and what to do."""

from __future__ import annotations

import gzip
import io
import re
import zipfile

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from motet._cli.main import call

TEXT = "site,age,ill\n" + "".join(f"{'ab'[n % 2]},{40 + n},{n // 2 % 2}\n" for n in range(40))
TABLE = pa.table({"site": ["a", "b"] * 20, "age": range(40), "ill": [0, 0, 1, 1] * 10})


def half(write):
    def damaged():
        written = io.BytesIO()
        write(written)
        return written.getvalue()[: len(written.getvalue()) // 2]

    return damaged


def archive():
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        file.writestr("visits.csv", TEXT)
    return written.getvalue()


FOUND = {
    "header.csv": (lambda: b"site,age,ill\n", r"no rows below its header \(site, age, ill\)"),
    "paper.csv": (lambda: b"%PDF-1.4\n1 0 obj\n" * 9, "is a PDF document, .* Export it as CSV"),
    "letter.csv": (lambda: rb"{\rtf1\ansi Hello, table}", "is an RTF document, .* Export it as"),
    "bytes.csv": (lambda: bytes(range(256)) * 9, "it is not text. Expected .csv"),
    "half.csv.gz": (lambda: gzip.compress(TEXT.encode())[:90], "incomplete; copy it again"),
    "half.parquet": (half(lambda f: parquet.write_table(TABLE, f)), "incomplete; copy it again"),
    "half.feather": (half(lambda f: feather.write_feather(TABLE, f)), "incomplete; copy it again"),
    "half.xlsx": (lambda: b"PK\x03\x04 and no more", "damaged or has a password; copy it again"),
    "text.parquet": (TEXT.encode, "text, rename it to text.csv;"),
    "text.feather": (TEXT.encode, "text, rename it to text.csv;"),
    "text.xlsx": (TEXT.encode, "text, rename it to text.csv;"),
    "visits.zip": (archive, 'zip archive; .* Unpack it, .* such as "visits.csv"'),
    "packed.csv": (archive, 'zip archive; .* Unpack it, .* such as "visits.csv"'),
}


def refusal(path, capsys):
    flags = ["--client-column", "site", "--target", "ill", "--quiet"]
    code = call(["data", "--table", str(path), *flags])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return code, said


@pytest.mark.parametrize("name", FOUND)
def test_a_file_that_is_no_table_is_refused_with_a_remedy(name, tmp_path, capsys):
    contents, sentence = FOUND[name]
    path = tmp_path / name
    path.write_bytes(contents())
    code, said = refusal(path, capsys)
    assert (code, len(said)) == (2, 1)
    assert re.search(sentence, said[0]), said[0]
    if "rename it" in sentence:
        assert refusal(path.rename(tmp_path / "text.csv"), capsys)[0] == 0


def test_a_directory_is_refused_with_the_pattern_that_reads_it(tmp_path, capsys):
    (tmp_path / "ward 1").mkdir()
    (tmp_path / "ward 1" / "a.csv").write_text(TEXT)
    code, said = refusal(tmp_path / "ward 1", capsys)
    assert (code, len(said)) == (2, 1)
    assert f"--table '{tmp_path}/ward 1/*.csv'" in said[0]
    assert refusal(f"{tmp_path}/ward 1/*.csv", capsys)[0] == 0
