"""Verdicts: the right words where the truth is known, and no claim where it is not."""

import json
import re
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from scored import noisy, scored
from torch import nn

import motet
from motet._compare.comparison import Comparison
from motet._engine.results import over_common_clients
from motet._verdict.findings import find
from motet._verdict.statistics import gains
from motet._verdict.verdict import verdict
from motet.data import Split, from_arrays

ALL = ("local", "fedavg", "fedavg-ft", "fedper", "ditto")
CALM = {"client": 0.02, "seed": 0.002, "rest": 0.01}


def world(means, labels=ALL, *, clients=12, seed=0, noise=CALM, **options):
    rng = np.random.default_rng(seed)
    return scored(noisy(rng, labels, clients=clients, means=means, **noise), **options)


def said(comparison):
    return str(verdict(comparison))


# -- a known truth ------------------------------------------------------------


def test_a_clear_winner_is_named_with_how_much_it_wins_by():
    found = verdict(world({"fedper": 0.2}))
    assert found.best == ("fedper",)
    assert "fedper is best" in str(found)
    assert "better than every other method" in str(found)
    lead = found.against("fedper", "fedavg-ft")
    assert lead.better
    assert lead.low < 0.2 < lead.high
    assert f"better than plain fine-tuning (fedavg-ft), {100 * lead.mean:+.1f} points" in str(found)


def test_methods_that_are_equally_good_share_the_first_place():
    found = verdict(world({"fedper": 0.2, "ditto": 0.2}))
    assert set(found.best) == {"fedper", "ditto"}
    assert found.simplest == found.best[0]
    assert "No clear difference: " in str(found)
    assert "Worse: " in str(found)


def test_plain_fine_tuning_that_is_as_good_is_recommended_as_the_simplest():
    found = verdict(world({"fedper": 0.2, "fedavg-ft": 0.2}))
    assert found.simplest == "fedavg-ft"
    assert "plain fine-tuning" in str(found)
    assert "We cannot tell whether" in str(found) or "No method beats" in str(found)


def test_training_alone_that_is_as_good_says_that_federating_is_not_shown_to_help():
    comparison = world({"fedavg": -0.2}, seed=2)
    found = verdict(comparison)
    assert found.simplest == "local"
    assert "federating helps" in str(found) or "No method beats training alone" in str(found)
    assert "One model for all (fedavg) is worse than training alone" in str(found)


def test_better_on_average_does_not_hide_who_is_harmed():
    local = np.full((20, 3), 0.6)
    gain = np.r_[np.full(13, 0.3), np.full(6, -0.05), -0.15]
    noise = 0.001 * np.random.default_rng(0).normal(size=(20, 3))
    found = verdict(scored({"local": local, "fedper": local + gain[:, None] + noise}))
    assert "Better on average, but 7 of 20 clients are worse off with fedper than alone" in str(
        found
    )
    assert "most of all c19 (-15.0)" in str(found)
    assert found.harmed["fedper"][0] == ("c19", pytest.approx(-0.15, abs=0.01))
    assert len(found.harmed["fedper"]) == 7
    written = json.loads(json.dumps(found.to_dict()))
    assert written["main"] == ["fedper", "local"]
    assert written["harmed"]["fedper"][0]["client"] == "c19"
    assert len(written["harmed"]["fedper"]) == 7


def test_the_kindest_of_the_best_is_named():
    local = np.full((16, 3), 0.6)
    rng = np.random.default_rng(1)
    rough = np.where(np.arange(16) < 4, -0.05, 0.41)[:, None] + 0.02 * rng.normal(size=(16, 3))
    kind = 0.28 + 0.02 * rng.normal(size=(16, 3))
    text = said(scored({"local": local, "fedper": local + rough, "ditto": local + kind}))
    assert "Among the best methods, ditto harms the fewest clients (0)." in text


def test_the_best_bottom_decile_is_named_when_it_is_not_the_leaders():
    rng = np.random.default_rng(2)
    base = {label: 0.5 + 0.001 * rng.normal(size=(20, 3)) for label in ("local", "fedper", "ditto")}
    base["fedper"] += np.where(np.arange(20) < 5, -0.1, 0.4)[:, None]
    base["ditto"] += 0.2
    assert "ditto has the best bottom decile" in said(scored(base))


def test_the_cost_stands_beside_that_of_plain_fine_tuning():
    comparison = world({"fedper": 0.2})
    cheap = [
        replace(row, cost=replace(row.cost, bytes_up=100, bytes_down=0, private_bytes=9e6))
        if row.label == "fedper"
        else row
        for row in comparison.rows
    ]
    text = said(replace(comparison, rows=tuple(cheap)))
    assert "fedper sends 100 B (fedavg-ft: 3.0 kB)" in text
    assert "keeps 9.0 MB on each client (fedavg-ft: 50 B)" in text


