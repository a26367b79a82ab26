"""The Flower app of a deployment: two one-line modules, and the experiment as text."""

from __future__ import annotations

import tomli_w

from motet.deploy._layout import PACKAGE, Deployment
from motet.deploy._runtime.replies import MOST_EXAMPLES

FLOWER = "flwr>=1.40,<1.42"
SIDES = ("server", "client")
SHIM = '''"""The {side} app of this experiment, which is described by the run config."""

from motet.deploy import {side}_app

app = {side}_app()
'''


def write_app(deployment: Deployment, config: str) -> None:
    """Write the app. Its only dependency is Flower: sites install the packages that they trust."""
    package = deployment.app / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A Flower app, written by Motet."""\n')
    for side in SIDES:
        (package / f"{side}_app.py").write_text(SHIM.format(side=side))
    about = {
        "publisher": "motet",
        "components": {f"{side}app": f"{PACKAGE}.{side}_app:app" for side in SIDES},
        "config": _settings(deployment, config),
    }
    project = {"name": "motet-app", "version": "1.0.0", "license": "Apache-2.0"}
    described = {
        "project": {**project, "dependencies": [FLOWER]},
        "tool": {"flwr": {"app": about}},
    }
    text = tomli_w.dumps(described, multiline_strings=True)
    (deployment.app / "pyproject.toml").write_text(text, encoding="utf-8")


def _settings(deployment: Deployment, config: str) -> dict[str, object]:
    """List every setting that a run may override: Flower refuses others."""
    return {
        "experiment": deployment.experiment,
        "out": "",
        "clients": ",".join(deployment.sites),
        "min-clients": 1,
        "deadline-s": 600.0,
        "attempts": 3,
        "max-examples": MOST_EXAMPLES,
        "evaluate-only": False,
        "cross-site": False,
        "config": config,
    }
