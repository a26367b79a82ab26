"""Typer options, built from the table of options."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand

from motet._cli.completion import COMPLETIONS
from motet._core.option_table import DATA, OUTPUT, RUN, WHAT, OneOrMore, Row, Toml, rows_of

__all__ = [
    "DATA",
    "OUTPUT",
    "RUN",
    "WHAT",
    "Config",
    "Json",
    "JsonLines",
    "MLflow",
    "Quiet",
    "TensorBoard",
]


class Command(TyperCommand):
    """A command whose help leaves room for what options mean: their values stand beside them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = copy.copy(self)
        shown.params = [_in_one_column(parameter, ctx) for parameter in self.params]
        super(Command, shown).format_help(ctx, formatter)


def _in_one_column(parameter: Any, context: Any) -> Any:
    """Write `--rounds INTEGER` and `--[no-]onnx` as one name; help has a column for each part."""
    if parameter.param_type_name != "option":
        return parameter
    flag = parameter.opts[0]
    if parameter.secondary_opts:
        flag = f"--[no-]{flag.lstrip('-')}"
    elif not parameter.is_flag:
        flag = f"{flag} {parameter.make_metavar(context)}"
    alone = copy.copy(parameter)
    alone.opts, alone.secondary_opts = [flag, *parameter.opts[1:]], []
    alone.make_metavar = lambda ctx: ""  # noqa: ARG005  # its name is looked at
    return alone


Function = TypeVar("Function", bound=Callable[..., None])


def takes_rows_of(name: str) -> Callable[[Function], Function]:
    """Give a command every option that the table has for `name`; they arrive as keywords.

    Typer reads options from a signature, so the signature is made from the rows. A parameter of
    the command that has the name of a row is that row's.
    """
    generated = [_parameter(row) for row in rows_of(name)]
    taken = {parameter.name for parameter in generated}

    def add(command: Function) -> Function:
        own = inspect.signature(command, eval_str=True)
        named = [
            p
            for p in own.parameters.values()
            if p.kind is not p.VAR_KEYWORD and p.name not in taken
        ]
        vars(command)["__signature__"] = own.replace(parameters=[*named, *generated])
        return command

    return add


def _parameter(row: Row) -> inspect.Parameter:
    is_switch = row.type is bool and row.key is None  # a switch with a key may be left to the file
    kind = {Toml: str, OneOrMore: list[str]}.get(row.type, row.type)
    return inspect.Parameter(
        row.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_switch else None,
        annotation=Annotated[kind if is_switch else kind | None, _option(row)],
    )


def _option(row: Row) -> Any:
    assert row.flag is not None
    return typer.Option(
        row.flag,
        help=row.help,
        metavar=row.metavar,
        rich_help_panel=row.panel,
        show_default=False,
        autocompletion=COMPLETIONS.get(row.name),
    )


def _shared(command: str, name: str) -> Any:
    """Return one option of a command, for commands that write their own signature."""
    return next(_option(row) for row in rows_of(command) if row.name == name)


Config: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml",
        help="Start from this file; flags take precedence.",
        show_default=False,
    ),
]
# For commands that draw nothing: every command accepts --seed.
UnusedSeed: TypeAlias = Annotated[
    int | None, typer.Option("--seed", help="Accepted, but nothing is drawn.", hidden=True)
]
Json: TypeAlias = Annotated[bool, _shared("other", "as_json")]
JsonLines: TypeAlias = Annotated[bool, _shared("resume", "as_json")]
Quiet: TypeAlias = Annotated[bool, _shared("other", "quiet")]
TensorBoard: TypeAlias = Annotated[Path | None, _shared("resume", "tensorboard")]
MLflow: TypeAlias = Annotated[str | None, _shared("resume", "mlflow")]
