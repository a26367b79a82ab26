"""`motet deploy init`: the files are complete and correct, and secrets are protected."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tomllib

import numpy as np
import pytest
from federation import small_experiment, write_deployment

from motet._core import tree
from motet.config import experiment_from_dict
from motet.deploy._layout import Deployment
from motet.deploy._loopback import free_ports
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.rehearsal import Rehearsal
from motet.deploy._site_settings import SiteSettings
from motet.deploy._sitecheck import check_site
from motet.deploy._start import prepared
from motet.deploy._submission import app_settings
from motet.errors import DataError, RequestError, StateError


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    path = tmp_path_factory.mktemp("init") / "small"
    return write_deployment(path, host="fl.example.org", superlink_port=free_ports(1)[0])


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
    up = Rehearsal(agreement.setting(agreement.empty_federation(draft.deployment.sites))).up()
    expected = {
        tree.readable(name): (list(leaf.shape), leaf.numel() * leaf.element_size())
        for name, leaf in tree.flatten(up)
    }
    assert tensors_on(page, "**Sent in each round**") == expected


def test_a_fedper_site_s_page_does_not_list_its_head_among_what_leaves(folder):
    page = (folder / "sites" / "0" / "README.md").read_text()
    assert not [name for name in tensors_on(page, "**Sent in each round**") if "head" in name]
    assert "stay in `state/`, on your disk, and are in no message: `head" in page


def test_a_fedfomo_site_s_page_says_that_its_model_leaves_and_who_receives_it(tmp_path):
    draft = write_deployment(tmp_path / "d", small_experiment("fedfomo"))
    page = (draft.deployment.site("0") / "README.md").read_text()
    kept = page.split("are also sent as they are, in some round: ")[1].splitlines()[0]
    assert "current/" in kept
    assert "can pass a part of it on to other sites as it is" in page


def test_a_site_is_started_with_the_hash_of_the_experiment_that_it_agreed_to(draft, folder):
    site, settings = folder / "sites" / "0", app_settings(draft.deployment)
    pinned, name = (site / "experiment.sha256").read_text().split()
    assert name == draft.deployment.experiment
    assert pinned == Agreement.from_run_config(settings).agreed
    assert f'agreed="{pinned}"' in " ".join(SiteSettings.read(site).command(site, pinned))
    assert pinned in (site / "README.md").read_text()


def test_a_changed_experiment_is_found_by_the_check_of_a_site(draft, tmp_path):
    folder = tmp_path / "0"
    shutil.copytree(draft.deployment.site("0"), folder)
    check_site(folder)
    config = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(config.replace("rounds = 3", "rounds = 300"))
    with pytest.raises(RequestError, match=r"experiment.toml has the hash .* was changed"):
        check_site(folder)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_no_other_account_can_enter_a_deployment_or_the_folder_of_a_site(folder):
    for path in (folder, *(folder / "sites").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    units = [path.read_text() for path in folder.rglob("*.service")]
    assert all("UMask=0077" in unit for unit in units)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_every_private_file_is_its_owner_s_alone(folder):
    secrets = [*folder.rglob("*.key"), *folder.rglob("*.secret")]
    assert len(secrets) == 4 + 2 + 1  # sites, authority and server, executor
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


def test_no_two_sites_have_the_same_key(folder):
    keys = {path.read_text() for path in folder.glob("sites/*/site.key.pub")}
    assert len(keys) == 4


def test_what_is_started_has_tls_and_keys_and_sends_no_telemetry(draft, folder):
    units = "".join(path.read_text() for path in (folder / "systemd").iterdir())
    containers = (folder / "sites" / "0" / "Containerfile").read_text()
    for text in (units, containers):
        assert "FLWR_TELEMETRY_ENABLED=0" in text
        assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in text
    assert units.count("Restart=always\nRestartSec=15") == 3
    assert "--resumable" in units
    site = folder / "sites" / "0"
    for program in (
        prepared(folder, resumable=True).command,
        SiteSettings.read(site).command(site, "hash"),
    ):
        assert "--insecure" not in program
        assert "--host 127.0.0.1" in " ".join(program)
    assert "--enable-supernode-auth" in prepared(folder).command
    assert "--isolation process" in " ".join(prepared(folder, resumable=True).command)
    assert f"--auth-supernode-private-key {site}/site.key" in " ".join(program)
    assert "--superlink fl.example.org:8443" in " ".join(program)


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
    for word in ("`age`", "`dose`", "`sex`", "`f`, `m`", "outcome", "one of ill, well"):
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
