"""`motet deploy export`: a site's own model, from its state and what it received last."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from motet._core.atomic import make_private_folder
from motet._core.real_paths import real_path
from motet._engine.stores.memory import MemoryStore
from motet._export.export import Exported, require_file_name, write_export
from motet._export.predictors import without_suffix
from motet.config._experiment import model_to_dict
from motet.data._federation import Federation
from motet.deploy._layout import CONFIG
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.parcels import unpack_first
from motet.deploy._runtime.private import PrivateFile
from motet.deploy._runtime.received import Received, ReceivedFile
from motet.deploy._runtime.rehearsal import Rehearsal
from motet.deploy._runtime.site_run import SiteRun
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._site_settings import SiteSettings, pinned_at
from motet.deploy._sitecheck import check_pin, with_own_base
from motet.errors import RequestError, StateError


class _Place(NamedTuple):
    """Where the experiment and the state of a site are."""

    settings: SiteSettings
    data: Path
    state: Path
    agreement: Agreement


def export_site(
    folder: Path, out: Path, *, onnx: bool | None = None, trial: bool = False
) -> Exported:
    """Write the personal model of a site, from its own state and data.

    Args:
        folder: The folder of the site.
        out: Path of the files, with or without a suffix.
        onnx: As for `motet.export`.
        trial: Whether to take the state of the deployment's last trial on this machine.
    """
    require_file_name(out)
    place = _trial_place(folder) if trial else _place(folder)
    client, agreement = place.settings.name, place.agreement
    private = PrivateFile.of(place.state, agreement.experiment, client, agreement.agreed)
    received = ReceivedFile.beside(private.path, agreement.agreed).read()
    if received is None:
        raise StateError(
            f"{place.state} holds no model of {agreement.experiment}: a site keeps the one that it "
            "was last asked to evaluate. Ask the operator for `motet deploy submit DIR "
            "--evaluate-only`."
        )
    run = _run(place, private, received)
    make_private_folder(out.parent)
    assert agreement.about is not None
    model = agreement.about.model.resolved(run.setting.federation, agreement.about.data)
    return write_export(
        run,
        client,
        without_suffix(out),
        onnx=onnx,
        model=model_to_dict(model),
        others=(),
        clients=received.clients,
    )


def _run(place: _Place, private: PrivateFile, received: Received) -> SiteRun:
    client, agreement = place.settings.name, place.agreement
    setting = agreement.setting_at(client, str(place.data))
    federation = _described(setting.federation, place)
    store = MemoryStore()
    kept = private.read(setting.fresh_client(client))
    if kept is not None:
        store.put(client, kept.after)
    rehearsal = Rehearsal.at(setting, client, received.clients)
    down = unpack_first(rehearsal.downs(client, serving=True), received.arrays)
    setting = replace(setting, federation=federation, store=store)
    return SiteRun.of(setting, down, received.number)


def _described(federation: Federation, place: _Place) -> Federation:
    """Add what the model's files say about the data: a name, and the schema of a table."""
    named = replace(federation, name=place.agreement.experiment)
    sites = place.agreement.sites
    if not isinstance(sites, SiteData) or not place.data.is_file():
        return named
    return replace(named, schema=sites.own_schema(place.data, place.settings.name))


def _place(folder: Path) -> _Place:
    settings = SiteSettings.read(folder)
    config = folder / CONFIG
    if not config.is_file():
        raise RequestError(f"{folder} is not the folder of a site: it has no {CONFIG}.")
    text = config.read_text(encoding="utf-8")
    check_pin(folder, text)
    agreement = Agreement.from_text(pinned_at(folder)[1], text)
    agreement = with_own_base(agreement, settings, folder)
    return _Place(settings, folder / settings.data, folder / settings.state, agreement)


def _trial_place(folder: Path) -> _Place:
    """Find the state that a trial left, in the directory of the deployment."""
    settings = SiteSettings.read(folder)
    trial = real_path(folder).parent.parent / "trial"
    if not (trial / "settings.toml").is_file():
        raise RequestError(
            f"there is no trial at {trial}. Run `motet deploy trial DIR` first, or leave --trial "
            "out to export from the state of the site."
        )
    text = tomllib.loads((trial / "settings.toml").read_text(encoding="utf-8"))["config"]
    agreement = Agreement.from_text(pinned_at(folder)[1], text)
    agreement = with_own_base(agreement, settings, folder)
    state = trial / "state" / quote(settings.name, safe=" ")
    return _Place(settings, folder / settings.data, state, agreement)
