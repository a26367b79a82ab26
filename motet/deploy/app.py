"""The Flower app that is submitted: two shims, and the experiment as text."""

from __future__ import annotations

import tomli_w

from motet.deploy.layout import PACKAGE, Deployment

FLOWER = "flwr>=1.40,<1.42"
SIDES = ("server", "client")
SHIM = '''"""The {side} of this experiment; everything about it is in the run config."""

from motet.backends.flower_apps import {side}_app

app = {side}_app()
'''


def write_app(deployment: Deployment, config: str) -> None:
    """Write the app. Of packages it names Flower alone: sites install what they trust."""
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
    """List every setting that a run may have: Flower refuses others."""
    return {
        "experiment": deployment.experiment,
        "out": "",
        "clients": ",".join(deployment.sites),
        "min-clients": 1,
        "deadline-s": 600.0,
        "attempts": 3,
        "config": config,
    }
