"""`motet deploy`: from a run to a federation of real sites."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from motet.cli import options

app = typer.Typer()

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The deployment.", show_default=False)
]
TRIAL_SITES = 4  # each is two processes of about 130 MB


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    """Take a run to a federation of real sites, over TLS."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    elif find_spec("flwr") is None or find_spec("psutil") is None:
        from motet.errors import CapabilityError

        raise CapabilityError(
            "`motet deploy` needs Flower, which is not installed: pip install 'motet[flower]'."
        )


@app.command("init")
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new directory.", show_default=False)
    ],
    *,
    run: Annotated[
        Path,
        typer.Option(
            "--from", metavar="RUN", help="A run directory, or a config file.", show_default=False
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Of the experiment; default: the method's.")
    ] = None,
    host: Annotated[str, typer.Option(help="Under which sites reach the server.")] = "localhost",
    port: Annotated[int, typer.Option(help="On which sites reach the server.")] = 8443,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a deployment: the app, certificates and keys, a folder for each site, how to start.

    motet deploy init hospital-net --from runs/fedper-1 --host fl.example.org
    """
    from motet.cli.deploying import show_draft
    from motet.deploy.origin import experiment_of
    from motet.deploy.writing import Draft

    experiment = experiment_of(run)
    called = name or experiment.method.name
    draft = Draft.of(experiment, directory, name=called, host=host, port=port)
    draft.write()
    show_draft(draft, directory, as_json=as_json, quiet=quiet)


@app.command("trial")
def trial(
    directory: Directory,
    *,
    sites: Annotated[
        int | None,
        typer.Option(help=f"How many; default: all, {TRIAL_SITES} at most.", show_default=False),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Default: the experiment's.", show_default=False)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier trial.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the whole federation on this machine: real processes, TLS, keys, and the path filter.

    motet deploy trial hospital-net --sites 3 --rounds 5
    """
    from motet.cli.deploying import run_trial
    from motet.deploy.layout import Deployment
    from motet.deploy.sitecheck import check_sites
    from motet.deploy.submission import chosen_sites
    from motet.deploy.trial import Trial, make_room

    deployment = Deployment.open(directory)
    count = min(TRIAL_SITES, len(deployment.sites)) if sites is None else sites
    chosen = chosen_sites(deployment, count)
    check_sites(deployment, chosen)
    make_room(deployment, overwrite=overwrite)
    run_trial(Trial(deployment, chosen, rounds), as_json=as_json, quiet=quiet)


@app.command("status")
def status(directory: Directory, *, as_json: options.Json = False) -> None:
    """Say who is online, how far the run is, and what went wrong last."""
    from motet.cli.deploying import show_status
    from motet.deploy.layout import Deployment
    from motet.deploy.status import look

    show_status(look(Deployment.open(directory)), as_json=as_json)


@app.command("register")
def register(directory: Directory, *, quiet: options.Quiet = False) -> None:
    """On the server: let the sites take part, each with the key in its folder."""
    from motet.cli.terminal import say
    from motet.deploy.layout import Deployment
    from motet.deploy.server import register_sites

    new = register_sites(Deployment.open(directory))
    if not quiet:
        say(f"Registered: {', '.join(new) or 'nobody new'}.")


@app.command("submit")
def submit(
    directory: Directory,
    *,
    min_clients: Annotated[int, typer.Option(help="A round needs as many sites at least.")] = 1,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds that a round waits; default: 600.", show_default=False),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """On the server: begin the run, or go on with it after a failure."""
    from motet.cli.terminal import say
    from motet.deploy.layout import Deployment
    from motet.deploy.server import submit_run

    number = submit_run(Deployment.open(directory), min_clients=min_clients, deadline_s=deadline)
    if not quiet:
        say(f"Run {number} is submitted; see `motet deploy status {directory}`.")


@app.command("check")
def check(
    directory: Annotated[
        Path, typer.Argument(metavar="SITE", help="A site's folder.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
) -> None:
    """At a site: read its data as the experiment will, and say what was found."""
    from motet.cli.deploying import show_check
    from motet.deploy.sitecheck import check_site

    show_check(check_site(directory), as_json=as_json)


@app.command("filter")
def path_filter(
    directory: Directory,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[
        int | None, typer.Option(help="Default: the deployment's.", show_default=False)
    ] = None,
    superlink_port: Annotated[int, typer.Option(help="The SuperLink's port on loopback.")] = 8000,
) -> None:
    """On the server: stand in front of the SuperLink, and forward what sites send, only."""
    from motet.deploy.layout import Deployment
    from motet.deploy.path_filter import Door

    deployment = Deployment.open(directory)
    listening = deployment.port if port is None else port
    Door.of(deployment, host, listening, superlink_port).serve()
