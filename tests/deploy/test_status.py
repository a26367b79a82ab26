"""What is read out of the log of a run."""

from __future__ import annotations

import pytest

from motet.deploy.status import trouble


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("round 1 of 3: 4 of 4 replied, 9.0 s", None),
        (
            "round 2: north lost: its site is unavailable",
            "round 2: north lost: its site is unavailable",
        ),
        (
            "INFO : round 12: south sea rejected: NaN\nINFO : bye",
            "round 12: south sea rejected: NaN",
        ),
        (
            "round 1: a lost: gone\nmotet.errors.CohortError: round 1 was tried 3 times.\nbye",
            "round 1 was tried 3 times.",
        ),
        ("", None),
    ],
)
def test_the_last_complaint_in_a_log_is_found(log, expected):
    assert trouble(log) == expected
