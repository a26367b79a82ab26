"""Frozen weights of a site: named in its `site.toml`, on its page, and checked by their hash."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from federation import write_deployment
from safetensors.torch import save_file

from motet.config import experiment_from_dict
from motet.deploy._layout import BASE
from motet.deploy._site_settings import SiteSettings
from motet.deploy._sitecheck import check_site
from motet.errors import RequestError, StateError

TABLES = {
    "run": {"rounds": 1},
    "method": {"name": "fedsim", "personal": "lora_B"},
    "data": {"name": "digits", "partition": {"name": "iid", "clients": 2}},
    "model": {"name": "motet.models:adapted", "of": "mlp", "hidden": [8], "rank": 2},
}


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    experiment = experiment_from_dict(TABLES)
    data = experiment.federation()
    frozen = experiment.resolved(data).model.task(data).frozen
    save_file({name: leaf + 0.1 for name, leaf in frozen.items()}, folder / "base.safetensors")
    save_file({name: leaf + 0.2 for name, leaf in frozen.items()}, folder / "other.safetensors")
    model = {**TABLES["model"], "base": str(folder / "base.safetensors")}
    return write_deployment(folder / "net", experiment_from_dict({**TABLES, "model": model}))


@pytest.fixture
def site(draft):
    folder = draft.deployment.site("0")
    before = SiteSettings.read(folder)
    yield folder
    before.write(folder)


def test_a_site_names_its_base_in_its_one_file_of_choices_and_on_its_page(draft, site):
    settings = SiteSettings.read(site)
    assert settings.base == BASE
    assert check_site(site)["train"] > 0
    command = " ".join(settings.command(site, "agreed"))
    assert f'base="{site / BASE}"' in command
    page = (site / "README.md").read_text()
    assert draft.experiment.model.frozen in page
    assert "hidden" not in page.partition("## 4.")[2]  # no frozen tensor is in the tables
    assert "lora_A" in page
    assert f'frozen = "{draft.experiment.model.frozen}"' in (site / "experiment.toml").read_text()


def test_a_folder_that_is_handed_out_holds_the_base_itself(draft, site, tmp_path):
    away = tmp_path / "site"
    shutil.copytree(site, away, symlinks=True)  # as an archive does
    operators = Path(draft.experiment.model.base)
    operators.rename(operators.with_suffix(".gone"))
    try:
        assert check_site(away)["train"] > 0
    finally:
        operators.with_suffix(".gone").rename(operators)


def test_another_base_is_refused_by_both_hashes(draft, site):
    other = draft.deployment.path.parent / "other.safetensors"
    replace(SiteSettings.read(site), base=str(other)).write(site)
    with pytest.raises(RequestError, match="agreed on") as refused:
        check_site(site)
    assert draft.experiment.model.frozen in str(refused.value)
    assert len([word for word in str(refused.value).split() if len(word.strip(".,")) == 32]) == 2


@pytest.mark.parametrize("base", ["", "elsewhere.safetensors"])
def test_a_site_without_the_file_is_told_what_to_do(site, base):
    replace(SiteSettings.read(site), base=base).write(site)
    with pytest.raises(RequestError, match="Get the file from the operator"):
        check_site(site)


def test_a_broken_file_is_no_traceback(site):
    (site / "half.safetensors").write_bytes(b"\x10")
    replace(SiteSettings.read(site), base="half.safetensors").write(site)
    with pytest.raises(StateError, match="not a complete safetensors file"):
        check_site(site)
