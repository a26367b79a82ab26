"""Adding, removing and rekeying sites of a deployment, and renewing its certificates."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from motet._core.atomic import make_private_folder, write_atomically
from motet.deploy import _services as services
from motet.deploy._certificates import Authority, write_certificates, write_server_certificate
from motet.deploy._control import Control, Node
from motet.deploy._keys import fingerprint, public_of, read_public_key
from motet.deploy._layout import KEY, Deployment, check_names
from motet.deploy._server import control_of
from motet.deploy._submission import change_settings
from motet.deploy._writing import Draft
from motet.errors import RequestError, StateError, nearest

REMOVED = "removed"  # folder of a deployment


@dataclass(frozen=True)
class SiteChange:
    """What was done about a site.

    Attributes:
        folder: Of the site; where it is now.
        key: Fingerprint of its registered key; None: no key is registered.
        unregistered: Whether an earlier key is refused from now on.
    """

    folder: Path
    key: str | None = None
    unregistered: bool = False


def add_site(deployment: Deployment, name: str, key: Path | None = None) -> SiteChange:
    """Write the folder of a new site, and register its public key if there is one."""
    if name in deployment.sites:
        raise RequestError(f'"{name}" is a site of this deployment already.')
    check_names((*deployment.sites, name))
    if deployment.site(name).exists():
        raise StateError(f"{deployment.site(name)} exists; move it away first.")
    if key is not None:
        read_public_key(key)
    grown = replace(deployment, sites=tuple(sorted((*deployment.sites, name))))
    Draft.reopened(grown).write_site(name)
    _save(grown)
    return SiteChange(grown.site(name)) if key is None else rekey_site(grown, name, key)


def remove_site(deployment: Deployment, name: str) -> SiteChange:
    """Refuse a site's key from now on, and move its folder out of the way."""
    _require_site(deployment, name)
    if len(deployment.sites) == 1:
        raise RequestError(f'"{name}" is the only site of this deployment.')
    was_registered = _unregister(control_of(deployment), name)
    folder, now = deployment.site(name), datetime.now(UTC)
    kept = deployment.path / REMOVED / f"{folder.name}-{now:%Y%m%dT%H%M%S}"
    if folder.exists():
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        folder.rename(kept)
    _save(replace(deployment, sites=tuple(s for s in deployment.sites if s != name)))
    return SiteChange(kept, unregistered=was_registered)


def rekey_site(deployment: Deployment, name: str, key: Path) -> SiteChange:
    """Register a site's new public key; its old one is refused from now on."""
    _require_site(deployment, name)
    folder, contents, mark = deployment.site(name), read_public_key(key), fingerprint(key)
    control = control_of(deployment)
    registered = {control.key_of(node): node for node in control.nodes()}
    holder = registered.get(mark)
    if holder is not None:
        raise RequestError(
            f"the key {mark} is registered for {holder.name} already; "
            + ("there is nothing to do." if holder.name == name else "every site needs its own.")
        )
    was_registered = _unregister(control, name)
    _replace_public_key(folder / KEY, contents)
    control.register(name, public_of(folder / KEY))
    return SiteChange(folder, mark, was_registered)


def _replace_public_key(key: Path, contents: bytes) -> None:
    """Keep a site's public key; the private one of a trial, if it is another's, is of no use."""
    public = public_of(key)
    if not public.exists() or read_public_key(public) != contents:
        key.unlink(missing_ok=True)
    make_private_folder(key.parent)
    write_atomically(public, contents)


def renew_certificates(deployment: Deployment, *, authority: bool) -> None:
    """Create a new certificate for the server; with `authority`, also a new authority."""
    if authority:
        write_certificates(deployment.certificates, deployment.hosts)
        for site in deployment.sites:
            if deployment.site(site).is_dir():
                shutil.copyfile(deployment.authority, deployment.site(site) / "ca.crt")
    else:
        signer = Authority.read(deployment.certificates)
        if signer.certificate.not_valid_after_utc < datetime.now(UTC):
            raise StateError(
                f"the authority {deployment.authority} has expired. Create a new one with "
                "--authority, and give its ca.crt to every site."
            )
        write_server_certificate(deployment.certificates, signer, deployment.hosts)
    services.write_production_page(deployment, Draft.reopened(deployment).own_code)


def nodes_named(control: Control, name: str) -> list[Node]:
    """List the registered nodes of a site: one, or none."""
    return [node for node in control.nodes() if node.name == name]


def _unregister(control: Control, name: str) -> bool:
    nodes = nodes_named(control, name)
    for node in nodes:
        control.unregister(node.number)
    return bool(nodes)


def _save(deployment: Deployment) -> None:
    change_settings(deployment, clients=",".join(deployment.sites))
    deployment.save()


def _require_site(deployment: Deployment, name: str) -> None:
    if name not in deployment.sites:
        raise RequestError(
            f'"{name}" is not a site of this deployment; {nearest(name, deployment.sites)}.'
        )
