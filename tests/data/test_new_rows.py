"""Rows to predict, written in any way: their inputs are those of the same rows in training.

A file is drawn with a delimiter, a decimal separator, an encoding, separators of thousands, quotes,
empty lines, more columns and another order.
"""

import csv
import io
import random

import numpy as np
import pytest

from motet._export.reading import read_rows
from motet.data import from_table
from motet.errors import RequestError

ROWS = 24
NEEDED = ("age", "cost", "dose", "ward", "größe")


def people(seed=0):
    """Draw the values of a table: whole numbers, sums of money, small numbers, texts."""
    rng = random.Random(seed)
    return {
        "site": [("Zürich", "Genf")[n % 2] for n in range(ROWS)],
        "age": [rng.randrange(20, 90) for _ in range(ROWS)],
        "cost": [rng.choice((1234.5, 12750.25, 987.75, 1234567.5)) for _ in range(ROWS)],
        "dose": [rng.choice((0.125, 2.5, 7.75, -1.5)) for _ in range(ROWS)],
        "ward": [rng.choice(("Süd", "Nord, 2", "Ost")) for _ in range(ROWS)],
        "größe": [rng.choice((150.5, 171.25, 180.5)) for _ in range(ROWS)],
        "ill": [n % 3 % 2 for n in range(ROWS)],
    }


def written(value, decimal=".", thousands=""):
    """Write a number with a decimal separator, and with one between groups of three digits."""
    if isinstance(value, float):
        return f"{value:,}".replace(",", "_").replace(".", decimal).replace("_", thousands)
    return str(value)


def text_of(table, delimiter, decimal=".", thousands="", newline="\n", quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    lines = csv.writer(out, delimiter=delimiter, lineterminator=newline, quoting=quoting)
    lines.writerow(table)
    for row in zip(*table.values(), strict=True):
        lines.writerow([written(value, decimal, thousands) for value in row])
    return out.getvalue()


@pytest.fixture(scope="module", params=[(",", "."), (";", ",")], ids=["English", "German"])
def trained(request, tmp_path_factory):
    """A schema, and the inputs that its own rows have."""
    delimiter, decimal = request.param
    path = tmp_path_factory.mktemp("trained") / "visits.csv"
    path.write_text(text_of(people(), delimiter, decimal), encoding="utf-8")
    data = from_table(
        path, client="site", target="ill", categorical=["ward"], missing="median", standardize=True
    )
    return data.schema, np.asarray(data.x.take(np.arange(ROWS)))


def drawn(rng):
    """Draw rows and how they are written: the rows' numbers, a text and its encoding."""
    rows = rng.sample(range(ROWS), rng.choice((1, 2, 6, ROWS)))
    table = {name: [column[row] for row in rows] for name, column in people().items()}
    names = [name for name in table if name in NEEDED or rng.random() < 0.5]
    rng.shuffle(names)
    table = {name: table[name] for name in names}
    if rng.random() < 0.3:
        table = {"note": [rng.choice(("", "x", "a;b", "1,5")) for _ in rows], **table}
    if rng.random() < 0.3:
        table["patient"] = [f"p{row}" for row in rows]
    decimal = rng.choice((".", ","))
    delimiter = rng.choice((";", "\t", "|") if decimal == "," else (",", ";", "\t", "|"))
    thousands = rng.choice(("", "", "'", " ", "\u00a0", ".,"[decimal == "."]))
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    text = text_of(table, delimiter, decimal, thousands, rng.choice(("\n", "\r\n")), quoting)
    lines = text.splitlines(keepends=True)
    end = lines[0][len(lines[0].rstrip("\r\n")) :]
    spoiled = rng.choice(("", "", "empty lines", "trailing", "trailing rows", "no last end"))
    if spoiled == "empty lines":
        lines = [*lines[:1], *(piece for line in lines[1:] for piece in (line, end))]
    elif spoiled.startswith("trailing"):
        first = 1 if spoiled == "trailing rows" else 0
        cut = [line.rstrip("\r\n") + delimiter + end for line in lines[first:]]
        lines = [*lines[:first], *cut]
    elif spoiled:
        lines[-1] = lines[-1].rstrip("\r\n")
    encoding = rng.choice(("utf-8", "utf-8-sig", "cp1252", "utf-16"))
    return rows, "".join(lines), encoding


def test_rows_have_the_same_inputs_however_they_are_written(trained, tmp_path):
    schema, expected = trained
    path = tmp_path / "rows.csv"
    for seed in range(60):
        rows, text, encoding = drawn(random.Random(seed))
        path.write_bytes(text.encode(encoding))
        x = schema.encode(read_rows(path, schema).table).x
        np.testing.assert_allclose(x, expected[rows], rtol=1e-6, err_msg=f"{seed}: {text[:200]}")


def test_an_option_overrides_what_is_detected(trained, tmp_path):
    schema, _ = trained
    path = tmp_path / "rows.csv"
    path.write_bytes("a title\n50|1.234|2,5|Süd|170\n".encode("cp850"))
    asked = {"delimiter": "|", "encoding": "cp850", "skip_rows": 1, "columns": NEEDED}
    for decimal, cost in ((",", 1234), (".", 1.234)):
        rows = read_rows(path, schema, decimal=decimal, **asked).table.to_pylist()
        assert rows == [dict(zip(NEEDED, (50, cost, 2.5, "Süd", 170), strict=True))]
    with pytest.raises(RequestError, match="decimal must be"):
        read_rows(path, schema, decimal="x")
