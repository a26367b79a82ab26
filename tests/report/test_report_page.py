"""The page as text: complete, self-contained, exact, and deaf to what stands in the data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from invented import HOSTILE, LEVELS, invented

from motet._compare.comparison import Comparison
from motet._engine.results import Failure
from motet._verdict.federation_summary import FederationSummary
from motet.errors import RequestError
from motet.report import page, write
from motet.report._chart_data import MOST_CELLS, evenly
from motet.report._embedding import packed, script_json
from motet.report._writing import SCRIPTS

ASSETS = files("motet.report") / "assets"


class Elements(HTMLParser):
    """Collects tags with their attributes, and the text inside each script."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self.words, self._rows = [], {}, [], []
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("script", "style"):
            self._inside = dict(attributes).get("id", tag)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, text):
        if self._inside:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + text
            return
        self.words.append(text)
        if self._rows and self._rows[-1] and self.found[-1][0] in ("td", "th"):
            self._rows[-1][-1] += text

    def charts(self):
        return json.loads(self.scripts["charts"])

    def rows(self):
        """The cells of every row of every table, as text."""
        return [[cell.strip() for cell in row] for row in self._rows]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def attribute(self, tag, name):
        return [a[name] for found, a in self.found if found == tag and name in a]


@pytest.fixture(scope="module")
def comparison():
    return invented(8)


@pytest.fixture(scope="module")
def elements(comparison):
    return Elements(page([comparison]))


# -- what is on it ------------------------------------------------------------


def test_the_page_says_the_verdict_and_names_every_method(elements, comparison):
    for sentence in comparison.verdict().sentences:
        assert sentence in elements.text
    for label in comparison.labels:
        assert label in elements.text


def test_the_numbers_of_the_table_say_what_they_are(elements):
    assert "on each client's own test data (higher is better)" in elements.text
    assert "round 20; 8 clients; mean of seeds 0, 1" in elements.text


def test_the_table_sorts_by_numbers_in_full_precision(elements, comparison):
    cells = set(elements.attribute("td", "data-value"))
    for label in comparison.labels:
        summary = comparison.summary(label)
        assert {str(summary[name]) for name in ("mean", "decile", "worst", "std")} <= cells


def test_charts_hold_every_score_to_the_last_digit(elements, comparison):
    (part,) = elements.charts()
    methods = {method["label"]: method for method in part["methods"]}
    for row in comparison.rows:
        runs = {run["seed"]: run for run in methods[row.label]["runs"]}
        values = dict(zip(part["clients"], runs[row.seed]["values"], strict=True))
        assert values == {score.client: score.value for score in row.evaluation.rows}


def test_every_kind_of_study_has_a_figure_headed_by_its_method(elements):
    drawn = elements.attribute("figure", "data-chart")
    assert {"matrix", "tree", "per_client", "lines", "shares"} <= set(drawn)
    assert "fedfomo: Who learns from whom" in elements.text
    (part,) = elements.charts()
    assert part["studies"][0]["seeds"] == [0, 1]  # one figure, both seeds


def test_failures_warnings_privacy_and_tuned_values_are_told(elements):
    for words in (
        "mocha, seed 1 the dual step diverged in round 3",
        "its temperature is so high that it is FedAvg",
        "one example of one client",
        "optimizer.lr 0.05",
        "50% of the clients",
    ):
        assert words in elements.text


def test_what_went_wrong_on_the_way_is_told_in_words(comparison):
    reasons = {f"client {n}": "not finite" for n in range(7)}
    faults = {"lost_replies": 3, "refusals": reasons}
    rows = (replace(comparison.rows[0], faults=faults), *comparison.rows[1:])
    text = Elements(page([replace(comparison, rows=rows)])).text
    assert "lost replies: 3" in text
    assert "client 4: not finite; and 2 more" in text


def test_a_method_alone_is_described_and_not_judged():
    text = Elements(page([invented(8, labels=("fedper",))])).text
    assert "fedper reaches 0.9" in text
    assert "leads" not in text


def test_a_comparison_in_which_everything_failed_still_has_a_page():
    failed = Comparison(
        rows=(),
        data="digits",
        split="0" * 64,
        rounds=5,
        cohort=1.0,
        failures=(Failure(label="fedper", seed=0, reason="out of memory"),),
    )
    elements = Elements(page([failed]))
    assert "No run produced a result." in elements.text
    assert "out of memory" in elements.text
    assert not elements.attribute("figure", "data-chart")


def test_without_a_summary_of_the_federation_its_charts_are_left_out(comparison):
    bare = replace(comparison, federation=FederationSummary())
    drawn = Elements(page([bare])).attribute("figure", "data-chart")
    assert not {"labels", "emd", "sizes"} & set(drawn)
    assert "spread" in drawn


def test_a_loss_that_is_no_number_becomes_null(comparison):
    row = comparison.rows[0]
    scores = tuple(score._replace(loss=math.nan) for score in row.evaluation.rows)
    diverged = replace(row, evaluation=replace(row.evaluation, rows=scores))
    rows = (diverged, *comparison.rows[1:])
    (part,) = Elements(page([replace(comparison, rows=rows)])).charts()
    assert set(part["methods"][0]["runs"][0]["losses"]) == {None}


