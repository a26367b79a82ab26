"""Results in a notebook: well-formed, escaped, small, and in the page's own colours."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest

import motet
from motet._core.notebook_html import MOST_ROWS
from motet._engine.evaluation import Evaluation, Score
from motet.testing._worlds import TinyNet, ragged

EVIL = '<script>alert(1)</script>&"'
VOID = {"br", "img", "hr"}


class Balanced(HTMLParser):
    """Reads HTML, and fails on tags that do not match."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(shown):
    page = Balanced()
    page.feed(shown._repr_html_())
    assert not page.open
    return page


def evil_data():
    def draw(split):
        rng = motet.Key(0).fold("evil", split).numpy()
        x = rng.normal(size=(6, 4)).astype(np.float32)
        return {EVIL: (x, rng.integers(0, 3, 6)), "b": (x, rng.integers(0, 3, 6))}

    pairs = {split: draw(split) for split in ("train", "val", "test")}
    return motet.data.from_arrays(**pairs, classes=3, name=EVIL)


DATA = evil_data()
RUN = motet.run(motet.FedPer(), motet.Task(TinyNet), DATA, rounds=1)
COMPARISON = motet.compare({EVIL: motet.FedPer()}, motet.Task(TinyNet), DATA, rounds=1, seeds=1)
EVERYTHING = {
    "evaluation": RUN.evaluate(),
    "run": RUN,
    "federation": DATA,
    "comparison": COMPARISON,
    "method": motet.FedPer(personal=(EVIL,)),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_others_have_named_cannot_become_markup(name):
    page = read(EVERYTHING[name])
    assert "script" not in page.seen
    assert "alert(1)" in "".join(page.text)


@pytest.mark.parametrize("name", EVERYTHING)
def test_no_colour_is_set_but_the_pages_own(name):
    html = EVERYTHING[name]._repr_html_()
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|hsl|(?<!-)\bcolor\s*:(?!inherit)", html)
    assert set(re.findall(r"background:(\w+)", html)) <= {"none", "currentColor"}
    assert len(html) < 20_000


def test_an_evaluation_shows_its_numbers_and_the_worst_clients_first():
    rows = tuple(Score(f"c{i:02}", 10, i / 100, 1.0) for i in range(50))
    evaluation = Evaluation("fedper", "accuracy", "test", "after_adapt", 5, rows)
    text = " ".join(read(evaluation).text)
    assert f"{evaluation.mean:.4f}" in text
    assert "accuracy on test, after_adapt, round 5, 50 clients" in text
    assert [f"c{i:02}" for i in range(50) if f"c{i:02}" in text] == [
        f"c{i:02}" for i in range(MOST_ROWS)
    ]
    assert "... 30 more" in text


def test_the_worst_rmse_is_the_largest_and_has_no_bar():
    rows = (Score("good", 10, 0.5, 1.0), Score("bad", 10, 7.0, 1.0))
    html = Evaluation("fedper", "rmse", "test", "after_adapt", 5, rows)._repr_html_()
    assert html.index("bad") < html.index("good")
    assert "inline-block" not in html


def test_a_diverged_client_has_an_empty_bar():
    rows = (Score("a", 10, float("nan"), float("nan")),)
    html = Evaluation("fedper", "accuracy", "test", "after_adapt", 5, rows)._repr_html_()
    assert "width:0.00em" in html


def test_a_run_says_how_far_it_is_and_what_it_warned_of():
    world = ragged()
    run = motet.run(motet.FedPer(personal=()), world.task, world.data, rounds=2, cohort=3)
    text = " ".join(read(run).text)
    assert "2 of 2" in text
    assert "clients per round 3" in text
    assert run.warnings[0] in text


def test_a_federation_says_who_holds_how_much():
    text = " ".join(read(ragged().data).text)
    assert "6 clients, 3 classes, inputs 4" in text
    assert "train 68 1 6.5 40" in text
    assert "many 40 8 9" in text


def test_a_comparison_marks_the_best_mean():
    html = COMPARISON._repr_html_()
    means = {label: COMPARISON.summary(label)["mean"] for label in COMPARISON.labels}
    best = [label for label, mean in means.items() if mean == max(means.values())]
    assert html.count("<b>") == 1 + len(best)  # and the title


def test_a_method_shows_its_card_and_what_it_is_set_to():
    text = " ".join(read(motet.Ditto(lam=0.125)).text)
    assert "Ditto" in text
    assert motet.Ditto.card.idea in text
    assert "lam 0.125" in text


@dataclass(frozen=True, kw_only=True)
class Own(motet.FedAvg):
    strength: float


def test_a_method_of_ones_own_needs_no_default_for_its_fields():
    assert "strength 2.5" in " ".join(read(Own(strength=2.5)).text)


def test_a_run_and_a_predictor_are_printed_in_one_line():
    world = ragged()
    run = motet.run(motet.FedPer(), world.task, world.data, rounds=1, backend="serial")
    assert repr(run) == f"<Run of fedper on {world.data.name}: 1 round, 6 clients>"
    new = run.adapt(*world.data.examples("many", "train"))
    assert repr(new) == f"<Predictor for a new client, from {run!r}>"
