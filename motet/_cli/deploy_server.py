"""`motet deploy` on the server: starting programs, registering sites, submitting runs."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from motet._cli import options
from motet._cli.deploy_arguments import Directory, JsonLog, LogLevel


def register(directory: Directory, *, quiet: options.Quiet = False) -> None:
    """On the server: let the sites take part, each with the key in its folder."""
    from motet._cli.terminal import say
    from motet.deploy._layout import Deployment
    from motet.deploy._server import register_sites

    with Deployment.changing(directory) as deployment:
        new = register_sites(deployment)
    if not quiet:
        say(f"Registered: {', '.join(new) or 'no new site'}.")


def submit(
    directory: Directory,
    *,
    min_clients: Annotated[int, typer.Option(help="Minimum number of sites in a round.")] = 1,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a round waits for sites; default: 600.", show_default=False
        ),
    ] = None,
    evaluate_only: Annotated[
        bool,
        typer.Option(
            "--evaluate-only", help="Ask for scores on the sites' test data, and train nothing."
        ),
    ] = False,
    cross_site: Annotated[
        bool,
        typer.Option(
            "--cross-site",
            help="Score each site's model at each site that agrees, too; train nothing.",
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """On the server: start the run, or resume it after a failure."""
    from motet._cli.terminal import say
    from motet.deploy._layout import Deployment
    from motet.deploy._server import submit_run

    with Deployment.changing(directory) as deployment:
        number = submit_run(
            deployment,
            min_clients=min_clients,
            deadline_s=deadline,
            evaluate_only=evaluate_only,
            cross_site=cross_site,
        )
    if not quiet:
        say(f"Run {number} is submitted; see `motet deploy status {quote(str(directory))}`.")


def stop(directory: Directory, *, quiet: options.Quiet = False) -> None:
    """On the server: stop the run; `motet deploy submit` continues it later."""
    from motet._cli.terminal import say
    from motet.deploy._layout import Deployment
    from motet.deploy._server import stop_runs

    stopped = stop_runs(Deployment.open(directory))
    if not quiet:
        say(f"Stopped: {', '.join(map(str, stopped)) or 'no run; none is alive'}.")


def start(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A site's folder, or a deployment.", show_default=False),
    ],
    *,
    resumable: Annotated[
        bool,
        typer.Option("--resumable", help="On the server: give each run an executor of its own."),
    ] = False,
    log_level: LogLevel = "info",
    as_json: JsonLog = False,
) -> None:
    """Start a site as its site.toml says; on the server: start the SuperLink.

    motet deploy start .
    """
    from motet.deploy._logs import LogWriter, check_level
    from motet.deploy._start import prepared, run_program

    level = check_level(log_level)
    program = prepared(folder, resumable=resumable)
    code = run_program(program, LogWriter(program.name, level, as_json=as_json))
    if code:
        raise typer.Exit(code)


def path_filter(
    directory: Directory,
    *,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; default: the deployment's.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Port to listen on; default: the deployment's.", show_default=False
        ),
    ] = None,
    superlink_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Port of the SuperLink; default: the deployment's.",
            show_default=False,
        ),
    ] = None,
    per_address: Annotated[
        int,
        typer.Option(metavar="NUMBER", help="Maximum number of connections from one address."),
    ] = 64,
    log_level: LogLevel = "info",
    as_json: JsonLog = False,
) -> None:
    """On the server: listen in front of the SuperLink, and forward only what sites send."""
    from motet.deploy._layout import Deployment, check_port
    from motet.deploy._logs import LogWriter, check_level
    from motet.deploy._path_filter import PathFilter
    from motet.errors import RequestError

    if per_address < 1:
        raise RequestError(f"--per-address must be 1 or more; got {per_address}.")
    for name, given in (("port", port), ("superlink_port", superlink_port)):
        if given is not None:
            check_port(given, name)
    log = LogWriter("path filter", check_level(log_level), as_json=as_json)
    PathFilter.of(
        Deployment.open(directory),
        host=host,
        port=port,
        superlink_port=superlink_port,
        per_address=per_address,
    ).serve(log)
