"""`motet deploy site`, `key` and `renew`: the sites, keys and certificates of a deployment."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from motet._cli import options
from motet._cli.deploy_arguments import Directory, Here, SiteFolder

app = typer.Typer(help="On the server: add or remove a site, or register its new key.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the site.", show_default=False)]
PublicKey = typer.Option("--key", metavar="FILE", help="Public key of the site, site.key.pub.")


@app.command("add")
def add(
    name: Name,
    directory: Here = Path(),
    *,
    key: Annotated[Path | None, PublicKey] = None,
    as_json: options.Json = False,
) -> None:
    """Add a site: write its folder, and register its public key if there is one.

    motet deploy site add north hospital-net --key north.pub
    """
    from motet._cli.terminal import show, write_json
    from motet.deploy._layout import Deployment
    from motet.deploy._sites import add_site

    with Deployment.changing(directory) as deployment:
        done = add_site(deployment, name, key)
    if as_json:
        write_json({"site": name, "folder": str(done.folder), "key": done.key})
        return
    then = f"Its key is registered: {done.key}."
    if done.key is None:
        then = (
            "There, `motet deploy key .` creates a key; register the public one with "
            f"`motet deploy site rekey {quote(name)} {quote(str(directory))} --key FILE`."
        )
    show(f"Wrote {done.folder}: give it to {name}. {then}")


@app.command("remove")
def remove(name: Name, directory: Here = Path(), *, as_json: options.Json = False) -> None:
    """Remove a site: its key is refused from now on, and its folder moved to removed/.

    motet deploy site remove north hospital-net
    """
    from motet._cli.terminal import show, write_json
    from motet.deploy._layout import Deployment
    from motet.deploy._sites import remove_site

    with Deployment.changing(directory) as deployment:
        done = remove_site(deployment, name)
    if as_json:
        write_json({"site": name, "folder": str(done.folder), "unregistered": done.unregistered})
        return
    was = "Its key is refused from now on" if done.unregistered else "It was not registered"
    show(f"Removed {name}. {was}; its folder is {done.folder}.")


@app.command("rekey")
def rekey(
    name: Name,
    directory: Here = Path(),
    *,
    key: Annotated[Path, PublicKey],
    as_json: options.Json = False,
) -> None:
    """Register the public key of a site; an earlier one is refused from now on.

    motet deploy site rekey north hospital-net --key north.pub
    """
    from motet._cli.terminal import show, write_json
    from motet.deploy._layout import Deployment
    from motet.deploy._sites import rekey_site

    with Deployment.changing(directory) as deployment:
        done = rekey_site(deployment, name, key)
    if as_json:
        write_json({"site": name, "key": done.key, "unregistered": done.unregistered})
        return
    was = " Its earlier key is refused from now on." if done.unregistered else ""
    show(
        f"Registered {name} with {done.key}.{was} Compare this fingerprint with the site's, over "
        "the phone."
    )


def key(
    folder: SiteFolder,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the key; the old one is kept beside it.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """At a site: create its key, and show the fingerprint of the public one.

    motet deploy key .
    """
    from motet._cli.terminal import show, write_json
    from motet.deploy._keys import fingerprint, public_of, replace_site_key
    from motet.deploy._site_settings import SiteSettings

    settings = SiteSettings.read(folder)
    path = folder / settings.key
    old = replace_site_key(path, overwrite=overwrite)
    mark = fingerprint(public_of(path))
    if as_json:
        write_json({"site": settings.name, "public": str(public_of(path)), "key": mark})
        return
    kept = "" if old is None else f" The old key is {old}; delete it once the new one works."
    show(
        f"Created {path}, which stays here. Send {public_of(path)} to the operator, who runs\n\n"
        f"  motet deploy site rekey {quote(settings.name)} DIR --key {public_of(path).name}\n\n"
        f"and tell the fingerprint over the phone: {mark}.{kept}"
    )


def renew(
    directory: Directory,
    *,
    authority: Annotated[
        bool,
        typer.Option(
            "--authority", help="Renew the authority as well; every site needs its new ca.crt."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """On the server: create a new certificate and key for the server, valid for a year.

    motet deploy renew hospital-net
    """
    from motet._cli.terminal import show, write_json
    from motet.deploy._layout import Deployment
    from motet.deploy._preflight import read_certificate
    from motet.deploy._sites import renew_certificates

    with Deployment.changing(directory) as deployment:
        renew_certificates(deployment, authority=authority)
    ends = read_certificate(deployment.certificates / "server.pem").not_valid_after_utc
    if as_json:
        write_json({"expires": ends.date().isoformat(), "authority": authority})
        return
    sites = "Give certificates/ca.crt to every site" if authority else "Sites need nothing new"
    show(f"The server's certificate is valid until {ends:%Y-%m-%d}. {sites}. Restart the server.")
