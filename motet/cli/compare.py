"""`motet compare`: several methods under the same conditions."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet.comparison import Comparison, Row
    from motet.contest import Contest
    from motet.contestdir import ContestDirectory
    from motet.federation import Round

    Rows = dict[tuple[str, int], Row]  # by label and seed


def command(
    config: options.Config = None,
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names, comma-separated, or all. local, fedavg and fedavg-ft are added.",
            metavar="NAME,NAME,...",
            rich_help_panel=options.WHAT,
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    settings: options.Set = None,
    data: options.Data = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    classes: options.Classes = None,
    alpha: options.Alpha = None,
    table: options.Table = None,
    client_column: options.ClientColumn = None,
    target: options.Target = None,
    folder: options.Folder = None,
    lr: options.Rate = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    rounds: options.Rounds = None,
    cohort: options.Cohort = None,
    backend: options.Backend = None,
    seed: options.Seed = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Runs of each method, with seeds SEED, SEED + 1, ...; default: 1.",
            rich_help_panel=options.RUN,
            show_default=False,
        ),
    ] = None,
    out: options.Out = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods: the same split, cohorts and initial weights, every client's own test data.

    motet compare --methods local,fedavg,fedavg-ft,fedper --data digits --seeds 3
    """
    flags = {name: value for name, value in locals().items() if name not in ("config", "settings")}
    from motet.cli.request import requested
    from motet.config.comparing import plan_from_dict
    from motet.contestdir import ContestDirectory
    from motet.folder import check_free

    flags["methods"] = None if methods is None else [name.strip() for name in methods.split(",")]
    plan = plan_from_dict(requested(config, flags, settings or []))
    if out is not None:
        check_free(out, overwrite=overwrite)
    federation = plan.federation()
    if flags["methods"] == ["all"]:
        plan, left_out = plan.suited(federation)
        _say_left_out(left_out, quiet=quiet)
    contest = plan.contest(federation)
    directory = None
    if out is not None:
        tables = plan.resolved(federation).to_dict()
        directory = ContestDirectory.create(out, tables, federation, overwrite=overwrite)
    _compare(contest, directory, as_json=as_json, quiet=quiet)


def _say_left_out(reasons: dict[str, str], *, quiet: bool) -> None:
    from motet.cli.terminal import say

    for label, reason in ({} if quiet else reasons).items():
        say(f"left out {label}: {reason}")


def go_on(path: Path, *, as_json: bool, quiet: bool) -> None:
    """Run the methods of a comparison that have not finished."""
    from motet.config.comparing import plan_from_dict
    from motet.contestdir import ContestDirectory

    directory = ContestDirectory.open(path)
    plan = plan_from_dict(directory.tables())
    federation = plan.federation()
    directory.verify(federation)
    _compare(plan.contest(federation), directory, as_json=as_json, quiet=quiet)


def _compare(
    contest: Contest, directory: ContestDirectory | None, *, as_json: bool, quiet: bool
) -> None:
    from motet.cli.terminal import say, warn, write_json

    with directory or nullcontext():
        comparison = _finish(contest, directory, quiet=quiet)
    if as_json:
        write_json(comparison.to_dict())
    else:
        typer.echo(comparison.table())
    for warning in dict.fromkeys(w for row in comparison.rows for w in row.warnings):
        warn(warning)
    if directory is not None and not quiet:
        say(f"\nKept in {directory.path}")


def _finish(contest: Contest, directory: ContestDirectory | None, *, quiet: bool) -> Comparison:
    from motet.cli.failures import RunFailedError, RunStoppedError, one_line

    rows = directory.finished() if directory is not None else {}
    try:
        _run_missing(contest, rows, directory, quiet=quiet)
    except KeyboardInterrupt:
        raise RunStoppedError(f"stopped; {_how_to_go_on(contest, rows, directory)}") from None
    except Exception as error:
        rest = _how_to_go_on(contest, rows, directory)
        raise RunFailedError(f"a run failed: {one_line(error)}; {rest}") from error
    comparison = contest.result(rows[pair] for pair in contest.pairs())
    if directory is not None:
        directory.conclude(comparison)
    return comparison


def _run_missing(
    contest: Contest, rows: Rows, directory: ContestDirectory | None, *, quiet: bool
) -> None:
    from motet.cli.progress import progress

    left = [pair for pair in contest.pairs() if pair not in rows]
    if left:
        contest.warm_up()
    with progress("round", contest.rounds * len(left), quiet=quiet) as shown:

        def watch(label: str, seed: int, done: Round) -> None:
            shown.step(f"{label}, seed {seed}", worth_a_line=done.number == contest.rounds)

        for label, seed in left:
            rows[label, seed] = contest.row(label, seed, watch)
            if directory is not None:
                directory.record(rows[label, seed])


def _how_to_go_on(contest: Contest, rows: Rows, directory: ContestDirectory | None) -> str:
    if directory is None:
        return "nothing was kept, because no directory was named with --out."
    return (
        f"{len(rows)} of {len(contest.pairs())} runs have finished. Go on with `motet resume "
        f"{directory.path}`."
    )