def test_rmse_is_measured_in_its_own_units_and_lower_wins():
    text = said(world({"fedper": -0.2}, metric="rmse"))
    assert "fedper is best" in text
    assert re.search(r"better than training alone \(local\), \+0.[12]\d+ rmse \(95% interval", text)


def halves(advantage, clients=24):
    """Local wins for large clients by `advantage`, and loses by as much for small ones."""
    rng = np.random.default_rng(3)
    large = np.arange(clients) >= clients // 2
    scores = noisy(rng, ("local", "fedavg-ft"), clients=clients, means={"fedavg-ft": 0.01}, **CALM)
    scores["local"] += np.where(large, advantage, -advantage)[:, None]
    return scored(scores, sizes=[100 if is_large else 20 for is_large in large])


def test_different_methods_for_small_and_large_clients_are_told_apart():
    text = said(halves(0.2))
    assert (
        "It depends on the client: with up to 20 training examples (12 clients) fedavg-ft" in text
    )
    assert "with more (12 clients) local is better than fedavg-ft" in text


def test_halves_that_differ_no_more_than_chance_are_not_mentioned():
    by_chance = halves(0.012)
    contrast = find(by_chance).contrast
    assert (contrast.few.label, contrast.many.label) == ("fedavg-ft", "local")
    assert "It depends" not in said(by_chance)
    assert "It depends" not in said(halves(0.2, clients=8))  # too few to tell


# -- what cannot be known -----------------------------------------------------


def test_equal_scores_are_not_distinguishable():
    same = np.tile(np.linspace(0.5, 0.9, 10)[:, None], 3)
    found = verdict(scored(dict.fromkeys(ALL, same)))
    assert set(found.best) == set(ALL)
    assert "No clear winner" in str(found)
    assert not any(d.apart for d in found.differences)


def test_five_hospitals_are_told_that_they_are_few_and_what_they_show_is_said():
    text = said(world({"fedper": 0.3}, clients=5))
    assert "5 clients are few" in text
    assert "fedper leads" in text
    assert "for 5 of 5 clients" in text
    assert not any(
        found.supported for found in verdict(world({"fedper": 0.3}, clients=7)).differences
    )
    assert "clients are few" not in said(world({"fedper": 0.3}, clients=8))


def test_one_seed_and_two_seeds_are_told_so():
    one = scored({label: s[:, :1] for label, s in noisy(np.random.default_rng(0), ALL).items()})
    two = scored({label: s[:, :2] for label, s in noisy(np.random.default_rng(0), ALL).items()})
    assert "One seed supports statements about this run only" in said(one)
    assert not any(d.supported or d.probable for d in verdict(one).differences)
    assert "One seed" not in said(two)


def test_a_difference_that_flips_between_seeds_is_not_called_real():
    rng = np.random.default_rng(4)
    local = 0.7 + 0.001 * rng.normal(size=(100, 3))
    fickle = local + np.array([0.3, 0.2, -0.1])
    found = verdict(scored({"local": local, "fedper": fickle}))
    (difference,) = found.differences
    assert not difference.supported
    assert not difference.probable
    assert "fedper leads" in str(found)
    assert "Worse in these runs, which 3 seeds cannot settle: local." in str(found)


def test_one_client_is_described_and_nothing_is_tested():
    text = said(scored({"local": [[0.5, 0.6]], "fedper": [[0.9, 0.8]]}))
    assert "One client says nothing about others" in text
    assert "+30.0 points" in text
    assert "nan" not in text


def test_one_method_alone_is_not_compared():
    assert "there is nothing to compare it with" in said(scored({"fedper": [[0.5], [0.6]]}))


def test_a_method_without_finite_scores_is_not_ranked():
    scores = noisy(np.random.default_rng(5), ("local", "fedavg-ft", "fedper"))
    scores["fedper"][3, 1] = np.nan
    scores["fedper"][4, 1] = np.inf
    found = verdict(scored(scores, metric="rmse"))
    assert "fedper has no finite score for 2 clients and is not ranked." in str(found)
    assert "fedper" not in found.best
    assert found.against("fedper", "local") is None


def test_failures_and_missing_references_are_said():
    failures = [("fedem", 0, "the loss is NaN"), ("fedem", 2, "the loss is NaN")]
    text = said(world({}, ("local", "fedper"), failures=failures))
    assert "fedem gave no result with seeds 0 and 2: The loss is NaN." in text
    assert "fedavg and fedavg-ft have no scores, so no method is compared with them." in text


