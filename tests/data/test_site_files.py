"""One file per site, as several hospitals send them: they differ, and mean the same."""

from __future__ import annotations

import pytest

from motet.data import from_table
from motet.errors import DataError

HEADER = ["age", "sex", "outcome"]
ROWS = [[str(40 + n % 23), "fm"[n // 2 % 2], ("ill", "well")[n // 3 % 2]] for n in range(24)]


def text(rows=ROWS, header=HEADER, delimiter=","):
    return "\n".join(delimiter.join(row) for row in [header, *rows]) + "\n"


def opened(folder, files, **options):
    for name, contents in files.items():
        (folder / name).write_text(contents, encoding="utf-8")
    asked = {"target": "outcome", "categorical": ["sex"], **options}
    return from_table(str(folder / "*"), **asked)


def test_columns_may_be_in_another_order_and_case(tmp_path):
    turned = [[row[2], row[0], row[1]] for row in ROWS]
    files = {"a.csv": text(), "b.csv": text(turned, ["Outcome", "AGE", "sex "])}
    data = opened(tmp_path, files)
    assert data.features == ("age", "sex=f", "sex=m")
    a, b = (
        sorted(row for s in ("train", "val", "test") for row in data.examples(c, s).x.tolist())
        for c in ("a", "b")
    )
    assert a == b
    assert 'column "Outcome" of "b" is taken for "outcome".' in data.notes


def test_files_without_rows_are_left_out(tmp_path):
    files = {"a.csv": text(), "b.csv": "", "c.csv": text([]), "d.csv": text(), "~$d.xlsx": "x"}
    data = opened(tmp_path, files)
    assert data.clients == ("a", "d")
    assert '"b" has no rows; left out.' in data.notes
    assert '"c" has no rows; left out.' in data.notes


def test_files_that_are_all_empty_are_refused(tmp_path):
    with pytest.raises(DataError, match="no file has a row"):
        opened(tmp_path, {"a.csv": "", "b.csv": text([])})


def test_a_file_without_a_site_column_is_a_site(tmp_path):
    named = [["east" if n % 2 else "west", *row] for n, row in enumerate(ROWS)]
    data = opened(tmp_path, {"a.csv": text(named, ["site", *HEADER]), "b.csv": text()})
    assert data.clients == ("b", "east", "west")


def test_labels_that_only_one_site_uses_are_noticed(tmp_path):
    coded = [[*row[:2], str(int(row[2] == "ill"))] for row in ROWS]
    data = opened(tmp_path, {"a.csv": text(), "b.csv": text(coded), "c.csv": text()})
    (note,) = [note for note in data.notes if "has none of the labels" in note]
    assert note.startswith('site "b" has none of the labels of other sites: its labels are 0, 1.')
    again = opened(tmp_path, {}, labels=["1=ill", "0=well"])
    assert again.labels == ("ill", "well")


def test_answers_are_read_alike_at_all_sites(tmp_path):
    def with_answers(yes, no):
        return text([[*row, (no, yes)[n % 2]] for n, row in enumerate(ROWS)], [*HEADER, "smoker"])

    files = {"a.csv": with_answers("yes", "no"), "b.csv": with_answers("True", "False")}
    data = opened(tmp_path, {**files, "c.csv": with_answers("1", "0")})
    assert data.features == ("age", "sex=f", "sex=m", "smoker")
    for client in data.clients:
        assert set(data.examples(client, "train").x[:, 3].tolist()) == {0.0, 1.0}
    assert data.schema.encode({"age": [50], "sex": ["f"], "smoker": ["Y"]}).x[0, 3] == 1
