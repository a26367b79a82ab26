"""The commands of the tutorial run, one after another, as a reader would run them."""

import csv
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

CALL = "from motet._cli.entry import main; main()"
PAGE = Path(__file__).parent.parent / "docs" / "tutorials" / "hospital.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def script(port):
    """The blocks of the page as one script; `motet` is the one that is tested."""
    lines = ["set -euo pipefail", "set -m", f'motet() {{ "{sys.executable}" -c "{CALL}" "$@"; }}']
    for kind, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        is_shell = kind == "sh"
        lines.append(code if is_shell else f"\"{sys.executable}\" - <<'PYTHON'\n{code}PYTHON")
    return "\n".join(lines).replace("8000", str(port)).replace("do sleep 1", "do sleep 0.2")


def test_the_commands_of_the_tutorial_run_from_raw_files_to_a_served_prediction(tmp_path):
    root = str(PAGE.parent.parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        ["bash", "-c", script(free_port())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["patient"] for row in rows] == ["b-900", "b-901", "b-902"]
    assert {row["prediction"] for row in rows} <= {"ill", "well"}
    assert [row["remarks"] for row in rows] == [
        "",
        "marker: missing, filled",
        "sex: unknown category; marker: outside the training range",
    ]
    assert '"probabilities":{"ill":' in done.stdout
    assert sorted(p.name for p in (tmp_path / "models").glob("basel*")) == [
        "basel.md",
        "basel.safetensors",
    ]
    assert "better than FedAvg" in (tmp_path / "models" / "basel.md").read_text()
