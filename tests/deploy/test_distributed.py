"""The real programs on loopback: SuperLink, path filter and four sites, over TLS with keys."""

from __future__ import annotations

import json
import shutil
import ssl
import stat
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from federation import (
    Programs,
    add_setting,
    await_that,
    custom_app,
    hostile_app,
    write_deployment,
)
from safetensors.torch import save_file

from motet._engine.records import read_scores
from motet.config import experiment_from_dict, write_tables
from motet.deploy import _commands as commands
from motet.deploy._certificates import write_certificates
from motet.deploy._control import Control
from motet.deploy._examples import agreed_data
from motet.deploy._keys import write_site_key
from motet.deploy._layout import BASE, LOOPBACK
from motet.deploy._loopback import free_ports
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.directory import read_server
from motet.deploy._runtime.private import PrivateFile
from motet.deploy._site_settings import SiteSettings
from motet.errors import StateError
from motet.methods._catalog import method_class
from motet.testing._comparing import require_close

pytestmark = pytest.mark.distributed

# A message for each site, and state on both sides. All methods are compared in one process, in
# tests/flower.
METHODS = ("fedfomo", "scaffold")
ROUNDS = 2


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    draft = write_deployment(tmp_path_factory.mktemp("deploy") / "small")
    first = draft.deployment.site("0")
    replace(SiteSettings.read(first), cross_site=True).write(first)
    return draft


@pytest.fixture(scope="module")
def bases(draft, tmp_path_factory):
    """Give every site a file of frozen weights; that of site 3 has other values."""
    folder = tmp_path_factory.mktemp("bases")
    experiment = experiment_from_dict(adapter_tables(draft))
    frozen = experiment.resolved(draft.federation).model.task(draft.federation).frozen
    for place, site in enumerate(draft.deployment.sites):
        shift = 0.2 if place == 3 else 0.1
        file = draft.deployment.site(site) / BASE
        save_file({name: leaf + shift for name, leaf in frozen.items()}, file)
        settings = SiteSettings.read(file.parent)
        replace(settings, base=BASE).write(file.parent)
    shutil.copy(draft.deployment.site("0") / BASE, folder)
    return folder / BASE


def adapter_tables(draft, **model):
    tables = draft.experiment.to_dict()
    tables["run"] |= {"rounds": 1, "evaluate_every": 1}
    tables["method"] = {"name": "fedsim", "personal": "lora_B"}
    tables["model"] = {"name": "motet.models:adapted", "of": "mlp", "hidden": [8], "rank": 2}
    tables["model"] |= model
    return tables


@pytest.fixture(scope="module")
def programs(draft, bases, tmp_path_factory):
    with Programs(draft.deployment, tmp_path_factory.mktemp("programs")) as running:
        running.begin(draft.deployment.sites)
        yield running


def config_for(draft, name, rounds=ROUNDS):
    """The config of the deployment, with another method."""
    experiment = replace(draft.experiment, method=method_class(name)())
    tables = experiment.to_dict()
    tables["run"] |= {"rounds": rounds, "evaluate_every": rounds}
    return write_tables({**tables, "data": agreed_data(experiment.data, draft.federation)})


def oracle_of(draft, name, rounds=ROUNDS):
    """The same experiment in one process, client by client."""
    run = replace(draft.experiment.run, rounds=rounds, backend="serial")
    experiment = replace(draft.experiment, method=method_class(name)(), run=run)
    oracle = experiment.start(draft.federation)
    for _ in range(rounds):
        oracle.advance()
    return oracle


def require_agreement(programs, draft, name, experiment, out):
    """Server and sites end in the same state as the same experiment in one process."""
    oracle = oracle_of(draft, name)
    agreement = Agreement.from_text(experiment, config_for(draft, name))
    setting = agreement.setting(agreement.empty_federation(draft.deployment.sites))
    served = read_server(out, agreement)
    require_close(oracle.server, served, f"{name}: the server's state", 1e-5)
    for site in draft.deployment.sites:
        kept = kept_at(programs, agreement, setting, site)
        require_close(oracle.clients[site], kept.after, f"{name}: what {site} keeps", 1e-5)
    scores = {s.client: s.loss for s in read_scores(out / "clients.parquet") if s.split == "test"}
    expected = {row.client: row.loss for row in oracle.evaluate("test").rows}
    assert scores == pytest.approx(expected, abs=1e-5), name


def kept_at(programs, agreement, setting, site):
    folder = programs.folder / "state" / site
    private = PrivateFile.of(folder, agreement.experiment, site, agreement.agreed)
    return private.read(setting.fresh_client(site))


# -- agreement ----------------------------------------------------------------


@pytest.fixture(scope="module")
def agreed_run(programs, draft, tmp_path_factory):
    """One run of every method; returns its folder."""
    app = custom_app(draft.deployment, tmp_path_factory.mktemp("bundle") / "app", "bundling")
    add_setting(app, "experiments", "")
    experiments = json.dumps({name: config_for(draft, name) for name in METHODS})
    programs.completed(programs.submit("bundle", app=app, experiments=experiments))
    return programs.folder / "bundle"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_agrees_with_serial_over_tls_with_keys(name, agreed_run, programs, draft):
    out = agreed_run / name
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [len(line["replied"]) for line in lines] == [4] * ROUNDS
    require_agreement(programs, draft, name, name, out)


