"""`motet doctor`: versions, extras, threads, devices and data of this installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet._cli import options

if TYPE_CHECKING:  # loaded when the command is called
    from motet._cli.installation import Finding


def command(
    *,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check this installation: versions, extras, threads, data; exit code 1 if one is wrong.

    motet doctor --json
    """
    from motet._cli.failures import RunFailedError
    from motet._cli.installation import examined
    from motet._cli.terminal import write_json
    from motet._core.text import plural

    findings = examined()
    trouble = [each for each in findings if each.state == "trouble"]
    if as_json:
        write_json(
            {"ok": not trouble, "findings": [each._asdict() for each in findings]},
        )
    else:
        _show(trouble if quiet else findings)
    if trouble:
        shown = "; ".join(each.text for each in trouble)
        raise RunFailedError(f"{plural(len(trouble), 'problem')}: {shown}")


def _show(findings: list[Finding]) -> None:
    from motet._cli.terminal import can_draw, console

    if not findings:
        return
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": "✓", "absent": "·", "trouble": "✗"}
    if not can_draw("".join(marks.values())):
        marks = {"ok": "+", "absent": "-", "trouble": "!"}
    styles = {"ok": "green", "absent": "dim", "trouble": "bold red"}
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), width=80)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for each in findings:
        mark = Text(marks[each.state], style=styles[each.state])
        table.add_row(mark, Text(each.what), Text(each.text))
    console().print(table)
