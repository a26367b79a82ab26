"""`motet serve`: an exported model as a web service."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from motet._cli import options
from motet._cli.predict import Export, MissingTexts, Site, Strict

NEEDED = {"fastapi": "fastapi", "uvicorn": "uvicorn", "fastapi_offline": "fastapi-offline"}


def command(
    model: Export,
    *,
    site: Site = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", rich_help_panel=options.RUN)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0: any free one.", rich_help_panel=options.RUN)
    ] = 8000,
    max_bytes: Annotated[
        int, typer.Option(help="Maximum size of a request in bytes.", rich_help_panel=options.RUN)
    ] = 1_000_000,
    max_rows: Annotated[
        int, typer.Option(help="Maximum number of rows in a request.", rich_help_panel=options.RUN)
    ] = 1_000,
    na: MissingTexts = None,
    strict: Strict = False,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Serve a model over HTTP: POST /predict, /schema, /health, and a page at /docs.

    motet serve models/north --port 8000
    """
    from motet._cli.terminal import say, warn, write_json_line
    from motet._export.opening import open_model
    from motet._export.reading import with_na
    from motet.errors import CapabilityError, RequestError

    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise CapabilityError(
            f"`motet serve` needs {', '.join(missing)}: pip install 'motet[serve]'."
        )
    for name, value in (("--max-bytes", max_bytes), ("--max-rows", max_rows)):
        if value < 1:
            raise RequestError(f"{name} must be 1 or more; got {value}.")
    opened, schema = open_model(model, site)
    schema = with_na(schema, na or ())
    from motet._serving import process
    from motet._serving.service import Limits, make_service

    limits = Limits(max_bytes=max_bytes, max_rows=max_rows)
    app = make_service(opened, schema, limits=limits, strict=strict)
    listening = process.listen(host, port)
    url, client = process.url_of(listening), str(opened.about["client"])

    def announce() -> None:
        if as_json:
            write_json_line({"url": url, "client": client})
        else:
            say(f'Serving the model of "{client}" at {url}; {url}/docs describes it. Ctrl-C stops.')
        if not process.is_loopback(host) and not quiet:
            warn(
                f"anyone who can reach {host} may ask for predictions. Put a proxy with TLS and "
                "authentication in front of it."
            )

    process.run(app, listening, started=announce)
