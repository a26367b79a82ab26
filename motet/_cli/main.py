"""The command `motet`: its subcommands, global options and exit codes.

Commands import what they need when they are called, so that `--help` is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from motet._cli import (
    compare,
    data,
    deploy,
    doctor,
    export,
    init,
    methods,
    predict,
    recipes,
    reproduce,
    resume,
    run,
    serve,
)
from motet._cli import report as report_page
from motet._cli.argument_text import refuse_unreadable
from motet._cli.failures import DONE, FAILED, TRACEBACK, report, wants_traceback
from motet._cli.options import Command
from motet._cli.stopping import stop_listening
from motet._core.version import __version__

COMPLETION = "_MOTET_COMPLETE"  # set by the scripts of --install-completion
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

  motet methods [NAME]      methods: what they share and what clients keep
  motet resume DIR          continues an interrupted run, with equal results
  motet report DIR...       an HTML page: which clients gain, and at what cost
  motet export DIR ...      a client's own model, as safetensors and ONNX
  motet predict EXPORT ...  new rows to predictions; motet serve: a web service
  motet deploy ...          the same run as a Flower federation
  motet recipes             published tables; motet reproduce runs one
  motet COMMAND --help      all options; every command has --json and --quiet
"""

app = typer.Typer(
    name="motet",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def tour(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the full Python traceback of an error.")
    ] = False,
) -> None:
    """Personalized federated learning: every client ends with the model that is best for it."""
    if traceback:
        TRACEBACK.set(True)
    if version:
        typer.echo(f"motet {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(TOUR, nl=False)


LOOK, COMPUTE, USE = "Before you start", "Run and compare", "Results and models"
app.command("doctor", cls=Command, rich_help_panel=LOOK)(doctor.command)
app.command("data", cls=Command, rich_help_panel=LOOK)(data.command)
app.command("methods", cls=Command, rich_help_panel=LOOK)(methods.command)
app.command("init", cls=Command, rich_help_panel=LOOK)(init.command)
app.command("compare", cls=Command, rich_help_panel=COMPUTE)(compare.command)
app.command("run", cls=Command, rich_help_panel=COMPUTE)(run.command)
app.command("resume", cls=Command, rich_help_panel=COMPUTE)(resume.command)
app.add_typer(deploy.app, name="deploy", rich_help_panel=COMPUTE)
app.command("report", cls=Command, rich_help_panel=USE)(report_page.command)
app.command("export", cls=Command, rich_help_panel=USE)(export.command)
app.command("predict", cls=Command, rich_help_panel=USE)(predict.command)
app.command("serve", cls=Command, rich_help_panel=USE)(serve.command)
REPRODUCE = "Published results"
app.command("recipes", cls=Command, rich_help_panel=REPRODUCE)(recipes.command)
app.command("reproduce", cls=Command, rich_help_panel=REPRODUCE)(reproduce.command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code."""
    from motet._cli import entry

    entry.main(arguments)


def call(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    command = typer.main.get_command(app)
    if COMPLETION in os.environ:  # a shell asks how to complete a line
        return _completed(command, list(arguments))
    before = TRACEBACK.set(False)  # asked for by these arguments alone
    try:
        refuse_unreadable(arguments)
        # Not `app()`: it turns a stop into an exit code, and says nothing.
        with command.make_context("motet", list(arguments)) as context:
            code = command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, KeyboardInterrupt) as error:  # the last resort: never a traceback by default
        if isinstance(error, KeyboardInterrupt):
            stop_listening()
        elif wants_traceback():
            raise
        return report(error, arguments)
    finally:
        TRACEBACK.reset(before)
    return code if isinstance(code, int) else DONE


def _completed(command: Any, arguments: list[str]) -> int:
    try:
        command.main(arguments, "motet")
    except SystemExit as done:  # which is how the parser ends in any case
        return done.code if isinstance(done.code, int) else DONE
    return DONE
