"""Environment variables of Flower's processes: no telemetry, no update checks, no installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SWITCHES: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",  # else each process reports to telemetry.flower.ai
    "FLWR_DISABLE_UPDATE_CHECK": "1",  # else each process asks api.flower.ai for a newer version
    # Else the SuperLink runs `uv sync` for whatever a submitted run lists as its dependencies.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def environment(home: Path, **more: str) -> dict[str, str]:
    """Make the environment of one process; `home` is the folder for its own files."""
    programs = f"{program_folder()}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"FLWR_HOME": str(home), "PATH": programs, "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **SWITCHES, **own, **more}


def program_folder() -> Path:
    """Return the folder of this environment's programs: Flower starts further ones by name."""
    return Path(sys.executable).parent