def test_a_method_with_fewer_seeds_is_compared_over_those_it_has():
    whole = world({"fedper": 0.2})
    partly = replace(whole, rows=tuple(r for r in whole.rows if (r.label, r.seed) != ("fedper", 1)))
    assert len(verdict(partly).against("fedper", "local").by_seed) == 2


def test_seeds_that_no_two_methods_share_support_nothing():
    whole = world({"fedper": 0.2}, ("local", "fedper"))
    keep = {("local", 0), ("fedper", 1)}
    apart = replace(whole, rows=tuple(r for r in whole.rows if (r.label, r.seed) in keep))
    found = verdict(apart)
    assert set(found.best) == {"local", "fedper"}
    assert not found.against("fedper", "local").supported


def test_when_everything_failed_that_is_the_verdict():
    nothing = Comparison(rows=(), data="toy", split="", rounds=1, cohort=1.0)
    found = verdict(nothing)
    assert found.best == ()
    assert found.simplest is None
    assert "nothing to compare" in str(found)


def test_the_verdict_says_what_it_is_about():
    first = verdict(world({})).sentences[0]
    for word in ("Accuracy", "12 clients", "test data", "final model", "round 5", "3 seeds"):
        assert word in first


# -- how often it is right ----------------------------------------------------


@pytest.mark.parametrize("seed_noise", [0.01, 0.1])
def test_equal_methods_get_no_verdict_in_95_of_100_tables(seed_noise):
    claims = 0
    for repetition in range(100):
        rng = np.random.default_rng([repetition, int(1000 * seed_noise)])
        found = verdict(scored(noisy(rng, ALL[1:], clients=9, seed=seed_noise)))
        claims += any(d.supported for d in found.differences)
    assert claims <= 5


def test_a_true_lead_of_two_standard_deviations_is_found_most_of_the_time():
    found = [
        verdict(scored(noisy(np.random.default_rng(n), ALL, clients=10, means={"fedper": 0.15})))
        for n in range(20)
    ]
    assert sum(v.against("fedper", "local").better for v in found) >= 16
    assert all(v.best[0] == "fedper" for v in found)


# -- through motet.compare ----------------------------------------------------


SHIFT, DIMENSIONS = 0.5, 20


def two_groups(clients=12, *, opposite=True, training=6):
    """Points of two classes; every second client names the classes the other way round."""
    rng, federation = np.random.default_rng(0), {"train": {}, "test": {}}
    for number in range(clients):
        y = rng.permutation(np.arange(training + 40) % 2)
        x = rng.normal(size=(len(y), DIMENSIONS)) + SHIFT * (2 * y[:, None] - 1)
        x = x.astype(np.float32)
        named = 1 - y if opposite and number % 2 else y
        federation["train"][f"c{number:02d}"] = (x[:training], named[:training])
        federation["test"][f"c{number:02d}"] = (x[training:], named[training:])
    return from_arrays(**federation)


def linear(data):
    return motet.Task(build=lambda: nn.Linear(*data.shape, 2))


def test_opposite_labels_make_one_model_harmful_and_clusters_right():
    data = two_groups()
    method = motet.IFCA(models=2, optimizer=motet.Sgd(lr=0.1), steps=5, batch_size=None)
    found = motet.compare([method], linear(data), data, rounds=5, seeds=3).verdict()
    assert found.best == ("ifca",)
    assert "One model for all (fedavg) is worse than training alone" in str(found)
    # Whatever one model says is right for one group and wrong for the other: half of the time.
    lead, right = found.against("ifca", "fedavg"), NormalDist().cdf(SHIFT * DIMENSIONS**0.5)
    assert lead.low < right - 0.5 < lead.high
    assert found.against("ifca", "local").better
    assert len(found.harmed["fedavg"]) == 12


def test_every_client_gets_a_verdict_of_its_own_with_other_labels():
    data = two_groups(clients=6)
    method = motet.IFCA(models=2, optimizer=motet.Sgd(lr=0.1), steps=5, batch_size=None)
    table = motet.compare([method], linear(data), data, rounds=5, seeds=3)
    found = table.verdict()
    harmed = found.of_sites("fedavg", "ifca") or found.of_sites("ifca", "fedavg")
    assert {site.site for site in harmed} == set(data.clients)
    assert all(site.examples == 40 and not site.small for site in harmed)
    assert sum(site.state == "helped" for site in harmed) >= 4  # those whose labels are turned
    assert found.answer.startswith("Compared with training alone, ")
    written = table.to_dict()["verdict"]
    assert len(written["sites"]) == len(found.sites)
    assert written["answer"] == found.answer


