"""What a site gives, and what is agreed on before the first round."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.data_schema import DataSchema, blank, empty_federation
from motet.deploy._runtime.parcels import scalar, unpack, unpack_first
from motet.deploy._runtime.server_limits import ServerLimits
from motet.errors import CapabilityError, DataError, RequestError, WireError

CONFIG = """
[run]
rounds = 2
seed = 3

[method]
name = "fedper"

[model]
name = "logistic"

[data]
shape = [2]
classes = 3
labels = ["low", "middle", "high"]
features = ["age", "dose"]
target = "risk"
"""


def agreement(text=CONFIG) -> Agreement:
    return Agreement.from_text("trial-1", text)


def write_table(path, rows, header="age,dose,risk"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


ROWS = [(40 + i, i / 10, ["low", "high"][i % 2]) for i in range(20)]


def test_a_table_is_read_as_it_was_agreed(tmp_path):
    data = agreement().sites.load("a", write_table(tmp_path / "a.csv", ROWS))
    assert data.clients == ("a",)
    assert (data.classes, data.labels) == (3, ("low", "middle", "high"))
    assert [data.size("a", split) for split in ("train", "val", "test")] == [12, 4, 4]
    assert set(data.examples("a", "train").y.tolist()) == {0, 2}, "a class may be missing at a site"


def test_a_column_may_say_which_rows_are_for_what(tmp_path):
    rows = [(*row, ["train", "val", "test", "train"][i % 4]) for i, row in enumerate(ROWS)]
    place = write_table(tmp_path / "a.csv", rows, "age,dose,risk,fold")
    data = agreement(CONFIG + '\nsplit = "fold"\n').sites.load("a", place)
    assert [data.size("a", split) for split in ("train", "val", "test")] == [10, 5, 5]


def test_a_folder_of_arrays_is_read_as_it_was_agreed(tmp_path):
    x, y = np.ones((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2])
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", x=x, y=y)
    data = agreement(CONFIG + "\nmean = [1.0, 0.0]\nstd = [1.0, 2.0]\n").sites.load(
        "a", str(tmp_path)
    )
    assert [data.size("a", split) for split in ("train", "val", "test")] == [6, 0, 6]
    assert torch.equal(data.examples("a", "train").x[0], torch.tensor([0.0, 0.5]))


def test_inputs_of_another_shape_are_refused(tmp_path):
    np.savez(tmp_path / "train.npz", x=np.ones((6, 5), np.float32), y=np.zeros(6, np.int64))
    with pytest.raises(DataError, match=r"shape \(2,\) was agreed on; got \(5,\)"):
        agreement().sites.load("a", str(tmp_path))


def test_a_label_that_nobody_agreed_on_is_refused(tmp_path):
    place = write_table(tmp_path / "a.csv", [*ROWS, (1, 2, "extreme")])
    with pytest.raises(
        DataError, match='"extreme" is none of the agreed labels: low, middle, high'
    ):
        agreement().sites.load("a", place)


def test_a_site_without_data_is_told_how_to_give_some():
    with pytest.raises(RequestError, match=r'set data="\.\.\." in its node config'):
        agreement().sites.load("a", None)


def test_an_outline_has_names_and_forms_and_no_example():
    data = empty_federation(DataSchema(shape=(2,), classes=3), ["b", "a"], "agreed")
    assert data.clients == ("b", "a")
    assert data.hash == "agreed"
    x, y = data.examples("a", "train")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((0, 2), torch.float32, (0,), torch.int64)
    assert blank(data).x.shape == (1, 2)


def test_server_and_sites_start_from_the_same_model(tmp_path):
    agreed = agreement()
    server = agreed.setting(agreed.empty_federation(("a", "b")))
    site = agreed.setting_at("a", write_table(tmp_path / "a.csv", ROWS))
    assert server.initial.keys() == site.initial.keys()
    assert all(torch.equal(server.initial[name], site.initial[name]) for name in server.initial)


def test_any_change_of_the_config_is_another_agreement():
    assert agreement().agreed == agreement().agreed
    assert agreement().agreed != agreement(CONFIG.replace("seed = 3", "seed = 4")).agreed
    assert agreement().agreed != Agreement.from_text("trial-2", CONFIG).agreed


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b"])
def test_the_name_of_an_experiment_is_a_plain_word(name):
    with pytest.raises(RequestError, match="letters, digits"):
        Agreement.from_text(name, CONFIG)


def test_a_run_config_without_the_experiment_says_what_is_missing():
    with pytest.raises(RequestError, match='the run config needs "config"'):
        Agreement.from_run_config({"experiment": "trial"})


def test_a_method_that_moves_examples_is_refused():
    with pytest.raises(CapabilityError, match="never leave their sites"):
        agreement(CONFIG.replace("fedper", "fedavg-shared"))


def test_terms_are_read_with_hyphens_and_commas():
    terms = ServerLimits.from_run_config(
        {"out": "runs/1", "clients": "b, a", "min-clients": 2, "deadline-s": 5.0, "config": "..."}
    )
    assert terms == ServerLimits(out="runs/1", clients=("b", "a"), min_clients=2, deadline_s=5.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"min-clients": 0}, "min_clients must be above 0"),
        ({"clients": "a,b", "min-clients": 3}, "more than the 2 clients"),
        ({"attempts": "often"}, "attempts"),
    ],
)
def test_terms_that_cannot_be_met_are_refused(wrong, sentence):
    with pytest.raises(RequestError, match=sentence):
        ServerLimits.from_run_config({"out": "runs/1", **wrong})


def test_a_header_s_numbers_are_numbers():
    assert scalar({"n": 3}, "n", int) == 3
    assert scalar({"n": 3}, "n", float) == 3.0
    for header in ({}, {"n": "3"}, {"n": True}):
        with pytest.raises(WireError, match='the header needs "n" as int'):
            scalar(header, "n", int)


def test_a_message_has_the_form_whose_names_came():
    forms = [{"a": torch.zeros(2)}, {"b": torch.zeros(1)}]
    assert unpack_first(forms, {"b": np.ones(1, np.float32)}) == {"b": torch.ones(1)}
    with pytest.raises(WireError, match=r"missing \['b'\], unexpected \['c'\]"):
        unpack_first(forms, {"c": np.ones(1, np.float32)})


def test_what_does_not_fit_is_refused_before_it_is_copied():
    with pytest.raises(WireError, match="expected at most 8 bytes; got 400"):
        unpack({"a": torch.zeros(2)}, {"a": np.zeros(100, np.float32)})
