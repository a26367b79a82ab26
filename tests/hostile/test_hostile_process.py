"""The worst inputs against a real process, which may not have more memory than is stated."""

import os
import subprocess
import sys

import pytest
from victims import CONFIG, TABLE

PEAK = 768 * 2**20  # bytes resident, most of them torch's
SPACE = 8 * 2**30  # of addresses; beyond it an allocation fails
# The kernel's own peak, written at the end: `wait4` would count what we have forked from.
LIMITED = f"""
import atexit, pathlib, resource
resource.setrlimit(resource.RLIMIT_AS, ({SPACE}, {SPACE}))
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: pathlib.Path("status").write_bytes(status.read_bytes()))
"""

WORST = {
    "a network of terabytes": (CONFIG.replace("[4]", "[100000, 100000, 100000, 100000]"), TABLE),
    "a trillion epochs": (CONFIG.replace("epochs = 1", "epochs = 1000000000000"), TABLE),
    "lists without an end": ("x = " + "[" * 900_000, TABLE),
    "a cell of 20 MB": (CONFIG, TABLE + f"a,{'9' * 20_000_000},1,1\n"),
    "twenty thousand columns": (CONFIG, TABLE.replace("dose", "," * 20_000)),
}


@pytest.mark.parametrize("what", WORST)
def test_the_worst_inputs_get_a_sentence_within_the_stated_memory(tmp_path, what):
    config, table = WORST[what]
    (tmp_path / "c.toml").write_text(config)
    (tmp_path / "t.csv").write_text(table)
    command = [sys.executable, "-c", f"{LIMITED}from motet._cli.main import main; main()"]
    done = subprocess.run(
        [*command, "run", "c.toml", "--out", "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr[:7]) == (2, "error: "), done.stderr[-500:]
    assert "unexpected" not in done.stderr
    assert peak(tmp_path / "status") < PEAK
    assert {path.name for path in tmp_path.iterdir()} == {"c.toml", "t.csv", "status"}


def peak(status):
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])
