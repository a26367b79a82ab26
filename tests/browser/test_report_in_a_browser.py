"""The page of a real comparison, as a reader meets it."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import pytest
from invented import HOSTILE, invented

from motet.report import write

pytestmark = pytest.mark.slow
MARKS = ".points path, .lines path, .barlayer path, .heatmaplayer image, .boxlayer path"


@pytest.fixture(scope="module")
def page_file(compared):
    return compared / "report.html"


def chart(page, name):
    return page.locator(f'figure[data-chart="{name}"]').first


def downloaded(page, figure, kind):
    # After ten files from one page Chromium asks its user, and there is none: the eleventh is lost,
    # and the counting starts anew.
    from playwright.sync_api import TimeoutError as GaveUpError

    try:
        return saved(page, figure, kind, patience=10_000)
    except GaveUpError:
        return saved(page, figure, kind, patience=60_000)


def saved(page, figure, kind, *, patience):
    with page.expect_download(timeout=patience) as waiting:
        figure.get_by_role("button", name=kind).click()
    return waiting.value.path().read_text(encoding="utf-8")


def first_column(page, name):
    return page.locator(f'table[data-name="{name}"] tbody tr > :first-child').all_inner_texts()


def test_every_chart_is_drawn_and_has_something_in_it(visit, page_file):
    page = visit(page_file)
    figures = page.locator("figure.chart").all()
    assert len(figures) >= 14
    for figure in figures:
        name = figure.get_attribute("data-chart")
        assert figure.locator(MARKS).count() > 0, f"{name} is empty"
        assert figure.locator(".finding").inner_text().endswith("."), name
        assert len(figure.locator(".plot").get_attribute("aria-label")) > 30, name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1024])
def test_the_first_screen_is_one_sentence_and_one_forest_plot(visit, page_file, width, dark):
    page = visit(page_file, width=width, dark=dark)
    answer = page.locator(".lede").first
    assert answer.inner_text().startswith("Compared with training alone, ")
    forest = chart(page, "forest")
    assert forest.bounding_box()["y"] < 900  # without scrolling
    rows = forest.locator(".yaxislayer-above text, .ytick text").count()
    assert rows == 6
    assert forest.locator(".points path").count() == 6
    method = forest.locator("select").input_value()
    assert method in answer.inner_text()
    assert chart(page, "gains").locator("select").input_value() == method


@pytest.mark.parametrize("kind", ["LaTeX", "Markdown", "CSV"])
def test_the_main_table_is_copied_with_marks_and_intervals(visit, page_file, kind):
    page = visit(page_file, draw=False)
    page.evaluate(
        "() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }"
    )
    page.get_by_role("button", name=f"Copy “Results” as {kind}").click()
    text = page.wait_for_function("window.copied").json_value()
    labels = first_column(page, "Results")
    assert len(labels) == 11
    assert "95% interval" not in text.splitlines()[0]
    assert "[" in text
    for label in ("local", "fedavg-ft", "knn-per"):
        assert label in text
    start = {"LaTeX": "% needs booktabs", "Markdown": "| method | mean |", "CSV": "method,mean,"}
    assert text.startswith(start[kind])
    rows = [line for line in text.splitlines() if "knn-per" in line]
    assert len(rows) == 1


ODD = ("50% & up_to #1 {x} $a$", "a|b | c", 'say "hi", ok', "=SUM(A1:A9)", "Größe 医院", "<b>x</b>")


def test_copies_of_odd_names_can_be_read_back(visit, tmp_path):
    write(invented(6, labels=("local", *ODD), names=list(ODD)), tmp_path / "page.html")
    page = visit(tmp_path / "page.html", width=360)  # dollar signs are no formulas
    page.evaluate("() => { navigator.clipboard.writeText = async (t) => { window.copied = t; }; }")
    copies = {}
    for kind in ("LaTeX", "Markdown", "CSV"):
        page.evaluate("window.copied = null")
        page.get_by_role("button", name=f"Copy “Results” as {kind}").click()
        copies[kind] = page.wait_for_function("window.copied").json_value()
    rows = list(csv.reader(io.StringIO(copies["CSV"])))
    assert len({len(row) for row in rows}) == 1
    assert {row[0].removeprefix("'") for row in rows[1:]} == {"local", *ODD}
    assert not [row for row in rows if row[0].startswith("=")]  # a spreadsheet computes nothing
    lines = copies["Markdown"].splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    body = [line for line in copies["LaTeX"].splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in body}) == 1
    assert not re.search(r"(?<!\\)[%#]|(?<!\\)_", "\n".join(body))


def test_axes_of_counts_have_no_tick_twice(visit, tmp_path):
    write(invented(12), tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    ticks = chart(page, "sizes").locator(".xtick text").all_text_contents()
    assert len(ticks) == len(set(ticks)) > 1


def test_every_client_is_on_paper(visit, tmp_path):
    write(invented(60), tmp_path / "page.html")
    page = visit(tmp_path / "page.html", draw=False)
    page.emulate_media(media="print")
    names = first_column(page, "Clients")
    assert len(names) == 60
    assert (
        "The 40 that changed most are shown."
        in chart(page, "forest").locator(".finding").inner_text()
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1024, 1920])
def test_nothing_is_wider_than_the_window(visit, page_file, width, dark):
    page = visit(page_file, width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_slider_shows_another_round(visit, page_file):
    page = visit(page_file)
    figure = chart(page, "matrix")
    last, picture = figure.locator("output").inner_text(), figure.locator("image").get_attribute
    before = picture("href") or picture("xlink:href")
    figure.locator("input[type=range]").focus()
    page.keyboard.press("Home")
    first = figure.locator("output").inner_text()
    assert first != last
    assert (picture("href") or picture("xlink:href")) != before
    assert figure.locator(".finding").inner_text().startswith(first.capitalize())


def test_the_table_sorts_by_mouse_and_by_keyboard(visit, page_file):
    page = visit(page_file, draw=False)
    heading = page.locator('table[data-name="Results"] th', has_text="worst")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    values = page.eval_on_selector_all(
        'table[data-name="Results"] tbody tr',
        f"rows => rows.map(r => Number(r.cells[{position_of(page, 'worst')}].dataset.value))",
    )
    assert values == sorted(values, reverse=True)
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    by_name = page.locator('table[data-name="Results"] th', has_text="method")
    by_name.get_by_role("button").focus()
    page.keyboard.press("Space")
    labels = [text.split()[0] for text in first_column(page, "Results")]
    assert labels == sorted(labels)


def position_of(page, title):
    return page.locator('table[data-name="Results"] thead th').all_inner_texts().index(title)


def test_the_csv_holds_the_numbers_of_clients_parquet_to_the_last_digit(visit, page_file, compared):
    from pyarrow import parquet

    page = visit(page_file)
    text = downloaded(page, chart(page, "spread"), "CSV")
    rows = list(csv.DictReader(io.StringIO(text)))
    written = parquet.read_table(compared / "clients.parquet").to_pylist()
    kinds = {"seed": int, "round": int, "examples": int, "value": float, "loss": float}
    kinds |= dict.fromkeys(["diverged", "undefined", "higher_is_better"], "true".__eq__)
    read = [{key: kinds.get(key, str)(cell) for key, cell in row.items()} for row in rows]

    def order(row):
        return row["label"], row["seed"], row["client"]

    assert sorted(read, key=order) == sorted(written, key=order)


def test_every_chart_downloads_as_svg_and_as_csv(visit, page_file):
    page = visit(page_file)
    for figure in page.locator("figure.chart").all():
        drawing = ElementTree.fromstring(downloaded(page, figure, "SVG"))
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 3
        columns, *rows = csv.reader(io.StringIO(downloaded(page, figure, "CSV")))
        assert rows
        assert {len(row) for row in rows} == {len(columns)}


def test_choosing_a_method_and_a_reference_changes_the_gains(visit, page_file):
    page = visit(page_file)
    figure = chart(page, "gains")
    figure.locator("select").select_option("ditto")
    assert figure.locator(".finding").inner_text().startswith("Under ditto")
    figure.get_by_text("FedAvg+", exact=True).click()
    assert "fedavg-ft" in figure.locator(".finding").inner_text()


def test_a_line_can_be_hidden_by_keyboard(visit, page_file):
    page = visit(page_file)
    figure = chart(page, "curves")
    lines = figure.locator(".scatterlayer .trace").count()
    figure.locator(".lines button", has_text="fedper").focus()
    page.keyboard.press("Enter")
    assert figure.locator(".scatterlayer .trace").count() < lines


def test_the_data_behind_a_chart_are_a_table_away(visit, page_file):
    page = visit(page_file)
    for figure in page.locator("figure.chart").all():
        figure.locator("summary").click()
        figure.locator("details tbody tr").first.wait_for()


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(visit, page_file):
    page = visit(page_file)
    for control in page.locator("button:visible, select:visible, input").all():
        named = control.evaluate(
            "e => Boolean(e.ariaLabel || e.labels?.length || e.textContent.trim())"
        )
        assert named, control.evaluate("e => e.outerHTML")
        assert control.evaluate("e => e.tabIndex") >= 0


def test_the_theme_can_be_switched_and_is_dark_where_the_system_is(visit, page_file):
    page = visit(page_file, dark=True)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate(background) != dark
    assert page.locator("#theme").inner_text().endswith("Dark")


def test_printing_draws_what_nobody_has_scrolled_to(visit, page_file):
    page = visit(page_file, draw=False)
    page.wait_for_function("window.Plotly !== undefined")
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert page.locator(".plot.drawn").count() == page.locator("figure.chart").count()


def test_markup_in_names_stays_text(visit, tmp_path):
    names = [f"{number} {HOSTILE}" for number in range(6)]
    write(invented(names=names), tmp_path / "page.html")
    page = visit(tmp_path / "page.html", width=360)
    for figure in page.locator("figure.chart").all():
        figure.locator("summary").click()
    assert page.title() != "broken"
    assert page.locator("img").count() == 0
    assert HOSTILE in chart(page, "labels").locator("details").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_run_and_a_comparison_share_a_page(visit, tmp_path):
    write([invented(), invented(labels=("fedper",))], tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert page.locator("article").count() == 2
    page.get_by_role("link", name="fedper on invented").click()
    assert page.url.endswith("#part-1")
