"""Data sets by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from motet import data
from motet.errors import RequestError


def test_loading_without_a_partition_takes_the_usual_one():
    federation = data.load("digits")
    assert len(federation.clients) > 1
    assert federation.classes == 10


def test_the_same_seed_gives_the_same_division_and_another_another():
    partition = data.Pathological(clients=20, classes=2)
    one, two, other = (data.load("digits", partition, seed=seed).hash for seed in (0, 0, 1))
    assert one == two != other


def test_client_ids_are_numbers_with_leading_zeros():
    clients = data.load("digits", data.IID(clients=20)).clients
    assert clients[0] == "00"
    assert list(clients) == sorted(clients)


def test_a_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match='did you mean "digits"'):
        data.load("digit")


def test_official_test_rows_cannot_be_kept_where_there_are_none():
    with pytest.raises(RequestError, match="has no official test set"):
        data.load("digits", test="official")


def test_importing_the_package_imports_no_heavy_library():
    code = (
        "import sys, motet.data; "
        "heavy = {'sklearn', 'pyarrow', 'datasets', 'rich', 'typer'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