def test_sites_read_frozen_weights_from_their_own_files_and_others_are_refused(
    programs, draft, bases
):
    experiment = experiment_from_dict(adapter_tables(draft, base=str(bases)))
    complete = experiment.resolved(draft.federation)
    data = agreed_data(complete.data, draft.federation)
    config = write_tables({**complete.to_dict(), "data": data})
    programs.completed(programs.submit("adapters", config=config, clients="0,3"))
    (line,) = programs.rounds("adapters")
    task = complete.model.task(draft.federation)
    wrong = replace(complete.model, base=str(draft.deployment.site("3") / BASE))
    assert line["replied"] == ["0"]
    for hashed in (task.frozen_hash, wrong.task(draft.federation).frozen_hash):
        assert hashed in line["rejected"]["3"]
    shared = set(task.names) - task.select("lora_B")
    served = read_server(programs.folder / "adapters", Agreement.from_text("adapters", config))
    assert served.keys() == shared
    size = sum(leaf.nbytes for leaf in served.values())
    assert (line["bytes_up"], line["bytes_down"]) == (size, 2 * size)


# -- who may do what ----------------------------------------------------------


def stranger(programs, method, path):
    """Call the public port with nothing but the authority's certificate; return the status."""
    authority = programs.deployment.certificates / "ca.crt"
    url = f"https://{LOOPBACK}:{programs.port}{path}"
    request = urllib.request.Request(
        url,
        data=b"" if method == "POST" else None,
        method=method,
        headers={"content-type": "application/protobuf", "accept": "application/protobuf"},
    )
    trust = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(request, context=trust, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-runs",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "//v1/control/list-runs",
        "/docs",
        "/health",
    ],
)
def test_a_stranger_reaches_nothing_but_the_fleet_interface(programs, path):
    assert stranger(programs, "POST", path) == 404
    assert stranger(programs, "GET", path) in (404, 405)


def test_a_stranger_without_a_key_is_turned_away_at_the_fleet_interface(programs):
    assert stranger(programs, "POST", "/v1/fleet/pull-messages") == 401


def test_a_stranger_can_neither_list_nor_start_runs_while_the_operator_can(
    programs, draft, tmp_path
):
    authority = draft.deployment.certificates / "ca.crt"
    outside = Control.of(tmp_path / "outside", f"{LOOPBACK}:{programs.port}", authority)
    before = {run.number for run in programs.control.runs()}
    with pytest.raises(StateError):
        outside.runs()
    settings = tmp_path / "settings.toml"
    settings.write_text('experiment = "stolen"\n')
    with pytest.raises(StateError):
        outside.submit(draft.deployment.app, settings)
    assert {run.number for run in programs.control.runs()} == before


def try_site(programs, folder):
    """Start a site from a folder that was tampered with, and return its exit code."""
    server = f"{LOOPBACK}:{programs.port}"
    name = f"intruder-{folder.name}"
    programs._start(name, commands.supernode(folder, server=server, port=free_ports(1)[0]))
    await_that(lambda: name in programs.processes.ended())
    code = programs.processes.ended()[name]
    programs.processes.kill(name)
    return code


@pytest.fixture
def copied_site(programs, tmp_path):
    return shutil.copytree(programs.deployment.site("0"), tmp_path / "copy")


def test_a_site_with_a_key_that_is_not_registered_is_refused(programs, copied_site):
    write_site_key(copied_site / "site.key")
    before = {node.number for node in programs.control.nodes()}
    assert try_site(programs, copied_site) != 0
    assert {node.number for node in programs.control.nodes()} == before


def test_a_site_that_trusts_another_authority_does_not_connect(programs, copied_site, tmp_path):
    write_certificates(tmp_path / "others", ["localhost", LOOPBACK])
    shutil.copy(tmp_path / "others" / "ca.crt", copied_site / "ca.crt")
    assert try_site(programs, copied_site) != 0


# -- faults -------------------------------------------------------------------


# Everything else that a reply can be is tried in one process, in tests/flower.
TRICKS = {"0": ["spoilt_header"], "1": ["huge_weight"], "2": ["long_reason"]}
REASONS = {"0": "is not an array of numbers", "1": "a weight is", "2": "\\x1b[2Jxxx"}


def test_a_site_that_sends_nonsense_is_rejected_and_named(programs, draft, tmp_path):
    app = hostile_app(draft.deployment, tmp_path / "app")
    config = config_for(draft, "fedavg", rounds=1)
    number = programs.submit("hostile", app=app, config=config, tricks=json.dumps(TRICKS))
    programs.completed(number)
    log = programs.control.log(number)
    (line,) = programs.rounds("hostile")
    assert line["rejected"].keys() == REASONS.keys()
    assert set(line["replied"]) == set(draft.deployment.sites) - REASONS.keys()
    for site, why in REASONS.items():
        assert why in line["rejected"][site]
        assert len(line["rejected"][site]) <= 300
        assert f"round 1: {site} rejected" in log


def test_models_are_compared_across_sites_that_have_agreed_to_it(programs, draft):
    config, settings = config_for(draft, "fedper", rounds=1), {"clients": "0,1", "cross-site": True}
    number = programs.submit("cross", config=config, **settings)
    programs.completed(number)
    assert "1 keeps its model to itself" in programs.control.log(number)
    found = json.loads((programs.folder / "cross" / "cross_site.json").read_text())
    ((own, elsewhere), others) = found["values"]
    assert 0 <= own <= 1
    assert (elsewhere, others) == (None, [None, None])


def test_databases_and_private_states_are_their_owner_s_alone(agreed_run, programs):
    states = [*(programs.folder / "state").rglob("*.safetensors")]
    assert states
    for path in (programs.folder / "superlink.db", *states):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in states:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
