"""Statistics over sites in a deployment: aggregates leave, rows do not."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from motet.config import experiment_from_dict
from motet.data import Schema, Split, from_table
from motet.data._tables.options import filling_of
from motet.deploy._layout import CONFIG
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._sitecheck import check_site
from motet.deploy._statistics import agree_on_statistics, write_site_statistics
from motet.deploy._writing import Draft
from motet.errors import DataError, MotetError, RequestError


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


def test_a_row_of_sums_in_a_site_s_table_is_left_out(deployment):
    draft = deployment(missing="mean")
    path = draft.deployment.site("north") / "data.csv"
    config = tomllib.loads((path.parent / CONFIG).read_text(encoding="utf-8"))["data"]
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    plain = SiteData(**given).read_rows(path, "north")
    table = plain.opened.table
    ages, doses = (sum(filter(None, table[name].to_pylist())) for name in ("age", "dose"))
    footer = {"age": f"{ages:.9f}", "dose": f"{doses:.9f}", "sex": "Total"}
    last = ",".join(footer.get(name, "") for name in table.column_names)
    path.write_text(path.read_text() + last + "\n")
    summed = SiteData(**given).read_rows(path, "north")
    assert summed.opened.table.to_pylist() == table.to_pylist()
    assert summed.rows["train"].tolist() == plain.rows["train"].tolist()
    assert "sums the others up" in summed.opened.left_out[0]


FILLED = ["mean", "median", "indicator", "client-mean", "client-median", 7.0]


@pytest.mark.parametrize("missing", FILLED)
def test_agreed_statistics_are_those_of_all_rows_together(deployment, missing):
    options = {"missing": missing, "standardize": True, "rare": 2}
    place, rows = deployment(**options).deployment, []
    for number, site in enumerate(place.sites):  # every site has other rows than in the run
        text = visits(np.random.default_rng(number + 1), 60, 3 * number).splitlines()
        own = [line.partition(",")[2] + ",train" for line in text[1:]]
        # Categories that the run did not have: one at a single site, and one that is rare.
        own[5] = own[5].replace(",f,", ",divers,").replace(",m,", ",divers,")
        own[6] = own[6].replace(",f,", f",code {number},").replace(",m,", f",code {number},")
        (place.site(site) / "data.csv").write_text("\n".join(["age,sex,dose,y,split", *own]))
        rows += [f"{site},{line}" for line in own]
    found, exchanges = ask_all(place)
    assert found.sites == place.sites
    assert found.categories == {"sex": ("divers",)}
    assert exchanges == (1 if filling_of(missing, indicators=False).by != "median" else 3)
    agreed = schema_at(place, "north")
    everything = from_table(
        _columns(rows),
        client="site",
        target="y",
        categorical=["sex"],
        split=Split(0, 0),
        **options,
    ).schema
    assert agreed == replace(everything, site_fills={}, site_scaling={}, client="site")
    assert agreed.column("sex").categories == ("divers", "f", "m")
    assert agreed.column("sex").other
    project = tomllib.loads((place.app / "pyproject.toml").read_text())
    sent = tomllib.loads(project["tool"]["flwr"]["app"]["config"]["config"])["data"]
    assert Schema.from_dict(json.loads(sent["schema"])) == agreed
    assert check_site(place.site("north"))["train"] == 60  # and its network has the new inputs
    assert not list(place.path.rglob("questions.json"))


def ask_all(place):
    """Exchange files with the sites until nothing is left to ask."""
    for exchanges in range(1, 10):
        files = [write_site_statistics(place.site(site))[0] for site in place.sites]
        found = agree_on_statistics(place, files[::-1])
        if not found.asked:
            return found, exchanges
    raise AssertionError


def test_a_site_that_has_sent_nothing_keeps_its_categories(deployment):
    place = deployment(missing="mean").deployment
    table = place.site("north") / "data.csv"
    table.write_text(table.read_text().replace(",f,", ",x,").replace(",m,", ",x,"))
    agree_on_statistics(place, [write_site_statistics(place.site("north"))[0]])
    assert schema_at(place, "south").column("sex").categories == ("f", "m", "x")


def test_answers_to_another_question_are_refused(deployment):
    place = deployment(missing="median").deployment
    files = [write_site_statistics(place.site(site))[0] for site in place.sites]
    assert agree_on_statistics(place, files).asked == 2
    write_site_statistics(place.site("north"))
    with pytest.raises(RequestError, match=r'statistics of "east" do not answer .* deploy stat'):
        agree_on_statistics(place, files)
    for site in place.sites:
        write_site_statistics(place.site(site))
    table = place.site("north") / "data.csv"
    table.write_text(table.read_text() + "50,f,1,ill,train\n")
    write_site_statistics(place.site("north"))
    with pytest.raises(DataError, match="the rows or the sites changed"):
        agree_on_statistics(place, files)


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
    assert "`categories`: each category as it is spelled" in page
    assert "`at_most`" not in page


def test_a_site_page_lists_what_medians_need(deployment):
    page = (deployment(missing="client-median").deployment.site("north") / "README.md").read_text()
    assert "`median`: the site's own median" in page
    assert "`at_most`: once the operator has sent questions.json" in page


def test_aggregates_of_strangers_and_nonsense_are_refused(deployment, tmp_path):
    place = deployment(missing="mean").deployment
    file, _ = write_site_statistics(place.site("north"))
    sent = json.loads(file.read_text())
    for contents in ("[]", "{", json.dumps({**sent, "site": "west"}), "{}"):
        wrong = tmp_path / "wrong.json"
        wrong.write_text(contents)
        with pytest.raises(MotetError):
            agree_on_statistics(place, [wrong])
    with pytest.raises(DataError, match="twice"):
        agree_on_statistics(place, [file, file])
