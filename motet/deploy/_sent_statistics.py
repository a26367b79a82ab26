"""The statistics that a site sends, in words for the people who must approve them."""

from __future__ import annotations

from motet.data._tables.options import filling_of

QUESTIONS = "questions.json"
SENT = {
    "rows": "number of training rows",
    "table_rows": "number of all rows",
    "missing": "missing values of each column",
    "known": "values of each input that are there",
    "mean": "their mean",
    "spread": "sum of their squared distances from the mean",
    "low": "smallest value of each input",
    "high": "largest value of each input",
    "decimals": "with how many decimals the values of an input are written",
    "categories": "each category as it is spelled, with the number of training rows and of all "
    "rows that have it",
}
SENT_OWN_MEDIAN = {"median": "the site's own median of each input"}
SENT_ANSWERS = {
    "at_most": f"once the operator has sent {QUESTIONS}: how many values of each input are at most "
    "each number in it"
}


def sent_by_sites(missing: str | float) -> dict[str, str]:
    """List what a site sends if missing values are filled in this way."""
    own = SENT_OWN_MEDIAN if missing == "client-median" else {}
    answers = SENT_ANSWERS if filling_of(missing, indicators=False).by == "median" else {}
    return SENT | own | answers
