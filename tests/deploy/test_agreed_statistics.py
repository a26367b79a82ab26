"""Statistics over sites in a deployment: aggregates leave, rows do not."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

from motet.config import experiment_from_dict
from motet.data import Schema, Split, from_table
from motet.deploy._layout import CONFIG
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._statistics import agree_on_statistics, write_site_statistics
from motet.deploy._writing import Draft
from motet.errors import DataError, MotetError


def visits(rng, rows, shift):
    lines = ["site,age,sex,dose,y"]
    for number in range(rows):
        site = ("north", "south", "east")[number % 3]
        age = "" if number % 7 == 3 else f"{rng.normal(50 + shift, 10):.3f}"
        sex, y = "fm"[number // 3 % 2], ("ill", "well")[number // 2 % 2]
        lines.append(f"{site},{age},{sex},{rng.normal(shift, 2):.3f},{y}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def deployment(tmp_path):
    def make(**options):
        table = tmp_path / "visits.csv"
        table.write_text(visits(np.random.default_rng(0), 90, 0))
        data = {
            "table": str(table),
            "client": "site",
            "target": "y",
            "categorical": ["sex"],
            **options,
        }
        experiment = experiment_from_dict(
            {"method": {"name": "fedavg"}, "data": data, "run": {"rounds": 1}}
        )
        draft = Draft.of(experiment, tmp_path / "net", name="x", host="localhost", port=8443)
        draft.write()
        return draft

    return make


def schema_at(deployment, site):
    config = tomllib.loads((deployment.site(site) / CONFIG).read_text(encoding="utf-8"))
    return Schema.from_dict(json.loads(config["data"]["schema"]))


@pytest.mark.parametrize("standardize", ["federation", "site", "none"])
@pytest.mark.parametrize("missing", ["mean", "client-mean", "client-median", "indicator"])
def test_a_site_reads_its_raw_rows_as_the_simulation_did(deployment, missing, standardize):
    draft = deployment(missing=missing, standardize=standardize)
    for site in draft.deployment.sites:
        folder = draft.deployment.site(site)
        config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))["data"]
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
        own = SiteData(**given).load(site, str(folder / "data.csv"))
        for split in ("train", "val", "test"):
            (x, y), (wanted_x, wanted_y) = (
                d.examples(site, split) for d in (own, draft.federation)
            )
            order, wanted = (np.lexsort(v.numpy().T) for v in (x, wanted_x))
            assert np.array_equal(x.numpy()[order], wanted_x.numpy()[wanted])
            assert np.array_equal(y.numpy()[order], wanted_y.numpy()[wanted])


def test_agreed_statistics_are_those_of_all_rows_together(deployment):
    draft = deployment(missing="mean", standardize=True)
    place, files, rows = draft.deployment, [], []
    for number, site in enumerate(place.sites):  # every site has other rows than in the run
        text = visits(np.random.default_rng(number + 1), 60, 3 * number).splitlines()
        own = [line.partition(",")[2] + ",train" for line in text[1:]]
        (place.site(site) / "data.csv").write_text("\n".join(["age,sex,dose,y,split", *own]))
        rows += [f"{site},{line}" for line in own]
        files.append(write_site_statistics(place.site(site)))
    assert agree_on_statistics(place, files[::-1]) == place.sites
    agreed = schema_at(place, "north")
    everything = from_table(
        _columns(rows),
        client="site",
        target="y",
        categorical=["sex"],
        missing="mean",
        standardize=True,
        split=Split(0, 0),
    ).schema
    assert agreed.fills == everything.fills
    assert agreed.scaling == everything.scaling
    assert [c.low for c in agreed.columns] == [c.low for c in everything.columns]
    project = tomllib.loads((place.app / "pyproject.toml").read_text())
    sent = tomllib.loads(project["tool"]["flwr"]["app"]["config"]["config"])["data"]
    assert Schema.from_dict(json.loads(sent["schema"])) == agreed


def _columns(rows):
    names = ("site", "age", "sex", "dose", "y")
    cells = [row.split(",")[:5] for row in rows]
    return {name: [cell[place] for cell in cells] for place, name in enumerate(names)}


def test_a_site_page_lists_the_columns_and_the_aggregates(deployment):
    draft = deployment(missing="mean")
    page = (draft.deployment.site("north") / "README.md").read_text()
    assert "| `age` | number |" in page
    assert "| `sex` | category |" in page
    assert "`spread`: sum of their squared distances from the mean" in page


def test_aggregates_of_strangers_and_nonsense_are_refused(deployment, tmp_path):
    place = deployment(missing="mean").deployment
    file = write_site_statistics(place.site("north"))
    sent = json.loads(file.read_text())
    for contents in ("[]", "{", json.dumps({**sent, "sites": ["west"]}), "{}"):
        wrong = tmp_path / "wrong.json"
        wrong.write_text(contents)
        with pytest.raises(MotetError):
            agree_on_statistics(place, [wrong])
    with pytest.raises(DataError, match="twice"):
        agree_on_statistics(place, [file, file])
