"""What a comparison found, in sentences for whoever has to choose a method."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from motet.judging.caveats import caveats
from motet.judging.findings import Findings
from motet.judging.phrases import amount, gain, listed, number, plural, size, unit
from motet.judging.statistics import PairedDifference

MEANING = {
    "local": "training alone",
    "fedavg": "one model for all",
    "fedavg-ft": "plain fine-tuning",
}
NAMED = 3  # clients mentioned by name


def sentences(found: Findings) -> Iterator[str]:
    """Say what the findings are about, who leads, for whom, at what cost, and what is unknown."""
    if not found.ranked:
        yield "No method gave finite scores, so there is nothing to compare."
    else:
        yield from (_about(found), _leader(found))
        for part in (_against, _simple, _global_model, _harm, _bottom, _cost, _halves):
            yield from part(found)
    yield from caveats(found)


# -- who leads ----------------------------------------------------------------


def _about(found: Findings) -> str:
    first = found.comparison.rows[0].evaluation
    rounds = sorted({row.evaluation.round for row in found.comparison.rows})
    when = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
    return (
        f"{first.metric.capitalize()} of {plural(len(first.rows), 'client')} on their own "
        f"{first.split} data, {first.point}, {when}, "
        f"{plural(len(found.comparison.seeds), 'seed')}; every client counts once."
    )


def _leader(found: Findings) -> str:
    leader, *others = found.ranked
    mean = number(found.comparison.mean(leader, attrgetter("evaluation.mean")))
    leads = {label: found.difference(leader, label) for label in others}
    worse = [label for label, lead in leads.items() if lead.supported]
    if not others:
        return f"Only {leader} gave scores (mean {mean}): there is nothing to compare it with."
    if len(worse) == len(others):
        return f"{leader} is best (mean {mean}): better than every other method beyond chance."
    if len(found.best) == len(found.ranked):
        return (
            f"Not distinguishable: {leader} has the best mean ({mean}), but chance would give it "
            f"such a lead over {listed(others, 'or')}, too."
        )
    groups = {
        "Worse beyond chance": worse,
        "Probably worse": [label for label, lead in leads.items() if lead.probable],
        "Not distinguishable from it": found.best[1:],
    }
    said = [f"{what}: {listed(labels)}." for what, labels in groups.items() if labels]
    return " ".join([f"{leader} leads (mean {mean}).", *said])


def _against(found: Findings) -> Iterator[str]:
    """Compare the leader with the references, by how much and how surely."""
    leader = found.ranked[0]
    clauses = [
        _clause(difference, f"{MEANING[method]} ({difference.reference})", found.metric)
        for method in found.references
        if (difference := found.against(leader, method)) is not None
    ]
    if clauses:
        yield f"{leader} is {'; '.join(clauses)}."


def _clause(difference: PairedDifference, reference: str, metric: str) -> str:
    low, high = gain(difference.low, metric), gain(difference.high, metric)
    interval = f" (95% interval {low} to {high})" if difference.clients > 1 else ""
    measured = f"{gain(difference.mean, metric)} {unit(metric)}{interval}"
    if not (difference.supported or difference.probable):
        return f"not distinguishable from {reference}, {measured}"
    word = "better" if difference.mean > 0 else "worse"
    surely = "" if difference.supported else "probably "
    return f"{surely}{word} than {reference}, {measured}"


def _simple(found: Findings) -> Iterator[str]:
    """Say when the simplest thing to do is as good as the best."""
    plain = next((m for m, label in found.references.items() if label in found.best), None)
    if plain is None or len(found.ranked) == 1:
        return
    if found.references[plain] == found.ranked[0]:
        yield f"Nothing is shown to beat {MEANING[plain]}."
    elif plain == "local":
        yield "That federating helps these clients on average is not shown."
    else:
        yield f"That anything pays beyond {MEANING[plain]} is not shown."


def _global_model(found: Findings) -> Iterator[str]:
    """Warn of one model for all that does harm on average, whoever leads."""
    difference = found.against(found.references.get("fedavg", ""), "local")
    if difference is not None and (difference.worse or difference.probably_worse):
        yield (
            f"One model for all ({difference.label}) "
            f"{'does' if difference.supported else 'probably does'} harm: "
            f"{gain(difference.mean, found.metric)} {unit(found.metric)} against training alone, "
            f"worse for {difference.clients_worse} of {plural(difference.clients, 'client')}."
        )


# -- for whom, and at what cost -----------------------------------------------


def _harm(found: Findings) -> Iterator[str]:
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
        yield f"Of the best, {kindest} harms the fewest: {harm[kindest]}."


def _worst(losers: list[tuple[str, float]], metric: str) -> str:
    named = listed([f"{client} ({gain(loss, metric)})" for client, loss in losers[:NAMED]])
    return f": {named}" if len(losers) <= NAMED else f", most of all {named}"


def _bottom(found: Findings) -> Iterator[str]:
    """Describe those whom a method serves worst: the bottom decile, and the worst client."""
    leader, alone = found.ranked[0], found.references.get("local")
    deciles = {label: found.mean(label, "decile") for label in found.ranked}
    texts = [
        f"{number(deciles[label])} and {number(found.mean(label, 'worst'))} with {label}"
        for label in dict.fromkeys((leader, alone))
        if label is not None
    ]
    yield f"The bottom decile and the worst client are at {listed(texts)}."
    kindest = (max if found.higher_is_better else min)(deciles, key=lambda name: deciles[name])
    if number(deciles[kindest]) != number(deciles[leader]) and kindest != alone:
        yield f"The best bottom decile is that of {kindest}, {number(deciles[kindest])}."


def _cost(found: Findings) -> Iterator[str]:
    """Say what the leader asks for, beside plain fine-tuning."""
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
