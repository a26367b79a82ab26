"""Groups of clients that are not independent: tests of means count groups."""

from dataclasses import replace

import numpy as np
import pytest
from scored import scored
from small_comparisons import world

import motet
from motet._compare.config import plan_from_dict
from motet._compare.site_group_files import read_site_groups
from motet._verdict.findings import find
from motet._verdict.site_groups import group_names, over_groups
from motet._verdict.verdict import verdict
from motet.errors import RequestError


def in_groups(clients, size):
    return {f"c{n:02}": f"g{n // size}" for n in range(clients)}


def drawn(rng, *, clients=10, size=5, methods=("local", "fedavg", "fedavg-ft", "fedper")):
    """Equal methods; the clients of a group gain alike."""
    groups = -(-clients // size)
    table = {
        label: 0.7
        + 0.05 * rng.normal(size=(groups, 1)).repeat(size, 0)[:clients]
        + 0.005 * rng.normal(size=(clients, 3))
        for label in methods
    }
    return scored(table)


def test_the_mean_over_groups_is_the_mean_over_clients():
    values = np.random.default_rng(0).normal(size=(7, 3))
    rows = over_groups(values, ["a", "a", "b", "c", "c", "c", "d"])
    assert rows.shape == (4, 3)
    np.testing.assert_allclose(rows.mean(0), values.mean(0))


def test_clients_without_a_group_are_independent_also_of_a_group_with_their_name():
    assert len(set(group_names(["a", "b", "c"], {"a": "c", "b": "c"}))) == 2


def test_groups_of_one_client_each_change_nothing():
    comparison = drawn(np.random.default_rng(3))
    alone = replace(comparison, site_groups=in_groups(10, 1))
    assert verdict(alone) == verdict(comparison)


def test_equal_methods_are_rarely_called_different_if_their_groups_are_known():
    false = {"unknown": 0, "known": 0}
    for number in range(25):
        comparison = drawn(np.random.default_rng(number))
        known = replace(comparison, site_groups=in_groups(10, 5))
        for name, table in (("unknown", comparison), ("known", known)):
            found = find(table).differences.values()
            false[name] += any(one.supported or one.probable for one in found)
    assert false["known"] <= 2
    assert false["unknown"] >= 10  # what the groups are for


def test_a_clear_gain_is_still_seen_over_groups():
    rng = np.random.default_rng(0)
    local = 0.6 + 0.01 * rng.normal(size=(30, 3))
    better = local + 0.2 + 0.02 * rng.normal(size=(10, 1)).repeat(3, 0)
    comparison = scored({"local": local, "fedper": better})
    found = find(replace(comparison, site_groups=in_groups(30, 3)))
    assert found.differences["fedper", "local"].supported
    alone = find(comparison).differences["fedper", "local"]
    assert found.differences["fedper", "local"].mean == pytest.approx(alone.mean)


def test_the_verdict_says_that_it_counts_groups():
    few = replace(drawn(np.random.default_rng(0)), site_groups=in_groups(10, 5))
    said = str(verdict(few))
    assert "The 10 clients belong to 2 groups that are independent of each other" in said
    assert "2 groups are few" in said
    one = replace(few, site_groups=in_groups(10, 10))
    assert "One group says nothing about others" in str(verdict(one))
    assert not any(found.supported or found.probable for found in verdict(one).differences)


def test_groups_are_read_from_a_file_and_kept_with_the_results(tmp_path):
    file = tmp_path / "groups.csv"
    file.write_text("Client;Group\nc0;north\nc1;north\nc2;007\n")
    found = motet.compare(
        [motet.FedPer()], *world(), rounds=1, seeds=2, site_groups=file, leave_one_out=True
    )
    assert found.site_groups == {"c0": "north", "c1": "north", "c2": "007"}
    again = type(found).from_dict(found.to_dict())
    assert again.site_groups == found.site_groups
    assert "The 4 clients belong to 3 groups" in str(again.verdict())


def test_a_config_names_a_file_or_the_groups_themselves(tmp_path):
    file = tmp_path / "groups.csv"
    file.write_text("client,group\na,x\n")
    data = {"data": {"name": "digits"}, "run": {"rounds": 1}}
    for given in (str(file), {"a": "x"}):
        plan = plan_from_dict({**data, "compare": {"site_groups": given}})
        assert plan.to_dict()["compare"]["site_groups"] == {"a": "x"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("client,region\na,x\n", "expects the columns client and group"),
        ("client,group\na,x\na,y\n", 'puts the client "a" into two groups, "x" and "y"'),
        ("client,group\na,\n", "has no group"),
    ],
)
def test_a_file_that_is_not_about_groups_is_refused(tmp_path, text, sentence):
    file = tmp_path / "groups.csv"
    file.write_text(text)
    with pytest.raises(RequestError, match=sentence):
        read_site_groups(file)


def test_a_client_that_the_data_do_not_have_is_refused_before_anything_runs():
    with pytest.raises(RequestError, match='name the client "c9", which the data do not have'):
        motet.compare([motet.FedPer()], *world(), rounds=10**9, site_groups={"c9": "x"})
