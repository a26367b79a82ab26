"""A site exports its own model after a deployment, without the server and the other sites."""

from __future__ import annotations

import tomllib
import warnings

import numpy as np
import pytest

import motet
from motet.config import experiment_from_dict
from motet.deploy._layout import CONFIG
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.server_loop import run_server
from motet.deploy._site_export import export_site
from motet.deploy._site_settings import SiteSettings, pinned_at
from motet.deploy._writing import Draft
from motet.errors import RequestError, StateError

with warnings.catch_warnings():  # of packages that Flower imports, about each other
    warnings.simplefilter("ignore", DeprecationWarning)
    from motet.deploy._runtime.flower_apps import FlowerTransport, client_app
    from motet.testing._loopback import LoopbackGrid


def visits():
    draw = np.random.default_rng(0)
    lines = ["site,age,sex,y"]
    for number in range(90):
        age = "?" if number % 9 == 4 else f"{draw.normal(50, 10):.1f}"
        lines.append(
            f"{('north', 'south', 'east')[number % 3]},{age},{'fm'[number // 3 % 2]},"
            f"{('ill', 'well')[number // 2 % 2]}"
        )
    return "\n".join(lines) + "\n"


def with_labels():
    """Visits with two targets of yes and no, and an input of true and false."""
    header, *rows = visits().splitlines()
    lines = [header.replace("y", "stroke,death,smokes")]
    for number, row in enumerate(rows):
        answers = (
            ("yes", "no")[number % 5 % 2],
            "01"[number % 7 % 2],
            ("TRUE", "FALSE")[number % 2],
        )
        lines.append(",".join([row.rpartition(",")[0], *answers]))
    return "\n".join(lines) + "\n"


def deploy(tmp_path, method, text=None, target="y", **options):
    """Write a deployment of a table."""
    (tmp_path / "visits.csv").write_text(text or visits())
    data = {"table": str(tmp_path / "visits.csv"), "client": "site", "target": target}
    data |= {"categorical": ["sex"], "missing": "client-median", "standardize": "site"}
    experiment = experiment_from_dict(
        {
            "method": {"name": method},
            "data": data,
            "run": {"rounds": 2, "backend": "serial", **options},
            "model": {"name": "mlp", "hidden": [4]},
        }
    )
    draft = Draft.of(experiment, tmp_path / "net", name="x", host="localhost", port=8443)
    draft.write()
    return experiment, draft.deployment


def play(place, **terms):
    """Run the deployment: real apps and messages, in this process."""
    text = (place.site("north") / CONFIG).read_text(encoding="utf-8")
    agreement = Agreement.from_text("x", text)
    nodes = {}
    for site in place.sites:
        folder, settings = place.site(site), SiteSettings.read(place.site(site))
        nodes[site] = {
            "client": site,
            "data": str(folder / settings.data),
            "state-dir": str(folder / settings.state),
            "agreed": pinned_at(folder)[0],
            "share-scores": site != "south",
        }
    grid = LoopbackGrid(client_app(), nodes, {"experiment": "x", "config": text})
    limits = ServerLimits(out=str(place.out), clients=place.sites, deadline_s=20.0, **terms)
    return run_server(agreement, limits, FlowerTransport(grid, poll_s=0.01))


@pytest.mark.parametrize("method", ["fedper", "local", "fedem", "fedavg-ft"])
def test_the_model_of_a_site_is_that_of_the_simulation(tmp_path, method):
    experiment, place = deploy(tmp_path, method)
    play(place)
    simulated = experiment.start(experiment.federation())
    for _ in range(2):
        simulated.advance()
    rows = [{"age": 61.5, "sex": "m"}, {"age": None, "sex": "F"}]
    for site in place.sites:
        exported = export_site(place.site(site), tmp_path / "models" / site, onnx=False)
        motet.export(simulated, site, tmp_path / "simulated" / site, onnx=False)
        own, wanted = (
            motet.load_predictor(tmp_path / folder / site).predict_rows(rows)
            for folder in ("models", "simulated")
        )
        np.testing.assert_allclose(own.values, wanted.values, atol=1e-5)
        assert own.labels == ("ill", "well")
        assert exported.about["round"] == 2
        assert exported.about["scores"]["test"]["examples"] > 0
        assert "3 clients trained together" in exported.card.read_text()


def test_several_targets_are_learned_in_a_deployment_as_in_the_simulation(tmp_path):
    experiment, place = deploy(tmp_path, "fedper", with_labels(), ["stroke", "death"])
    play(place)
    simulated = experiment.start(experiment.federation())
    for _ in range(2):
        simulated.advance()
    rows = [{"age": 61.5, "sex": "m", "smokes": True}, {"age": None, "sex": "F", "smokes": "no"}]
    for site in place.sites:
        export_site(place.site(site), tmp_path / "models" / site, onnx=False)
        motet.export(simulated, site, tmp_path / "simulated" / site, onnx=False)
        own, wanted = (
            motet.load_predictor(tmp_path / folder / site).predict_rows(rows)
            for folder in ("models", "simulated")
        )
        assert own.labels == ("stroke", "death")
        assert own.values.shape == (2, 2)
        np.testing.assert_allclose(own.values, wanted.values, atol=1e-5)


def test_a_site_without_a_model_is_told_how_to_get_one(tmp_path):
    _, place = deploy(tmp_path, "fedavg")
    with pytest.raises(StateError, match=r"holds no model of x: .* --evaluate-only"):
        export_site(place.site("north"), tmp_path / "model")
    with pytest.raises(RequestError, match=r"there is no trial at .* Run `motet deploy trial"):
        export_site(place.site("north"), tmp_path / "model", trial=True)


def test_what_a_site_keeps_of_another_experiment_is_not_exported(tmp_path):
    _, place = deploy(tmp_path, "fedavg", rounds=1)
    play(place)
    config = place.site("north") / CONFIG
    tables = tomllib.loads(config.read_text(encoding="utf-8"))
    config.write_text(config.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert tables == tomllib.loads(config.read_text(encoding="utf-8"))
    changed = config.read_text(encoding="utf-8").replace("rounds = 1", "rounds = 2")
    config.write_text(changed, encoding="utf-8")
    with pytest.raises(RequestError, match="one of them was changed"):
        export_site(place.site("north"), tmp_path / "model")
    file = next((place.site("south") / "state" / "x").glob("*.received"))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StateError, match=r"is damaged .* sends the model again"):
        export_site(place.site("south"), tmp_path / "model")
