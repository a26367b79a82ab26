"""Pages about hostile names: every one of them is text, and only text."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet._compare.comparison import Comparison
from motet._engine.evaluation import Evaluation, Score
from motet._engine.results import Cost, Failure, Look, Row
from motet._verdict.federation_summary import FederationSummary
from motet.report import page

NAMES = (
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=alert(1)>",
    "\"'`><svg/onload=alert(1)>",
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "]]>&lt;b&gt;",
    "\u202egnp.exe\u2066\u2028\u2029",
    "\x00\x1b[31m",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
)
HOSTILE = st.lists(
    st.one_of(st.sampled_from(NAMES), st.text(max_size=20)), min_size=3, max_size=3, unique=True
)


class Seen(HTMLParser):
    """The elements of a page, each with the names of its attributes, and every link."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.links, self.handlers = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("href", "src", "action")]


def about(clients, label, word):
    """A comparison of two methods in which everything that can be named is named by these."""

    def row(name, seed=0):
        scores = tuple(Score(c, 5, 0.5 + number / 10, 0.7) for number, c in enumerate(clients))
        look = Look(
            round=1,
            mean=0.5,
            std=0.1,
            decile=0.4,
            worst=0.3,
            loss=0.7,
            bytes_up=10,
            bytes_down=10,
            gradients=10.0,
            seconds=0.1,
        )
        return Row(
            label=name,
            seed=seed,
            evaluation=Evaluation(name, "accuracy", "test", "after_adapt", 1, scores),
            cost=Cost(bytes_up=10, bytes_down=10, gradients=10.0, seconds=0.1, private_bytes=5.0),
            warnings=(word,),
            rounds=1,
            curve=(look, replace(look, round=2)),
            tuned={word: word},
            faults={"refusals": {clients[0]: word}},
        )

    sizes = {c: {"train": 5, "val": 1, "test": 5} for c in clients}
    return Comparison(
        rows=(row("local"), row(label)),
        data=word,
        split=word,
        rounds=1,
        cohort=1.0,
        added=(label,),
        failures=(Failure(label=label, seed=1, reason=word),),
        federation=FederationSummary(
            name=word, labels=(word, "b"), sizes=sizes, histograms=dict.fromkeys(clients, (1, 4))
        ),
    )


@pytest.fixture(scope="module")
def plain():
    return Seen(page([about(["a", "b", "c"], "fedper", "word")]))


@settings(max_examples=25)
@given(HOSTILE, st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_no_name_adds_an_element_a_link_or_a_handler(plain, clients, label, word):
    hostile = Seen(page([about(clients, label, word)]))
    assert hostile.elements == plain.elements
    assert hostile.handlers == plain.handlers == []
    assert not [link for link in hostile.links if not link.startswith(("#", "data:"))]
