"""The sentences of a verdict, for readers who have to choose a method."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from motet._core.points import named
from motet._core.text import amount, gain, listed, number, plural, size, title_of, unit
from motet._verdict.caveats import caveats
from motet._verdict.findings import Findings
from motet._verdict.further_metrics import clients_scored
from motet._verdict.site_gains import State
from motet._verdict.sites import SiteVerdict, counted
from motet._verdict.statistics import PairedDifference

MEANING = {
    "local": "training alone",
    "fedavg": "one model for all",
    "fedavg-ft": "plain fine-tuning",
}
NAMED = 3  # clients mentioned by name


def sentences(found: Findings) -> Iterator[str]:
    """Yield the sentences: the setup, the answer, the leader, who gains, costs, and caveats."""
    if not found.ranked:
        yield "No method has finite scores, so there is nothing to compare."
    else:
        yield _about(found)
        yield from answer(found)
        yield _leader(found)
        for part in (_against, _simple, _global_model, _harm, _bottom, _cost, _halves):
            yield from part(found)
    yield from caveats(found)


# -- the answer for every client ---------------------------------------------


def answer(found: Findings) -> Iterator[str]:
    """Say how many clients federating helps and harms; nothing where examples were not kept."""
    sites = found.answer
    if not sites:
        return
    count = counted(sites, in_runs=found.one_seed)
    if len(sites) == 1:
        yield _of_one(found, sites[0])
        return
    clients = plural(len(sites), "client")
    start = "In this run, compared" if found.one_seed else "Compared"
    if count["cannot tell"] == len(sites):
        told = f"we cannot tell for any of {clients} whether {found.federated} helps or harms it"
        yield f"{start} with training alone, {told}{_seen_in_runs(found, sites)}."
        return
    helped, harmed = _told(found, "helped", "helps"), _told(found, "harmed", "harms")
    parts = [f"{helped} of {clients}" if helped else f"is not shown to help any of {clients}"]
    if helped and " and " in helped:  # "helps 3 of 12 clients and probably 7 more"
        parts = [helped.replace(" and ", f" of {clients} and ")]
    parts.append(harmed or "none is shown to be harmed")
    if count["no difference"]:
        limit = gain(sites[0].margin, found.metric).removeprefix("+")
        see = "sees" if count["no difference"] == 1 else "see"
        parts.append(
            f"{count['no difference']} {see} no difference larger than {limit} {unit(found.metric)}"
        )
    if count["cannot tell"]:
        parts.append(f"for {count['cannot tell']} we cannot tell{_seen_in_runs(found, sites)}")
    yield f"{start} with training alone, {found.federated} {'; '.join(parts)}."


def _of_one(found: Findings, site: SiteVerdict) -> str:
    """Say whether federating helps the only client."""
    state = site.in_runs if found.one_seed else site.state
    probably = "" if found.one_seed or site.sure else "probably "
    limit = gain(site.margin, found.metric).removeprefix("+")
    who = f"the only client ({site.site})"
    seen = f"; it is {site.in_runs} in these runs" if site.in_runs in ("helped", "harmed") else ""
    told = {
        "helped": f"{found.federated} {probably}helps {who}",
        "harmed": f"{found.federated} {probably}harms {who}",
        "no difference": f"{found.federated} makes no difference larger than {limit} "
        f"{unit(found.metric)} for {who}",
        "cannot tell": f"we cannot tell whether {found.federated} helps {who}{seen}",
    }[state]
    start = "In this run, compared" if found.one_seed else "Compared"
    return f"{start} with training alone, {told}."


def _told(found: Findings, state: State, verb: str) -> str:
    """Count the clients that changed, the sure ones and the probable ones; "" if there are none."""
    changed = [s for s in found.answer if (s.in_runs if found.one_seed else s.state) == state]
    probable = 0 if found.one_seed else sum(not site.sure for site in changed)
    sure = len(changed) - probable
    if not changed:
        return ""
    if not sure:
        return f"probably {verb} {probable}"
    return f"{verb} {sure}" + (f" and probably {probable} more" if probable else "")


def _seen_in_runs(found: Findings, sites: tuple[SiteVerdict, ...]) -> str:
    """Count the clients that changed in these runs, though seeds are too few to say more."""
    if found.one_seed:
        return ""
    open_ones = [site.in_runs for site in sites if site.state == "cannot tell"]
    parts = [
        f"{open_ones.count(state)} {state}" for state in ("helped", "harmed") if state in open_ones
    ]
    return f" ({' and '.join(parts)} in these runs)" if parts else ""


# -- the leader --------------------------------------------------------------


def _about(found: Findings) -> str:
    first = found.comparison.rows[0].evaluation
    rounds = sorted({row.evaluation.round for row in found.comparison.rows})
    when = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
    return (
        f"{title_of(first.metric)} of {found.comparison.counted_clients()} on "
        f"{'its' if len(first.rows) == 1 else 'their'} own {first.split} data, "
        f"{named(found.comparison.points)}, {when}, "
        f"{plural(len(found.comparison.seeds), 'seed')}; {clients_scored(first)}."
    )


def _leader(found: Findings) -> str:
    leader, *others = found.ranked
    mean = number(found.comparison.mean(leader, attrgetter("evaluation.mean")))
    leads = {label: found.difference(leader, label) for label in others}
    worse = [label for label, lead in leads.items() if lead.supported]
    if not others:
        return f"Only {leader} has scores (mean {mean}), so there is nothing to compare it with."
    if len(worse) == len(others):
        return f"{leader} is best (mean {mean}): better than every other method."
    if len(found.best) == len(found.ranked):
        return (
            f"No clear winner: {leader} has the best mean ({mean}), but its lead over "
            f"{listed(others)} is small compared with how much clients and seeds differ."
        )
    groups = {
        "Worse": worse,
        "Probably worse": [label for label, lead in leads.items() if lead.probable],
        f"Worse {_in_runs(found)}": [label for label, lead in leads.items() if lead.in_runs],
        "No clear difference": found.best[1:],
    }
    lists = [f"{what}: {listed(labels)}." for what, labels in groups.items() if labels]
    return " ".join([f"{leader} leads (mean {mean}).", *lists])


def _in_runs(found: Findings) -> str:
    if found.one_seed:
        return "in this run"
    seeds = plural(len(found.comparison.seeds), "seed")
    return f"in these runs, which {seeds} cannot settle"


def _against(found: Findings) -> Iterator[str]:
    """Compare the leader with the references: how large the difference is, and how certain."""
    leader = found.ranked[0]
    clauses = [
        _clause(found, difference, f"{MEANING[method]} ({difference.reference})")
        for method in found.references
        if (difference := found.against(leader, method)) is not None
    ]
    if clauses:
        yield f"{leader} is {'; '.join(clauses)}."


def _clause(found: Findings, difference: PairedDifference, reference: str) -> str:
    metric = found.metric
    low, high = gain(difference.low, metric), gain(difference.high, metric)
    about = f"95% interval {low} to {high}"
    if not difference.apart and difference.low * difference.high > 0:
        # The claim is corrected for the number of comparisons, the interval is not.
        about += f", before the correction for {plural(found.comparisons, 'comparison')}"
    interval = f" ({about})" if difference.clients > 1 else ""
    measured = f"{gain(difference.mean, metric)} {unit(metric)}{interval}"
    if not difference.apart:
        return f"not clearly different from {reference}, {measured}"
    better = difference.mean > 0
    clients = difference.clients_better if better else difference.clients_worse
    return (
        f"{_graded(found, difference, 'better' if better else 'worse', reference)}, "
        f"{measured}, for {clients} of {plural(difference.clients, 'client')}"
    )


def _graded(found: Findings, difference: PairedDifference, word: str, reference: str) -> str:
    claim = f"{word} than {reference}"
    if difference.supported:
        return claim
    return f"probably {claim}" if difference.probable else f"{claim} {_in_runs(found)}"


def _simple(found: Findings) -> Iterator[str]:
    """Report when a simple reference is as good as the best method."""
    plain = next((m for m, label in found.references.items() if label in found.best), None)
    if plain is None or len(found.ranked) == 1:
        return
    if found.references[plain] == found.ranked[0]:
        yield f"No method beats {MEANING[plain]} here."
    elif plain == "local":
        yield "We cannot tell whether federating helps these clients on average."
    else:
        yield f"We cannot tell whether anything beyond {MEANING[plain]} helps these clients."


def _global_model(found: Findings) -> Iterator[str]:
    """Warn if one model for all is worse than training alone, whichever method leads."""
    difference = found.against(found.references.get("fedavg", ""), "local")
    if difference is not None and difference.apart and difference.mean < 0:
        graded = _graded(found, difference, "worse", "training alone")
        yield (
            f"One model for all ({difference.label}) is {graded}: "
            f"{gain(difference.mean, found.metric)} {unit(found.metric)} on average, worse for "
            f"{difference.clients_worse} of {plural(difference.clients, 'client')}."
        )


# -- clients and costs --------------------------------------------------------


def _harm(found: Findings) -> Iterator[str]:
    """Name the clients that are worse off than alone."""
    if found.answer:
        yield from _harmed(found, found.answer)
        return
    leader, alone = found.ranked[0], found.references.get("local")
    difference = found.against(leader, "local")
    if alone is None or difference is None:
        return
    losers = found.losers(leader, alone)
    if not losers:
        yield f"No client is worse off with {leader} than alone."
        return
    yield (
        f"{'Better on average, but ' if difference.better else ''}{len(losers)} of "
        f"{plural(difference.clients, 'client')} {'is' if len(losers) == 1 else 'are'} worse off "
        f"with {leader} than alone{_worst(losers, found.metric)}."
    )
    harm = {label: len(found.losers(label, alone)) for label in found.best if label != alone}
    kindest = min(harm, key=lambda label: harm[label])
    if harm[kindest] < len(losers):
        yield f"Among the best methods, {kindest} harms the fewest clients ({harm[kindest]})."


def _harmed(found: Findings, sites: tuple[SiteVerdict, ...]) -> Iterator[str]:
    states = ((s, s.in_runs if found.one_seed else s.state) for s in sites)
    harmed = sorted(
        ((s.gain, s) for s, state in states if state == "harmed"), key=lambda pair: pair[0]
    )
    if not harmed:
        yield f"No client is shown to be harmed by {found.federated}."
        return
    surely = [(s.site, gained) for gained, s in harmed if s.sure or found.one_seed]
    maybe = [(s.site, gained) for gained, s in harmed if not (s.sure or found.one_seed)]
    if surely:
        yield f"Harmed by {found.federated}{_worst(surely, found.metric)}."
    if maybe:
        yield f"Probably harmed by {found.federated}{_worst(maybe, found.metric)}."


def _worst(losers: list[tuple[str, float]], metric: str) -> str:
    named = listed([f"{client} ({gain(loss, metric)})" for client, loss in losers[:NAMED]])
    return f": {named}" if len(losers) <= NAMED else f", most of all {named}"


def _bottom(found: Findings) -> Iterator[str]:
    """Report the clients that a method serves worst: the bottom decile and the worst client."""
    leader, alone = found.ranked[0], found.references.get("local")
    deciles = {label: found.mean(label, "decile") for label in found.ranked}
    texts = [
        f"{number(deciles[label])} and {number(found.mean(label, 'worst'))} with {label}"
        for label in dict.fromkeys((leader, alone))
        if label is not None
    ]
    yield f"Bottom decile and worst client: {', '.join(texts)}."
    kindest = (max if found.higher_is_better else min)(deciles, key=lambda name: deciles[name])
    if number(deciles[kindest]) != number(deciles[leader]) and kindest != alone:
        yield f"{kindest} has the best bottom decile ({number(deciles[kindest])})."


def _cost(found: Findings) -> Iterator[str]:
    """Report what the leader costs, next to plain fine-tuning."""
    leader, tuned = found.ranked[0], found.references.get("fedavg-ft")
    columns = {label: _costs(found, label) for label in dict.fromkeys((leader, tuned)) if label}
    sent, gradients, kept = columns[leader]
    beside = [f" ({tuned}: {text})" for text in columns[tuned]] if tuned in columns else [""] * 3
    if tuned != leader:
        yield (
            f"{leader} sends {sent}{beside[0]}, computes {gradients} gradients{beside[1]} and "
            f"keeps {kept} on each client{beside[2]}."
        )


def _costs(found: Findings, label: str) -> tuple[str, str, str]:
    rows = found.comparison
    sent = rows.mean(label, lambda row: row.cost.bytes_up + row.cost.bytes_down)
    gradients = rows.mean(label, lambda row: row.cost.gradients)
    return size(sent), amount(gradients), size(rows.mean(label, lambda r: r.cost.private_bytes))


def _halves(found: Findings) -> Iterator[str]:
    contrast = found.contrast
    if contrast is not None and contrast.supported:
        few, many, metric = contrast.few, contrast.many, found.metric
        yield (
            f"It depends on the client: with up to {contrast.most_of_few} training examples "
            f"({few.clients} clients) {few.label} is better than {few.reference} by "
            f"{gain(few.mean, metric)} {unit(metric)}, with more ({many.clients} clients) "
            f"{many.label} is better than {many.reference} by {gain(many.mean, metric)}."
        )
