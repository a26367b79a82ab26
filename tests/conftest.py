"""What all tests share: hypothesis without chance, and golden values that can be rewritten."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# Some virtual machines announce matrix units (AMX) that they do not let anybody use: a product in
# bfloat16, in plain torch too, then ends the process. Read when torch first computes one.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# The same examples every time: a test that fails must fail again.
settings.register_profile("motet", derandomize=True, deadline=None, max_examples=40, database=None)
settings.load_profile("motet")


@pytest.fixture(autouse=True, scope="session")
def _no_plans_from_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What was measured on this machine before must not change what tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _no_tracebacks_asked_for_by_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """`motet --traceback` holds for its process, and all tests of a worker are one process."""
    monkeypatch.delenv("MOTET_TRACEBACK", raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs real data sets where there are none."""
    if "MOTET_DATA" not in os.environ:
        skipped = pytest.mark.skip(reason="MOTET_DATA names no folder with real data sets")
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(skipped)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare numbers with those in tests/golden, or rewrite them with --update-golden."""

    def compare(name: str, values: Any, tolerance: float = 1e-5) -> None:
        path = GOLDEN / f"{name}.json"
        if request.config.getoption("--update-golden"):
            path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        assert path.exists(), f"{path.name} is missing; make it with --update-golden"
        assert values == pytest.approx(json.loads(path.read_text()), abs=tolerance)

    return compare
