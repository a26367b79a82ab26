"""The status of a federation: which run is shown, what is trouble, errors found in a log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from motet.deploy import _certificates as certificates
from motet.deploy._certificates import write_certificates
from motet.deploy._control import Submitted, _node
from motet.deploy._layout import Deployment
from motet.deploy._status import (
    SiteStatus,
    Status,
    _site,
    _with_certificates,
    last_error,
    run_and_queue,
    site_troubles,
)


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
def test_the_last_error_in_a_log_is_found(log, expected):
    assert last_error(log) == expected


@pytest.mark.parametrize(
    ("newest_first", "shown", "queue"),
    [
        ([], None, ()),
        ([(3, "finished:completed"), (2, "finished:failed")], 3, ()),
        ([(3, "pending"), (2, "running"), (1, "finished:failed")], 2, (3,)),
        ([(4, "pending"), (3, "pending"), (2, "finished:completed")], 3, (4,)),
        ([(4, "finished:failed"), (3, "starting"), (2, "finished:completed")], 3, ()),
    ],
)
def test_the_run_that_is_alive_is_shown_and_not_merely_the_newest(newest_first, shown, queue):
    found, waiting = run_and_queue([Submitted(*run) for run in newest_first])
    assert (None if found is None else found.number, waiting) == (shown, queue)


def test_a_site_s_last_contact_and_the_age_of_its_key_come_from_the_superlink():
    registered = datetime.now(UTC) - timedelta(days=40, hours=1)
    told = {
        "node-id": "7",
        "status": "offline",
        "created-at": registered.isoformat(sep=" "),
        "online-at": "2026-11-01 10:00:00+00:00",
        "offline-at": "2026-11-02 10:00:00+00:00",
    }
    site = _site(_node(told, {7: {"name": "north"}}))
    assert site == SiteStatus("offline", "2026-11-02T10:00:00+00:00", 40)
    never = _site(_node({**told, "status": "registered", "offline-at": "N/A"}, {}))
    assert never == SiteStatus("registered", None, 40)


def test_every_site_that_should_be_there_and_is_not_is_trouble():
    sites = {"a": "online", "b": "offline", "c": "registered", "d": "not registered"}
    found = {name: SiteStatus(state) for name, state in sites.items()}
    said = site_troubles(Status(of="server", reachable=True, sites=found))
    assert [sentence[0] for sentence in said] == ["b", "c", "d"]
    said = site_troubles(Status(of="trial", reachable=True, sites=found))  # of some sites, say
    assert [sentence[0] for sentence in said] == ["b"]


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (timedelta(days=365), []),
        (timedelta(days=29), ["server.pem expires on"]),
        (timedelta(minutes=-1), ["server.pem expired on"]),
    ],
)
def test_a_certificate_that_ends_soon_is_trouble_before_it_ends(tmp_path, monkeypatch, left, words):
    monkeypatch.setattr(certificates, "VALID_FOR", left)
    write_certificates(tmp_path / "certificates", ["localhost"])
    deployment = Deployment(tmp_path, "small", ("a",), "localhost")
    found, troubles = _with_certificates(Status("server", reachable=True, sites={}), deployment)
    assert [word in said for word, said in zip(words, troubles, strict=True)] == [True] * len(words)
    assert all("motet deploy renew" in said for said in troubles)
    assert left.days - 1 <= found.certificates["server"].days <= left.days
    assert found.certificates["authority"].days >= 3650
