"""`motet deploy check`: reads a site's data as the experiment will, and reports errors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from motet.data._raw import SPLITS
from motet.deploy._layout import BASE, CONFIG, PIN, Deployment
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.pinning import hash_of_text
from motet.deploy._site_settings import SETTINGS, SiteSettings, pinned_at, plain
from motet.errors import MotetError, RequestError, StateError


def check_sites(deployment: Deployment, sites: Iterable[str]) -> None:
    """Raise an error for the first site whose data are unusable."""
    for site in sites:
        try:
            check_site(deployment.site(site))
        except MotetError as error:
            error.add_note(f"At site {site}, in {deployment.site(site)}.")
            raise


def check_site(folder: Path) -> dict[str, int]:
    """Check that a site's data have the agreed form, and count its examples by split.

    Args:
        folder: The folder of a site.

    Returns:
        The number of examples of each split.

    Raises:
        RequestError: The folder is not a site's, or the experiment is not the agreed one.
        StateError: The file of the experiment cannot be read.
        DataError: The data do not have the agreed form.

    Example:
        >>> from pathlib import Path
        >>> check_site(Path("net/sites/basel"))
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: net/sites/basel is not the folder of a site: it has no ...
    """
    config = folder / CONFIG
    if not config.is_file():
        raise RequestError(f"{folder} is not the folder of a site: it has no {CONFIG}.")
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, ValueError) as reason:
        raise StateError(
            f"{config} cannot be read: {plain(reason)}. Ask for the file again."
        ) from None
    check_pin(folder, text)
    agreement, settings = Agreement.from_text("check", text), SiteSettings.read(folder)
    agreement = with_own_base(agreement, settings, folder)
    site, place = settings.name, folder / settings.data
    if not place.exists():
        raise RequestError(f"there are no data at {place}; set data in site.toml to their place.")
    data = agreement.setting_at(site, str(place)).federation.check()
    return {split: data.size(site, split) for split in SPLITS}


def with_own_base(agreement: Agreement, settings: SiteSettings, folder: Path) -> Agreement:
    """Take the frozen weights from the site's own file, and compare them with the agreed ones."""
    model = None if agreement.about is None else agreement.about.model
    if model is None or model.base is None:
        return agreement
    path = folder / settings.base
    if not settings.base or not path.is_file():
        raise RequestError(
            f"the experiment builds on frozen weights with the hash {model.frozen}, and "
            f"{path if settings.base else f'base in {SETTINGS}'} is missing. Get the file from the "
            f'operator, and name it in {SETTINGS}: base = "{BASE}".'
        )
    own = agreement.with_base(str(path))
    federation = agreement.empty_federation((settings.name,))
    found = own.task(federation).frozen_hash
    if found != model.frozen:
        raise RequestError(
            f"the frozen weights in {path} have the hash {found}, and the experiment was agreed on "
            f"{model.frozen}. Ask the operator for the file that it began with."
        )
    return own


def check_pin(folder: Path, config: str) -> None:
    """Refuse a config that is not the one whose hash the site has agreed to."""
    pinned, name = pinned_at(folder)
    found = hash_of_text(name, config)
    if found != pinned:
        raise RequestError(
            f"{CONFIG} has the hash {found}, and {PIN} has {pinned}: one of them was changed. "
            "Compare both with what you agreed to, and restore the other."
        )
