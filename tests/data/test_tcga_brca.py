"""TCGA-BRCA: FLamby's files and the converted copy, regions as clients, survival as the task."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.config import experiment_from_dict
from motet.data._sets import tcga_brca
from motet.errors import DataError, RequestError

COLUMNS = ["age_at_index", *(f"column {number}" for number in range(38))]


def write_flamby(folder, *, lost: int = 0) -> None:
    (folder / "tcga-brca").mkdir(parents=True)
    patients, folds = [",".join(["pid", *COLUMNS, "E", "T"])], ["pid,fold,fold2"]
    for number, (region, count) in enumerate(tcga_brca.PATIENTS.items()):
        for patient in range(count - lost):
            pid, fold = f"{region}-{patient}", "test" if patient % 5 == 0 else "train"
            values = [str(50 + patient % 30), *(str(patient % 2) for _ in range(38))]
            event = int(patient % 4 == 1)
            patients.append(",".join([pid, *values, str(event), str(100 + patient)]))
            folds.append(f"{pid},{fold},{fold}_{number}")
    (folder / "tcga-brca/brca.csv").write_text("\n".join(patients) + "\n")
    (folder / "tcga-brca/train_test_split.csv").write_text("\n".join(folds) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "data"


def test_flambys_files_give_regions_splits_and_survival_targets(folder):
    write_flamby(folder)
    data = motet.data.load("tcga-brca", val=0.0)
    assert data.survival
    assert sorted(data.clients) == sorted(tcga_brca.REGIONS)
    assert {c: data.size(c, "train") + data.size(c, "test") for c in data.clients} == (
        tcga_brca.PATIENTS
    )
    assert data.size("Canada", "test") == 11
    x, y = data.examples("Canada", "train")
    assert x.shape == (40, 39)
    assert y[0].tolist() == [101.0, 1.0]
    assert x[0, 0].item() == pytest.approx((51 - 60) / 10)


def test_a_copy_that_lost_patients_is_refused(folder):
    write_flamby(folder, lost=1)
    with pytest.raises(DataError, match="'Canada': 50"):
        motet.data.load("tcga-brca")


def test_survival_data_have_a_hazard_loss_with_bins_of_equally_many_events(folder):
    write_flamby(folder)
    asked = {"data": {"name": "tcga-brca"}, "method": {"name": "fedavg"}, "run": {"rounds": 1}}
    experiment = experiment_from_dict(asked | {"model": {"bins": 4, "hidden": []}})
    data = experiment.federation()
    model = experiment.resolved(data).model
    assert (model.loss, len(model.times)) == ("discrete_hazard", 4)
    times = np.concatenate([data.examples(c, "train").y for c in data.clients])
    events = times[times[:, 1] > 0, 0]
    counts, _ = np.histogram(events, [0, *np.nextafter(np.asarray(model.times), np.inf)])
    assert counts.max() - counts.min() <= 0.1 * len(events)
    again = experiment_from_dict(experiment.resolved(data).to_dict())
    assert again.resolved(data).model == model  # the bins are written down
    assert experiment.start(data).evaluate().metric == "c_index"


def test_time_bins_are_refused_for_other_losses(folder):
    asked = {"method": {"name": "fedavg"}, "model": {"times": [1.0, 2.0]}}
    experiment = experiment_from_dict(asked)
    with pytest.raises(RequestError, match="which cross_entropy does not have"):
        experiment.resolved(experiment.federation())
    asked = {"method": {"name": "fedavg"}, "model": {"loss": "discrete_hazard"}}
    experiment = experiment_from_dict(asked)
    with pytest.raises(RequestError, match=r"expects targets \(time, event\)"):
        experiment.resolved(experiment.federation())


@pytest.mark.data
def test_the_real_patients_are_those_of_flambys_table():
    data = motet.data.load("tcga-brca", val=0.0)
    assert data.sizes("train") == {
        "Northeast": 248, "South": 156, "West": 164, "Midwest": 129, "Europe": 129, "Canada": 40,
    }  # fmt: skip
    assert sum(data.sizes("test").values()) == 222
