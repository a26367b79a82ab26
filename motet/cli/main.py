"""The command `motet`: what it can do, and how it fails.

Commands import what they need when they are called, so that help costs no time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from motet import __version__
from motet.cli import compare, data, deploy, export, methods, resume, run
from motet.cli import report as report_page
from motet.cli.failures import DONE, report, wants_traceback

TOUR = """\
Motet: personalized federated learning. One federation, and every client
ends with the model that is best for it.

Try these first:

  motet compare --data digits --rounds 20 --cohort 0.5
      Does federating help each client, and which method helps most?

  motet data digits --partition dirichlet --clients 10 --alpha 0.3
      Who holds what: sizes, labels, and how different the clients are.

  motet run --method fedper --data digits --rounds 20 --out runs/first
      One method; everything about the run is kept in runs/first.

And then:

  motet methods [NAME]      what exists, what it shares and what it keeps
  motet resume DIR          goes on after an interruption, to the same numbers
  motet report DIR...       one page to look at: who gains, and at what cost
  motet export DIR ...      a client's own model, as safetensors and ONNX
  motet deploy ...          the same run as a Flower federation
  motet COMMAND --help      all options; every command has --json and --quiet
"""

app = typer.Typer(
    name="motet",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def tour(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show errors as Python shows them.")
    ] = False,
) -> None:
    """Personalized federated learning: every client ends with the model that is best for it."""
    if traceback:
        os.environ["MOTET_TRACEBACK"] = "1"
    if version:
        typer.echo(f"motet {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(TOUR, nl=False)


app.command("run")(run.command)
app.command("compare")(compare.command)
app.command("methods")(methods.command)
app.command("data")(data.command)
app.command("resume")(resume.command)
app.command("report")(report_page.command)
app.command("export")(export.command)
app.add_typer(deploy.app, name="deploy")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code."""
    # As Ctrl-C: batch systems send it, and those who come after it want to know how to go on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(call(sys.argv[1:] if arguments is None else arguments))


def call(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(args=list(arguments), prog_name="motet", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # the last resort: never a traceback by default
        if wants_traceback():
            raise
        return report(error)
    return code if isinstance(code, int) else DONE
