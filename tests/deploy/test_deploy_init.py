"""`motet deploy init`: what is written is complete, secret where it must be, and true."""

from __future__ import annotations

import os
import re
import stat
import tomllib

import numpy as np
import pytest
from federation import small_experiment, write_deployment

from motet import tree
from motet.config import experiment_from_dict
from motet.deploy.layout import Deployment
from motet.deploy.sitecheck import check_site
from motet.errors import DataError, RequestError, StateError
from motet.remote.agreement import Agreement
from motet.remote.rehearsal import Rehearsal


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    return write_deployment(tmp_path_factory.mktemp("init") / "small", host="fl.example.org")


@pytest.fixture(scope="module")
def folder(draft):
    return draft.deployment.path


def test_the_record_can_be_read_back(draft, folder):
    assert Deployment.open(folder) == draft.deployment


def test_the_app_agrees_with_the_run_it_was_made_from(draft, folder):
    project = tomllib.loads((folder / "app" / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    agreement = Agreement.from_run_config(config)
    assert agreement.method == draft.experiment.method
    assert agreement.run.rounds == draft.experiment.run.rounds
    assert project["project"]["dependencies"] == ["flwr>=1.40,<1.42"]


def test_the_app_holds_nothing_secret(folder):
    kinds = {path.suffix for path in (folder / "app").rglob("*") if path.is_file()}
    assert kinds == {".py", ".toml"}
    text = "".join(p.read_text() for p in (folder / "app").rglob("*") if p.is_file())
    assert "PRIVATE KEY" not in text


@pytest.mark.parametrize("client", ["0", "3"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_site_s_examples_are_those_of_its_client_in_the_run(draft, folder, client, split):
    config = (folder / "sites" / client / "experiment.toml").read_text()
    site = Agreement.from_text("x", config).sites.load(client, str(draft.deployment.data(client)))
    expected, came = draft.federation.examples(client, split), site.examples(client, split)
    assert np.array_equal(expected.x, came.x)
    assert np.array_equal(expected.y, came.y)


def tensors_on(page, title):
    part = page.split(title)[1].split("**")[0].split("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| \[(.*?)\] \| (\w+) \| (\d+) \|$", part, re.MULTILINE)
    return {
        name: ([int(n) for n in shape.split(",") if n], int(size)) for name, shape, _, size in rows
    }


@pytest.mark.parametrize("method", ["fedper", "scaffold", "fedfomo", "ifca"])
def test_a_site_s_page_lists_exactly_what_crosses_the_network(method, tmp_path):
    draft = write_deployment(tmp_path / "d", small_experiment(method))
    page = (draft.deployment.site("0") / "README.md").read_text()
    agreement = Agreement.from_text("x", draft.config)
    up = Rehearsal(agreement.setting(agreement.outline(draft.deployment.sites))).up()
    expected = {
        tree.readable(name): (list(leaf.shape), leaf.numel() * leaf.element_size())
        for name, leaf in tree.flatten(up)
    }
    assert tensors_on(page, "**Sent in each round**") == expected


def test_a_fedper_site_s_page_does_not_list_its_head_among_what_leaves(folder):
    page = (folder / "sites" / "0" / "README.md").read_text()
    assert not [name for name in tensors_on(page, "**Sent in each round**") if "head" in name]
    assert "the last layers" in page


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_every_private_file_is_its_owner_s_alone(folder):
    secrets = [*folder.rglob("*.key"), *folder.rglob("*.secret")]
    assert len(secrets) == 4 + 2 + 1  # sites, authority and server, executor
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


def test_no_two_sites_have_the_same_key(folder):
    keys = {path.read_text() for path in folder.glob("sites/*/site.key.pub")}
    assert len(keys) == 4


def test_what_is_started_has_tls_and_keys_and_calls_nobody(folder):
    server = (folder / "server.sh").read_text()
    units = "".join(path.read_text() for path in (folder / "systemd").iterdir())
    for text in (server, units):
        assert "--enable-supernode-auth" in text
        assert "--insecure" not in text
        assert "--host 127.0.0.1" in text
        assert "FLWR_TELEMETRY_ENABLED=0" in text
        assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in text
    assert units.count("Restart=always\nRestartSec=15") == 4
    assert "--isolation process" in units
    site = (folder / "sites" / "0" / "start.sh").read_text()
    assert "--auth-supernode-private-key site.key" in site
    assert "--superlink fl.example.org:8443" in site


def test_nginx_forwards_the_fleet_interface_and_nothing_else(folder):
    text = (folder / "nginx.conf").read_text()
    assert re.findall(r"location (.*?) \{", text) == ["~ ^/v1/fleet/[a-z-]+$", "/"]
    assert "location / { return 404; }" in text
    assert text.count("proxy_pass") == 1


# -- tables -------------------------------------------------------------------


@pytest.fixture(scope="module")
def table_draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    lines = ["hospital,age,dose,sex,outcome"]
    for row in range(60):
        age, dose = 20 + rng.integers(60), rng.normal()
        lines.append(f"h{row % 3},{age},{dose:.7f},{'fm'[row % 2]},{'ill' if dose > 0 else 'well'}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    experiment = experiment_from_dict(
        {
            "method": {"name": "fedper", "personal": ["head"]},
            "model": {"name": "mlp", "hidden": [4]},
            "data": {
                "table": str(folder / "visits.csv"),
                "client": "hospital",
                "target": "outcome",
                "categorical": ["sex"],
                "standardize": True,
            },
        }
    )
    return write_deployment(folder / "deployed", experiment)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_table_becomes_a_table_per_site_with_the_same_numbers(table_draft, split):
    draft = table_draft
    place = draft.deployment.data("h1")
    assert place.name == "data.csv"
    site = Agreement.from_text("x", draft.config).sites.load("h1", str(place))
    expected, came = draft.federation.examples("h1", split), site.examples("h1", split)
    np.testing.assert_allclose(came.x, expected.x, rtol=1e-6)
    assert np.array_equal(expected.y, came.y)


def test_a_table_site_s_page_names_its_columns_and_labels(table_draft):
    page = (table_draft.deployment.site("h1") / "README.md").read_text()
    for word in ("age", "dose", "sex=f", "sex=m", "outcome", "one of ill, well"):
        assert word in page
    assert "h0" not in (table_draft.deployment.site("h1") / "data.csv").read_text()


def test_a_site_can_check_its_own_table(table_draft):
    folder = table_draft.deployment.site("h2")
    assert sum(check_site(folder).values()) == 20
    path = folder / "data.csv"
    path.write_text(path.read_text().replace("ill", "sick"))
    with pytest.raises(DataError, match="sick"):
        check_site(folder)


# -- refusals -----------------------------------------------------------------


def test_a_directory_that_holds_something_is_refused(folder, tmp_path):
    with pytest.raises(StateError, match="already holds a deployment"):
        write_deployment(folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StateError, match="is not empty"):
        write_deployment(tmp_path)


def test_a_client_whose_name_cannot_name_a_site_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text('c,x,y\n"a,b",1.0,0\n"a,b",2.0,1\n"a,b",2.0,1\n')
    data = {"table": str(tmp_path / "t.csv"), "client": "c", "target": "y", "val": 0, "test": 0}
    experiment = experiment_from_dict({"method": {"name": "fedavg"}, "data": data})
    with pytest.raises(RequestError, match="'a,b' cannot name a site"):
        write_deployment(tmp_path / "d", experiment)
    assert not (tmp_path / "d").exists()
