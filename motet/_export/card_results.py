"""The results on a model card: the model's test score beside those of Local and FedAvg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scipy.stats import binomtest

from motet._core.points import MEANING
from motet._core.text import gain, plural, unit
from motet._export.markdown import code, table

SPLITS = {"val": "validation", "test": "test"}
WHO = {
    "local": ("Local", "trained on the rows of this client alone"),
    "fedavg": ("FedAvg", "one model for all clients"),
}
FEW = 100  # test rows under which a caution is due


def results_text(about: Mapping[str, Any]) -> str:
    """Write the scores of the model, and the comparison with Local and FedAvg."""
    if not about["scores"]:
        return "The client has no validation or test data, so nothing is known about its quality."
    rows = [
        (
            SPLITS[split],
            one["metric"],
            f"{one['value']:.4f}",
            f"{s['loss']:.4f}",
            str(s["examples"]),
        )
        for split, s in about["scores"].items()
        for one in (s, *s.get("also", ()))
    ]
    scores = table(("data", "metric", "value", "loss", "examples"), rows)
    parts = [f"On the client's own data, {MEANING[about['point']]}.", scores]
    return "\n\n".join([*parts, *_comparison(about)])


def _comparison(about: Mapping[str, Any]) -> Iterator[str]:
    test, own = about["scores"].get("test"), about["method"]["name"]
    others = [r for r in about.get("references", ()) if r["method"] != own]
    if test is None:
        return
    if not others:
        if own not in WHO or not about.get("references"):
            yield (
                "Local (training alone) and FedAvg (one model for all) were not compared with it. "
                "To put their results here, export with `--against DIR`, a directory of "
                "`motet compare`, or with `--references`, which trains both."
            )
        return
    further = _further(about, test)
    others = [r for r in others if r["metric"] == test["metric"]]
    head = ("on the test data", test["metric"], "95% interval", "this model minus it", "rounds")
    first = ("this model", f"{test['value']:.4f}", _interval(test), "", str(about["round"]))
    yield table(head, [first, *(_row(reference, test) for reference in others)])
    yield _in_words(test, others)
    yield from further


def _further(about: Mapping[str, Any], test: Mapping[str, Any]) -> list[str]:
    """Compare by the other metrics of the run, which did not decide anything."""
    references = {(r["method"], r["metric"]): r["value"] for r in about["references"]}
    rows = []
    for one in test.get("also", ()):
        found = [references.get((method, one["metric"])) for method in WHO]
        shown = ("" if value is None else f"{value:.4f}" for value in found)
        better = "larger" if one["higher_is_better"] else "smaller"
        rows.append((one["metric"], f"{one['value']:.4f}", *shown, better))
    if not rows:
        return []
    names = (name for name, _ in WHO.values())
    return [
        "By the other metrics of the run, on the same rows:",
        table(("metric", "this model", *names, "better is"), rows),
    ]


def _row(reference: Mapping[str, Any], test: Mapping[str, Any]) -> tuple[str, ...]:
    name, what = WHO[reference["method"]]
    seeds = f", mean of {reference['seeds']} seeds" if reference["seeds"] > 1 else ""
    difference = test["value"] - reference["value"]
    shown = f"{gain(difference, test['metric'])} {unit(test['metric'])}"
    value, interval = f"{reference['value']:.4f}", _interval(reference)
    return f"{name} ({what}{seeds})", value, interval, shown, str(reference["round"])


def _in_words(test: Mapping[str, Any], others: list[Mapping[str, Any]]) -> str:
    sentences = []
    for reference in others:
        difference = test["value"] - reference["value"]
        better = difference > 0 if test["higher_is_better"] else difference < 0
        how = "the same as" if difference == 0 else "better than" if better else "worse than"
        sentences.append(f"{how} {WHO[reference['method']][0]}")
    examples = test["examples"]
    said = f"On these {plural(examples, 'row')} the model is {' and '.join(sentences)}."
    if examples < FEW:
        one = f" One row is {100 / examples:.1f} points." if test["metric"] == "accuracy" else ""
        said += (
            f" With {plural(examples, 'test row')}, a small difference may be due to chance.{one}"
        )
    return said


def _interval(score: Mapping[str, Any]) -> str:
    """Write the Wilson interval of an accuracy; other metrics have none."""
    if score["metric"] != "accuracy" or not score["examples"]:
        return ""
    right = round(score["value"] * score["examples"])
    found = binomtest(right, score["examples"]).proportion_ci(0.95, method="wilson")
    return f"{found.low:.2f} to {found.high:.2f}"


def one_line(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Write the test scores of a model, Local and FedAvg for a list of models."""
    test = about["scores"].get("test")
    shown = "" if test is None else f"{test['value']:.4f}"
    rows = "" if test is None else str(test["examples"])
    found = {
        r["method"]: f"{r['value']:.4f}"
        for r in about.get("references", ())
        if test is None or r["metric"] == test["metric"]
    }
    return code(about["client"]), shown, *(found.get(name, "") for name in WHO), rows
