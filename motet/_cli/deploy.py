"""`motet deploy`: from a run to a federation of real sites."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from motet._cli import deploy_server, deploy_sites, options
from motet._cli.deploy_arguments import Directory, private_files
from motet._cli.failures import FAILED

app = typer.Typer()
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
    else:
        context.with_resource(private_files())


@app.command("init", cls=options.Command)
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
        str | None, typer.Option(help="Name of the experiment; default: that of the method.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Host name or address of the server, as sites reach it.")
    ] = "localhost",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the server, as sites reach it.")
    ] = 8443,
    superlink_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="Port of the SuperLink, on the server's loopback interface."
        ),
    ] = 8000,
    site_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="Port of a site's own processes, on its loopback interface."
        ),
    ] = 9094,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a deployment: the app, certificates and keys, a folder for each site, how to start.

    motet deploy init hospital-net --from runs/fedper-1 --host fl.example.org
    """
    from motet._cli.deploy_output import show_draft
    from motet.deploy._origin import experiment_of
    from motet.deploy._writing import Draft

    experiment = experiment_of(run)
    called = name or experiment.method.name
    ports = {"port": port, "superlink_port": superlink_port, "site_port": site_port}
    draft = Draft.of(experiment, directory, name=called, host=host, **ports)
    draft.write()
    show_draft(draft, directory, as_json=as_json, quiet=quiet)


@app.command("trial", cls=options.Command)
def trial(
    directory: Directory,
    *,
    sites: Annotated[
        int | None,
        typer.Option(
            help=f"Number of sites; default: all, up to {TRIAL_SITES}.", show_default=False
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Number of rounds; default: that of the experiment.", show_default=False),
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
    from motet._cli.deploy_output import run_trial
    from motet.deploy._layout import Deployment
    from motet.deploy._sitecheck import check_sites
    from motet.deploy._submission import check_request, chosen_sites
    from motet.deploy._trial import Trial, remove_earlier_trial

    deployment = Deployment.open(directory)
    count = min(TRIAL_SITES, len(deployment.sites)) if sites is None else sites
    chosen = chosen_sites(deployment, count)
    check_request(len(chosen), rounds=rounds)
    check_sites(deployment, chosen)
    remove_earlier_trial(deployment, overwrite=overwrite)
    run_trial(Trial(deployment, chosen, rounds), as_json=as_json, quiet=quiet)


@app.command("status", cls=options.Command)
def status(directory: Directory, *, as_json: options.Json = False) -> None:
    """Say who is online, how far the run is, and what is wrong; exit code 1 if anything is.

    motet deploy status hospital-net --json
    """
    from motet._cli.deploy_output import show_status
    from motet.deploy._layout import Deployment
    from motet.deploy._status import read_status

    found = read_status(Deployment.open(directory))
    show_status(found, as_json=as_json)
    if found.troubles:
        raise typer.Exit(FAILED)


@app.command("check", cls=options.Command)
def check(
    directory: Annotated[
        Path, typer.Argument(metavar="SITE", help="A site's folder.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
) -> None:
    """At a site: read its data as the experiment will, and say what was found."""
    from motet._cli.deploy_output import show_check
    from motet.deploy._sitecheck import check_site

    show_check(check_site(directory), as_json=as_json)


@app.command("statistics", cls=options.Command)
def statistics(
    directory: Annotated[
        Path, typer.Argument(metavar="SITE", help="A site's folder.", show_default=False)
    ],
) -> None:
    """At a site with a table: write the aggregates of its training rows, to send to the operator.

    motet deploy statistics .
    """
    from motet._cli.terminal import show
    from motet.deploy._statistics import write_site_statistics

    path, sent = write_site_statistics(directory)
    listed = "\n".join(f"  {name:10} {what}" for name, what in sent.items())
    show(f"Wrote {path}. It holds these numbers of your site, and no row:\n{listed}")


@app.command("agree", cls=options.Command)
def agree(
    directory: Directory,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="The statistics.json of each site.", show_default=False
        ),
    ],
) -> None:
    """On the server: combine the statistics of sites, and write them into the experiment.

    motet deploy agree hospital-net north.json south.json
    """
    from motet._cli.deploy_output import show_agreement
    from motet.deploy._layout import Deployment
    from motet.deploy._statistics import agree_on_statistics

    deployment = Deployment.open(directory)
    show_agreement(agree_on_statistics(deployment, files), deployment.path)


@app.command("export", cls=options.Command)
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="SITE", help="A site's folder.", show_default=False)
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="PATH", help="PATH.safetensors, .md and .onnx are written."
        ),
    ],
    trial: Annotated[
        bool, typer.Option("--trial", help="From the last trial on this machine.")
    ] = False,
    onnx: Annotated[
        bool | None,
        typer.Option(
            "--onnx/--no-onnx",
            help="Refuse what ONNX cannot express, or write none; default: where possible.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """At a site: write its own model, from its state and the last model that it evaluated.

    motet deploy export . -o models/north
    """
    from motet._cli.export import show_exported
    from motet.deploy._site_export import export_site

    exported = export_site(directory, out, onnx=onnx, trial=trial)
    show_exported(exported, wanted=onnx, as_json=as_json)


app.command("register", cls=options.Command)(deploy_server.register)
app.command("submit", cls=options.Command)(deploy_server.submit)
app.command("stop", cls=options.Command)(deploy_server.stop)
app.command("start", cls=options.Command)(deploy_server.start)
app.command("filter", cls=options.Command)(deploy_server.path_filter)
app.command("key", cls=options.Command)(deploy_sites.key)
app.command("renew", cls=options.Command)(deploy_sites.renew)
app.add_typer(deploy_sites.app, name="site")
