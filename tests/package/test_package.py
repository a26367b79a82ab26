"""The package as users get it: built twice alike, and installed without extras."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from core_only import closure

import motet

pytestmark = pytest.mark.package
ROOT = Path(__file__).parents[2]
LINKER = Path(__file__).parent / "core_only.py"
PAGE = ROOT / "docs" / "start" / "first-report.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
BUILD = "import sys; from hatchling import build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
EPOCH = "1700000000"


def built(kind, folder):
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("built") / "wheel")


def test_the_wheel_is_the_same_bytes_twice(wheel, tmp_path):
    assert built("wheel", tmp_path / "again").read_bytes() == wheel.read_bytes()


def test_the_source_archive_is_the_same_bytes_twice(tmp_path):
    one, two = (built("sdist", tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        names = archive.getnames()
    top = f"motet-{motet.__version__}"
    for file in ("pyproject.toml", "LICENSE", "constraints.txt", "tests/test_docs.py"):
        assert f"{top}/{file}" in names


def test_the_wheel_holds_the_package_its_stubs_its_templates_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tracked = subprocess.run(
        ["git", "ls-files", "motet"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    packaged = {name for name in names if not name.startswith("motet-")}
    assert {"motet/py.typed", "motet/__init__.pyi"} <= packaged
    assert not any("__pycache__" in name for name in packaged)
    if tracked:  # not in an unpacked source archive
        assert packaged >= set(tracked)


def test_a_newcomer_gets_from_the_wheel_to_a_report_by_following_the_page(wheel, tmp_path):
    """Run the commands of the page, in an environment that has the required packages only."""
    first, *rest = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    (tmp_path / "constraints.txt").write_bytes((ROOT / "constraints.txt").read_bytes())
    site = "$(python -c 'import site; print(site.getsitepackages()[0])')"
    linked = f'"{sys.executable}" "{LINKER}" "{site}"'
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", first, linked, *rest])],
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MOTET"))},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PIP_NO_INDEX": "1",  # what the page needs beside the wheel is there already
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(hospital in page for hospital in ("basel", "lyon", "porto", "turin"))
    for extra in ("datasets", "onnx", "flwr", "ray"):
        assert extra not in closure("motet")
    assert "not installed; pip install 'motet[onnx]'" in done.stdout
