"""`motet deploy check`: a site's data, read as the experiment will read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from motet.data.raw import SPLITS
from motet.deploy.layout import CONFIG, Deployment
from motet.errors import MotetError, RequestError
from motet.remote.agreement import Agreement


def check_sites(deployment: Deployment, sites: Iterable[str]) -> None:
    """Refuse data that cannot be used, before anything is started."""
    for site in sites:
        try:
            check_site(deployment.site(site))
        except MotetError as error:
            error.add_note(f"At site {site}, in {deployment.site(site)}.")
            raise


def check_site(folder: Path) -> dict[str, int]:
    """Count a site's examples by split, once they are known to be what was agreed on."""
    config, table = folder / CONFIG, folder / "data.csv"
    if not config.is_file():
        raise RequestError(f"{folder} is no site's folder: it has no {CONFIG}.")
    agreement = Agreement.from_text("check", config.read_text(encoding="utf-8"))
    site, place = unquote(folder.resolve().name), table if table.exists() else folder / "data"
    data = agreement.setting_at(site, str(place)).federation.check()
    return {split: data.size(site, split) for split in SPLITS}