def test_with_one_seed_clients_are_judged_in_this_run_only():
    data = two_groups(clients=4)
    found = motet.compare([motet.FedAvg(steps=3)], linear(data), data, rounds=1, seeds=1).verdict()
    assert found.sites
    assert {site.state for site in found.sites} == {"cannot tell"}
    assert found.answer.startswith("In this run, compared with training alone, ")


def test_clients_of_whom_nothing_is_known_are_not_counted_one_by_one():
    rng = np.random.default_rng(0)
    clients = {
        f"s{n}": (rng.normal(size=(30, 3)).astype("float32"), np.arange(30) % 2) for n in (1, 2, 3)
    }
    data = from_arrays(clients, split=Split(0.0, 0.3))
    found = motet.compare([motet.FedPer()], linear(data), data, rounds=1, seeds=2).verdict()
    assert "we cannot tell for any of 3 clients whether" in found.answer


def test_the_only_client_is_answered_by_name():
    data = two_groups(clients=1)
    found = motet.compare([motet.FedAvg(steps=1)], linear(data), data, rounds=1, seeds=2).verdict()
    assert f"the only client ({data.clients[0]})" in found.answer
    assert "of 1 client" not in found.answer


def test_small_clients_are_named_with_the_mean_without_them():
    comparison = world({"fedper": 0.2}, clients=8)
    rows = []
    for row in comparison.rows:
        few = [
            score._replace(examples=3 if score.client == "c00" else 50)
            for score in row.evaluation.rows
        ]
        rows.append(replace(row, evaluation=replace(row.evaluation, rows=tuple(few))))
    text = said(replace(comparison, rows=tuple(rows)))
    assert "1 client has fewer than 20 test examples (c00); without it the mean gain of" in text


def test_clients_without_scores_are_counted():
    text = said(replace(halves(0.2), federation=halves(0.2, clients=26).federation))
    assert "2 clients have no test data and no scores" in text


def test_the_same_method_with_other_seeds_is_not_distinguishable():
    data = two_groups(opposite=False)
    first, second = (
        motet.compare([motet.FedAvg(steps=3)], linear(data), data, rounds=1, seeds=seeds)
        for seeds in ((0, 1, 2), (10, 11, 12))
    )
    twins = tuple(replace(r, label="twin", seed=r.seed - 10) for r in second.of("fedavg"))
    found = verdict(replace(first, rows=(*first.rows, *twins)))
    difference = found.against("twin", "fedavg")
    assert difference.mean != 0
    assert not difference.supported
    assert not difference.probable


def without_a_value(row, clients):
    """Make the metric of one run undefined for some clients."""
    table = row.evaluation
    gone = tuple(s._replace(undefined=True) for s in table.rows if s.client in clients)
    kept = tuple(s for s in table.rows if s.client not in clients)
    return replace(row, evaluation=replace(table, rows=kept, undefined=gone))


def test_a_metric_undefined_under_one_method_leaves_the_client_out_for_all_of_them():
    comparison = world({"fedper": 0.2}, clients=12)
    gone = {"c00", "c01"}
    rows = over_common_clients(
        [without_a_value(r, gone) if r.label == "fedper" else r for r in comparison.rows]
    )
    cut = replace(comparison, rows=rows)
    assert {score.client for row in rows for score in row.evaluation.rows}.isdisjoint(gone)
    assert {found.clients for found in cut.verdict().differences} == {10}
    assert cut.clients == (10, 12)
    text = said(cut)
    assert "of 10 of 12 clients on their own test data" in text
    assert "accuracy is undefined for 2 clients (c00, c01) in some runs of fedper" in text
    assert "out for every method" in text
    read = type(cut).from_dict(cut.to_dict())
    assert read.verdict().sentences == cut.verdict().sentences


def test_where_examples_count_equally_so_they_do_without_small_clients():
    sizes = {"c00": 3, "c01": 400}
    comparison = world({"fedper": 0.2}, clients=8)
    rows = tuple(
        replace(
            row,
            evaluation=replace(
                row.evaluation,
                weigh="examples",
                rows=tuple(
                    s._replace(examples=sizes.get(s.client, 40)) for s in row.evaluation.rows
                ),
            ),
        )
        for row in comparison.rows
    )
    found = find(replace(comparison, rows=rows))
    gained = gains(found.comparison, "fedper", "local")
    large = [client != "c00" for client in gained.clients]
    expected = np.average(gained.values.mean(1)[large], weights=gained.weights[large])
    assert found.without_small["fedper", "local"] == pytest.approx(expected)
