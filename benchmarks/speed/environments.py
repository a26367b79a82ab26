"""An environment per family of contestants, made once with pip."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

TORCH = "torch==2.13.0"
NEEDS = {
    # FedJAX calls what JAX has removed since, so its fastest JAX is an old one.
    "fedjax": [
        [
            "jax==0.4.25",
            "jaxlib==0.4.25",
            "numpy<2",
            "scipy<1.13",
            "optax<0.2.3",
            "dm-haiku<0.0.13",
        ],
        [
            "fedjax==0.0.17",
            "jax==0.4.25",
            "numpy<2",
            "scipy<1.13",
            "optax<0.2.3",
            "dm-haiku<0.0.13",
            "chex<0.1.87",
            "flax<0.9",
            "psutil",
        ],
    ],
    "jax": [["jax==0.10.2", "jaxlib==0.10.2", "psutil"]],
    "pfl": [[TORCH], [TORCH, "pfl==0.6.0", "psutil"]],
    "flower": [[TORCH], [TORCH, "flwr[simulation]==1.41.0", "psutil"]],
}


def python_of(name: str, home: Path) -> str:
    """Return the interpreter of an environment, after making it if need be."""
    if name == "motet":
        return sys.executable
    folder = home / "environments" / name
    python, done = folder / "bin" / "python", folder / "made-from"
    wanted = repr(NEEDS[name])
    if not done.exists() or done.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        for packages in NEEDS[name]:  # torch first and pinned, so that nothing replaces it
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        done.write_text(wanted)
    return str(python)