def test_a_method_that_diverged_is_last_where_less_is_better():
    def as_errors(row, value):
        scores = tuple(s._replace(value=value(s.value)) for s in row.evaluation.rows)
        return replace(row, evaluation=replace(row.evaluation, metric="rmse", rows=scores))

    made = invented(8, seeds=(0,))
    rows = [as_errors(row, lambda value: 1 - value) for row in made.rows]
    rows[0] = as_errors(rows[0], lambda value: math.nan)  # local
    elements = Elements(page([replace(made, rows=tuple(rows))]))
    order = elements.attribute("th", "data-value")[: len(rows)]
    best = min(rows[1:], key=lambda row: row.evaluation.mean)
    assert (order[0], order[-1]) == (best.label, "local")
    assert "RMSE on each client's own test data (lower is better)" in elements.text
    scores = next(row for row in elements.rows() if row[0] == "local")
    assert set(scores[1:]) == {
        "\N{EN DASH}"
    }  # nothing is known of it, not even that it harms nobody


# -- what it is made of -------------------------------------------------------


def test_the_page_asks_nobody_for_anything(elements):
    assert not elements.attribute("script", "src")
    assert not [tag for tag, _ in elements.found if tag in ("link", "img", "iframe")]
    (policy,) = [a["content"] for t, a in elements.found if "Policy" in a.get("http-equiv", "")]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


def test_the_policy_allows_the_scripts_of_the_page_and_no_other(elements):
    (policy,) = [a["content"] for t, a in elements.found if "Policy" in a.get("http-equiv", "")]
    plotting = gzip.decompress(base64.b64decode(elements.scripts["plotting"])).decode()
    for program in (elements.scripts["script"], plotting):
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_same_comparison_gives_the_same_page_at_any_time(comparison):
    assert page([comparison]) == page([comparison])
    assert base64.b64decode(packed(b"library"))[4:8] == bytes(4)  # where gzip keeps the time


def test_a_thousand_clients_under_ten_methods_stay_below_six_megabytes(monkeypatch):
    large = invented(1000, labels=(*LEVELS, "apfl"), seeds=(0, 1, 2))
    # The verdict's tests take their time, and add nothing to the size.
    small = invented(8).verdict()
    monkeypatch.setattr(Comparison, "verdict", lambda self: small)
    assert len(page([large]).encode()) < 6e6


def test_matrices_too_large_for_a_page_lose_frames_but_never_the_last():
    count = int(math.sqrt(MOST_CELLS / 3))
    kept = evenly([f"round {number}" for number in range(30)], MOST_CELLS // count**2)
    assert len(kept) == 3
    assert (kept[0], kept[-1]) == ("round 0", "round 29")


def test_every_script_is_part_of_the_page():
    assert {file.name for file in ASSETS.iterdir() if file.name.endswith(".js")} == set(SCRIPTS)


# -- markup in the data -------------------------------------------------------


def test_no_text_from_the_data_becomes_markup():
    names = [f"{number}{HOSTILE}\u2028&" for number in range(6)]
    hostile = replace(invented(names=names), data=HOSTILE, split=HOSTILE)
    rows = tuple(replace(row, label=row.label + HOSTILE) for row in hostile.rows)
    failures = (Failure(label=HOSTILE, seed=0, reason=HOSTILE),)
    elements = Elements(page([replace(hostile, rows=rows, failures=failures)]))
    assert not [tag for tag, _ in elements.found if tag == "img"]
    assert sum(tag == "script" for tag, _ in elements.found) == 3
    assert HOSTILE in elements.text
    (part,) = elements.charts()
    assert part["clients"] == sorted(names)


@pytest.mark.parametrize("sign", ["</script>", "<!--", "]]>", "&lt;", "\u2028", "\u2029"])
def test_json_inside_a_script_can_not_end_it(sign):
    written = script_json({"name": sign})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"name": sign}


# -- files --------------------------------------------------------------------


def test_a_page_is_written_whole_and_replaces_an_old_one(comparison, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write(comparison, path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_named_in_a_sentence(comparison, tmp_path):
    with pytest.raises(RequestError, match=r"missing.report\.html cannot be written: no such file"):
        write(comparison, tmp_path / "missing" / "report.html")


# -- colours ------------------------------------------------------------------


def colours():
    """Read each colour of the style sheet: (name, on a light page, on a dark page)."""
    pair = r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)"
    return {name: (light, dark) for name, light, dark in re.findall(pair, sheet())}


def sheet():
    return (ASSETS / "style.css").read_text(encoding="utf-8")


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_by_four_and_a_half_and_marks_by_three(theme):
    known = {name: pair[theme] for name, pair in colours().items()}
    for name in ("ink", "soft", "accent", "failure", "warning"):
        assert contrast(known[name], known["page"]) >= 4.5, name
    marks = [n for n in known if n.startswith(("series", "reference"))] + ["few", "some", "many"]
    for name in marks:
        assert contrast(known[name], known["page"]) >= 3, name
    assert len(marks) == 13


def test_motion_is_left_out_for_those_who_ask():
    assert "prefers-reduced-motion" in sheet()
