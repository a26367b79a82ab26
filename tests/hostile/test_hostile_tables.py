"""Tables of anything: they become a federation, or get a sentence."""

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import TEXTS, spoilt_bytes
from pyarrow import parquet
from victims import CONFIG, TABLE, assert_civil, motet, run

from motet.data import from_table
from motet.errors import MotetError

CELLS = st.sampled_from(
    ("", "nan", "inf", "-1e400", "9" * 400, "0x1F", "=HYPERLINK(1)", "a\x00b", '"', "true", *TEXTS)
)


def as_parquet(table):
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def opened(path, contents):
    """Make a federation of bytes; only errors of ours may come."""
    path.write_bytes(contents)
    try:
        return from_table(path, client="site", target="sick")
    except MotetError:
        return None


@settings(max_examples=150)
@given(spoilt_bytes(TABLE.encode()))
def test_spoilt_bytes_of_a_table_are_read_or_refused(tmp_path_factory, spoilt):
    opened(tmp_path_factory.getbasetemp() / "spoilt.csv", spoilt)


@settings(max_examples=80)
@given(spoilt_bytes(as_parquet(pa.table({"site": ["a"] * 6, "age": range(6), "sick": [0, 1] * 3}))))
def test_spoilt_bytes_of_a_parquet_file_are_read_or_refused(tmp_path_factory, spoilt):
    opened(tmp_path_factory.getbasetemp() / "spoilt.parquet", spoilt)


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(tmp_path_factory, contents):
    for suffix in ("csv", "parquet"):
        opened(tmp_path_factory.getbasetemp() / f"random.{suffix}", contents)


@settings(max_examples=25)
@given(st.integers(0, 12), st.integers(0, 3), CELLS)
def test_any_cell_anywhere_runs_or_gets_a_sentence(row, column, cell):
    rows = [line.split(",") for line in TABLE.splitlines()]
    rows[row][column] = cell
    assert_civil(run(table="\n".join(",".join(line) for line in rows) + "\n"))


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("x", pa.int64())]),
        pa.timestamp("s"),
        pa.binary(),
        pa.null(),
        pa.duration("s"),
        pa.decimal128(10, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("column", ["site", "age", "sick"])
def test_columns_of_any_type_are_read_or_refused(tmp_path, column, kind):
    columns = {"site": pa.array(["a", "b"] * 3), "age": pa.array(range(6)), "sick": [0, 1] * 3}
    value = {"list<item: int64>": [1], "struct<x: int64>": {"x": 1}, "binary": b"1"}.get(
        str(kind), 1
    )
    values = [None if pa.types.is_null(kind) else value] * 6
    columns[column] = pa.array(values, kind)
    opened(tmp_path / "t.parquet", as_parquet(pa.table(columns)))


@pytest.mark.parametrize(
    "name",
    ["../../x", "/tmp/x", "<script>alert(1)</script>", "\u202egnp.exe", "x" * 5000, "=1+1", "a\tb"],
)
def test_no_name_of_a_client_leads_out_of_the_output_directory(name):
    outcome = run(table=TABLE.replace("\na,", f"\n{name},"))
    assert_civil(outcome)
    assert outcome.code == 0


def test_a_cell_of_five_megabytes_is_read_or_refused():
    assert_civil(run(table=TABLE + f"a,{'9' * 5_000_000},1,1\n"))


@pytest.mark.parametrize("target", ["../t.csv", ".", "/dev/null", "t.csv/x", "\x00"])
def test_a_place_that_holds_no_table_is_a_sentence(target):
    flags = ("--table", target, "--client-column", "site", "--target", "sick")
    outcome = motet({"t.csv": TABLE}, "run", "--method", "local", *flags, "--out", "out")
    assert_civil(outcome)
    assert outcome.code == 2


def test_a_table_named_in_a_config_is_read_and_never_written():
    outcome = run(CONFIG.replace("t.csv", "../work/t.csv"))
    assert (outcome.code, outcome.written) == (0, frozenset())
