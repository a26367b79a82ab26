"""How to fix a table, as a flag of the command line and as an argument in Python."""

from __future__ import annotations

import shlex

FLAGS = {"client": "client_column", "labels": "label", "units": "unit"}  # others are alike
LISTS = ("na", "drop", "features", "categorical", "dates")


def fix(option: str, *values: str | int) -> str:
    """Name an option with values, as one writes it in a shell and in Python.

    >>> fix("missing", "median")
    '`--missing median` (missing="median")'
    >>> print(fix("drop", "patient id", "ward"))
    `--drop 'patient id' --drop ward` (drop=["patient id", "ward"])
    """
    return f"`{flag(option, *values)}` ({argument(option, *values)})"


def fixes(*options: tuple[str, str | int | bool]) -> str:
    """Name several options that belong together.

    >>> fixes(("na", "inf"), ("drop_missing_target", True))
    '`--na inf --drop-missing-target` (na=["inf"], drop_missing_target=True)'
    """
    flags = " ".join(
        f"--{o.replace('_', '-')}" if value is True else flag(o, value) for o, value in options
    )
    return f"`{flags}` ({', '.join(argument(option, value) for option, value in options)})"


def switched(option: str, *, on: bool) -> str:
    """Name a switch, as one writes it in a shell and in Python.

    >>> switched("drop_missing_target", on=True)
    '`--drop-missing-target` (drop_missing_target=True)'
    """
    return f"`--{'' if on else 'no-'}{option.replace('_', '-')}` ({option}={on})"


def flag(option: str, *values: str | int) -> str:
    """Write an option as a flag; flags of lists are repeated."""
    name = f"--{FLAGS.get(option, option).replace('_', '-')}"
    return " ".join(f"{name} {shlex.quote(str(value))}" for value in values)


def argument(option: str, *values: str | int) -> str:
    """Write an option as an argument in Python."""
    if option in LISTS:
        return f"{option}=[{', '.join(_quoted(str(value)) for value in values)}]"
    value = values[0]
    return f"{option}={value if isinstance(value, int) else _quoted(value)}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
