"""The run directory of a deployed run is one that `motet report` reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from motet._cli.main import call

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "flower.md"


def test_a_run_made_from_the_guide_s_own_config_can_be_reported(tmp_path, monkeypatch, capfd):
    """Its config leaves out the seed and more: the server writes all defaults down."""
    monkeypatch.chdir(tmp_path)
    (block,) = [part.split("```")[0] for part in GUIDE.read_text().split("```python\n")[1:]]
    assert "seed" not in block
    Path("guide.py").write_text(block)
    subprocess.run([sys.executable, "guide.py"], check=True, capture_output=True)
    code = call(["report", "run", "--quiet", "--out", "page.html"])
    assert code == 0, capfd.readouterr().err
    assert "fedper" in (tmp_path / "page.html").read_text()
