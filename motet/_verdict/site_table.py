"""The verdict on each site as a table of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

from motet._core.text import gain, number, plural, unit
from motet._core.visible_text import visible
from motet._verdict.results import Results
from motet._verdict.site_gains import State
from motet._verdict.sites import SMALL, SiteVerdict, counted
from motet._verdict.text_tables import WIDTH, aligned, shorten, wide
from motet._verdict.verdict import Verdict

MOST = 20  # sites; beyond, only those that changed
LABEL = 13
MARKS: Mapping[tuple[State, bool], str] = {
    ("helped", True): "▲ helped",
    ("helped", False): "△ probably helped",
    ("harmed", True): "▼ harmed",
    ("harmed", False): "▽ probably harmed",
    ("no difference", True): "= no difference",
    ("no difference", False): "= no difference",
    ("cannot tell", True): "? cannot tell",
    ("cannot tell", False): "? cannot tell",
}


def site_table(comparison: Results, found: Verdict) -> str:
    """Return the answer in a sentence and the sites as a table; "" if no examples were kept."""
    sites = () if found.main is None else found.of_sites(*found.main)
    if found.main is None or not sites:
        return ""
    one_seed = len(comparison.seeds) < 2
    shown, others = chosen(sites, one_seed=one_seed)
    metric = comparison.rows[0].evaluation.metric
    label, reference = found.main
    scores = {name: scores_of(comparison, name) for name in found.main}
    rows = [
        [
            shorten(site.site, LABEL),
            f"{site.examples}{'*' if site.small else ' '}",
            number(scores[reference].get(site.site, float("nan"))),
            number(scores[label].get(site.site, float("nan"))),
            gain(site.gain, metric),
            _interval(site, metric),
            mark(site, one_seed=one_seed),
        ]
        for site in shown
    ]
    verdict = "in this run" if one_seed else "verdict"
    names = [shorten(name, 9) for name in (reference, label)]
    header = ["client", "test ", *names, "gain", "95% interval", verdict]
    table = _left(aligned(header, rows), rows, header) if rows else ""
    notes = [fill(note, WIDTH) for note in _notes(sites, others, metric, one_seed=one_seed)]
    answer = fill(visible(found.answer), WIDTH)
    return "\n".join([answer, "", *([table] if table else []), *notes])


def chosen(
    sites: Sequence[SiteVerdict], *, one_seed: bool
) -> tuple[list[SiteVerdict], list[SiteVerdict]]:
    """Select the sites to list, the largest loss first: all, or the most changed of many."""
    ordered = sorted(sites, key=lambda site: site.gain)
    if len(ordered) <= MOST:
        return ordered, []
    changed = [site for site in ordered if state_of(site, one_seed=one_seed) in CHANGED]
    if len(changed) > MOST:  # losses first, then the largest gains
        harmed = [s for s in changed if state_of(s, one_seed=one_seed) == "harmed"]
        worst = harmed[: MOST // 2]
        changed = [*worst, *[s for s in changed if s not in worst][-(MOST - len(worst)) :]]
    return changed, [site for site in ordered if site not in changed]


CHANGED: tuple[State, ...] = ("helped", "harmed")


def state_of(site: SiteVerdict, *, one_seed: bool) -> State:
    """Return a site's state; with one seed, that in this run."""
    return site.in_runs if one_seed else site.state


def mark(site: SiteVerdict, *, one_seed: bool) -> str:
    """Return a site's state in words, with a mark."""
    if not one_seed and site.state == "cannot tell" and site.in_runs in CHANGED:
        return "↑ in these runs" if site.in_runs == "helped" else "↓ in these runs"
    return MARKS[state_of(site, one_seed=one_seed), site.sure or one_seed]


def scores_of(comparison: Results, label: str) -> dict[str, float]:
    """Return each client's score under a method, averaged over seeds."""
    found: dict[str, list[float]] = {}
    for row in comparison.of(label):
        for score in row.evaluation.rows:
            found.setdefault(score.client, []).append(score.value)
    return {client: sum(values) / len(values) for client, values in found.items()}


def _interval(site: SiteVerdict, metric: str) -> str:
    if site.low != site.low:  # NaN: too few examples
        return "-"
    return f"[{gain(site.low, metric)}, {gain(site.high, metric)}]"


def _left(table: str, rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Align the last column left, too."""
    width = max(len(row[-1]) for row in [header, *rows])
    head, rule, *lines = table.splitlines()
    start = max(map(wide, [head, *lines])) - width

    def moved(line: str, last: str) -> str:
        before = line[: len(line) - len(last)].rstrip()
        return before + " " * (start - wide(before)) + last

    first, *others = map(moved, [head, *lines], [header[-1], *(row[-1] for row in rows)])
    return "\n".join([first, rule, *others])


def _notes(
    sites: Sequence[SiteVerdict], others: Sequence[SiteVerdict], metric: str, *, one_seed: bool
) -> list[str]:
    notes = []
    if others:
        count = counted(others, in_runs=one_seed)
        states = ", ".join(f"{number} {state}" for state, number in count.items() if number)
        who = f"and {plural(len(others), 'other client')}" if len(others) < len(sites) else "All"
        notes.append(f"{who}: {states}.")
    limit = f"{gain(sites[0].margin, metric).removeprefix('+')} {unit(metric)}"
    over = "its own test examples" if one_seed else "its own test examples and the seeds"
    notes.append(
        f"Gain in {unit(metric)}; a paired test for each client over {over}, corrected for "
        f"{plural(len(sites), 'client')}. = no difference larger than {limit}."
    )
    if not one_seed and any("in these" in mark(site, one_seed=False) for site in sites):
        notes.append("↑ ↓ helped or harmed in these runs: seeds are too few to say more.")
    if any(site.small and site not in others for site in sites):
        notes.append(f"* fewer than {SMALL} test examples: a rough score.")
    return notes
