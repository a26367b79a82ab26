"""What methods show about a finished run: the numbers of their own state, and no test data."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet import CFL, IFCA, KNNPer, Sgd
from motet._core import studies
from motet._core.studies import MOST_FRAMES, MOST_NAMES, Study, evenly
from motet.analysis import routing_shares
from motet.analysis._knn_studies import chosen_lambdas, lambda_capacity_table
from motet.data._federation import Federation
from motet.errors import RequestError
from motet.methods._bases.bank import member
from motet.methods._catalog import method_class, method_names
from motet.methods._fedamp import flat
from motet.testing._worlds import CLASSES, FEATURES, TinyNet, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])
WITH_STUDIES = {  # method: the kinds of its studies
    "apfl": ["per_client"],
    "cfl": ["tree"],
    "dynamic-routing": ["shares"],
    "fedalt": ["per_client"],
    "fedamp": ["matrix", "lines"],
    "fedem": ["shares"],
    "fedfomo": ["matrix", "matrix"],
    "fedper": ["per_client"],
    "fedsim": ["per_client"],
    "flow": ["shares"],
    "heur-fedamp": ["matrix", "lines"],
    "ifca": ["shares"],
    "knn-per": ["per_client", "lines", "lines"],
    "mocha": ["matrix"],
    "mocha-deep": ["matrix"],
}


def finished(method, backend="serial", rounds=2, **settings):
    world = ragged()
    linear = method.name == "mocha"
    task = motet.Task(lambda: nn.Linear(FEATURES, CLASSES)) if linear else world.task
    return motet.run(method, task, world.data, rounds=rounds, backend=backend, **settings)


def shown(name, backend="serial", **settings):
    run = finished(method_class(name)(), backend, **settings)
    return run, run.setting.method.studies(run)


def plain(found):
    return json.loads(json.dumps([study.to_dict() for study in found], allow_nan=False))


def all_numbers(value):
    if isinstance(value, dict):
        return [n for below in value.values() for n in all_numbers(below)]
    if isinstance(value, list):
        return [n for below in value for n in all_numbers(below)]
    return [value] if isinstance(value, int | float) else []


# ---- Every method ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_STUDIES)
def test_serial_and_vectorized_show_the_same(name):
    one, other = (plain(shown(name, backend, cohort=4)[1]) for backend in ("serial", "vectorized"))
    assert [study["kind"] for study in one] == WITH_STUDIES[name]
    assert all_numbers(one) == pytest.approx(all_numbers(other), abs=1e-4)
    without = [{**study, "data": None} for study in one]
    assert without == [{**study, "data": None} for study in other]


@pytest.mark.parametrize("name", [*WITH_STUDIES, "fedavg", "fedbn"])
def test_a_run_of_no_rounds_can_be_asked_as_well(name):
    assert len(shown(name, rounds=0)[1]) <= len(WITH_STUDIES.get(name, ()))


@pytest.mark.parametrize("name", sorted(WITH_STUDIES))
def test_no_study_touches_test_data_or_changes_the_run(name, monkeypatch):
    run = finished(method_class(name)(), "vectorized")
    before = run.predict("many", torch.ones(1, FEATURES))
    read = Federation.examples

    def guarded(self, client, split):
        assert split != "test", "a study has read test data"
        return read(self, client, split)

    monkeypatch.setattr(Federation, "examples", guarded)
    one, other = (plain(run.setting.method.studies(run)) for _ in range(2))
    assert one == other
    assert torch.equal(run.predict("many", torch.ones(1, FEATURES)), before)
    assert len(run.notes) in (0, 2)


def test_methods_without_a_mechanism_to_show_show_nothing():
    silent = set(method_names()) - set(WITH_STUDIES)
    assert {"fedavg", "fedprox", "ditto", "scaffold"} <= silent
    assert shown("fedavg")[1] == shown("ditto")[1] == []


# ---- One by one --------------------------------------------------------------------------------


@BOTH
def test_fedfomo_shows_its_affinities_round_by_round(backend):
    run, (affinity, mixtures) = shown("fedfomo", backend, rounds=3, cohort=3)
    clients = sorted(run.setting.federation.clients)
    assert affinity.data["names"] == mixtures.data["names"] == clients
    labels = [frame["label"] for frame in affinity.data["frames"]]
    assert labels == ["start", "round 1", "round 2", "round 3"]
    assert affinity.data["frames"][0]["values"] == np.eye(6).tolist()
    assert affinity.data["frames"][-1]["values"] == run.server.affinity.tolist()
    last = mixtures.data["frames"][-1]["values"]
    for client, row in run.notes[-1]["shares"].items():
        drawn = last[clients.index(client)]
        assert {p: v for p, v in zip(clients, drawn, strict=True) if v is not None} == row
    absent = set(clients) - set(run.notes[-1]["shares"])
    assert len(absent) == 3
    assert all(v is None for client in absent for v in last[clients.index(client)])


def opposite():
    """Two groups whose border between the classes is the same, with the sides exchanged."""

    def draw(client, split):
        rng = motet.Key(0).fold("opposite", client, split).numpy()
        x = rng.normal(size=(40, FEATURES)).astype(np.float32)
        return x, (x[:, 0] > 0).astype(np.int64) ^ (client[1] == "2")

    def everybody(split):
        return {c: draw(c, split) for c in ("a1", "b1", "c1", "a2", "b2", "c2")}

    return motet.data.from_arrays(everybody("train"), everybody("val"), everybody("test"))


@BOTH
def test_cfl_shows_who_was_split_from_whom_and_when(backend):
    method = CFL(warmup=2, settled=0.5, optimizer=Sgd(lr=0.5), batch_size=None, steps=5)
    run = motet.run(method, motet.Task(TinyNet), opposite(), rounds=5, backend=backend)
    (study,) = method.studies(run)
    root, *halves = study.data["nodes"]
    everybody = sorted(run.setting.federation.clients)
    assert root == {
        "id": 0,
        "parent": None,
        "label": "all 6 clients",
        "round": 0,
        "clients": everybody,
    }
    assert sorted(half["clients"] for half in halves) == [["a1", "b1", "c1"], ["a2", "b2", "c2"]]
    assert {half["label"] for half in halves} == {"3 clients"}
    (first,) = [note["round"] for note in run.notes if len(note["parents"]) == 3][:1]
    assert {half["round"] for half in halves} == {first}
    assert first > 2


@BOTH
def test_ifca_shows_the_model_that_each_client_is_served(backend):
    method = IFCA(models=3, optimizer=Sgd(lr=0.5))
    run = motet.run(method, motet.Task(TinyNet), opposite(), rounds=1, seed=2, backend=backend)
    (study,) = method.studies(run)
    assert study.data["parts"] == ["model 1", "model 2", "model 3"]
    for client, row in zip(study.data["clients"], study.data["values"], strict=True):
        assert sorted(row) == [0, 0, 1]
        served = run.personal(client)
        own = member(run.server, row.index(1))
        assert all(torch.equal(served[name], own[name]) for name in own)
    assert len({tuple(row) for row in study.data["values"]}) > 1


@BOTH
def test_fedem_shows_the_weights_of_each_mixture(backend):
    run, (study,) = shown("fedem", backend)
    kept = {client: run.clients[client]["shares"].tolist() for client in run.clients}
    assert dict(zip(study.data["clients"], study.data["values"], strict=True)) == kept


@BOTH
def test_knn_per_shows_the_lambda_that_each_client_has_chosen(backend):
    run, (lam, *_) = shown("knn-per", backend)
    assert lam.data["values"] == pytest.approx(chosen_lambdas(run))
    assert lam.data["quantity"] == "lam"
    fixed = KNNPer(lam=0.5).studies(finished(KNNPer(lam=0.5), backend))
    assert {study.kind for study in fixed} == {"lines"}


def test_knn_per_shows_what_capacity_is_worth_on_validation_data():
    run, (_, curve, *_) = shown("knn-per")
    table = lambda_capacity_table(run, split="val", lams=(0.5,))
    drawn = curve.data["series"]["lam 0.5"]
    assert [x for x, _ in drawn] == list(table.capacities)
    assert [y for _, y in drawn] == pytest.approx(table.mean[0].tolist())
    assert len({y for _, y in curve.data["series"]["lam 0"]}) == 1


@pytest.mark.parametrize("name", ["flow", "dynamic-routing"])
@BOTH
def test_flow_shows_how_often_each_layer_takes_the_local_route(name, backend):
    run, (study,) = shown(name, backend)
    counted = routing_shares(run, "val")
    for client, row in zip(study.data["clients"], study.data["values"], strict=True):
        of_client = [r for r in counted.rows if r.client == client]
        for layer, share in zip(study.data["parts"], row, strict=True):
            rows = [r for r in of_client if r.layer == layer]
            expected = sum(r.share * r.examples for r in rows) / sum(r.examples for r in rows)
            assert share == pytest.approx(expected, abs=1e-6)
    assert "unchecked" not in study.data["clients"]  # has no validation data


@pytest.mark.parametrize("name", ["fedalt", "fedsim", "fedper"])
@BOTH
def test_partial_methods_show_how_far_the_personal_part_has_moved(name, backend):
    run, (study,) = shown(name, backend, cohort=3)
    trained = set(run.setting.store)
    assert set(study.data["values"]) == trained
    assert len(trained) < 6
    for client, moved in study.data["values"].items():
        now, start = run.clients[client], run.setting.fresh_client(client)
        squared = sum((now[k] - start[k]).square().sum() for k in ("head.weight", "head.bias"))
        assert moved == pytest.approx(math.sqrt(squared), rel=1e-5)


def test_a_personal_part_that_is_forgotten_is_not_shown():
    method = motet.FedAlt(keep_personal=False)
    assert method.studies(finished(method)) == []


@BOTH
def test_apfl_shows_the_mixtures_that_were_learnt(backend):
    run, (study,) = shown("apfl", backend)
    kept = {client: float(run.clients[client]["alpha"]) for client in run.clients}
    assert study.data["values"] == kept
    fixed = motet.APFL(adaptive=False)
    assert fixed.studies(finished(fixed, backend)) == []


@BOTH
def test_fedamp_shows_the_attention_that_the_next_round_would_use(backend):
    run, (study, to_self) = shown("fedamp", backend)
    (frame,) = study.data["frames"]
    names = study.data["names"]
    expected = run.setting.method.attention(flat(run.server, names)).tolist()
    assert frame == {"label": "round 2", "values": expected}
    assert [sum(row) for row in frame["values"]] == pytest.approx([1.0] * 6)
    curve = to_self.data["series"]["mean over clients"]
    assert curve == [[n["round"], n["mean_attention_to_self"]] for n in run.notes]


@BOTH
def test_mocha_shows_its_relation_after_every_round(backend):
    run, (study,) = shown("mocha-deep", backend)
    frames = study.data["frames"]
    assert [frame["label"] for frame in frames] == ["round 1", "round 2"]
    assert frames[-1]["values"] == run.server.omega.tolist()


# ---- Asking ------------------------------------------------------------------------------------


@BOTH
def test_a_question_is_answered_by_each_clients_own_predictor(backend):
    run = finished(motet.FedPer(), backend)

    def norm_of_head(personal, x, _task):
        return personal["head.weight"].norm().expand(len(x))

    answers = run.ask(norm_of_head, ["many", "few"], "val")
    assert set(answers) == {"many", "few"}
    for client, answer in answers.items():
        own = run.personal(client)["head.weight"].norm().expand(8 if client == "many" else 3)
        torch.testing.assert_close(answer, own)


def test_test_data_answer_no_questions():
    run = finished(motet.FedPer())
    with pytest.raises(RequestError, match='no split is called "test"'):
        run.ask(lambda _personal, x, _task: x, ["many"], "test")


# ---- The data class ----------------------------------------------------------------------------


def test_a_study_comes_back_from_json_as_it_was():
    _, found = shown("fedfomo")
    for study in found:
        assert Study.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_a_study_of_no_known_kind_or_without_its_entries_is_refused():
    with pytest.raises(RequestError, match='no study is of kind "matrx"; did you mean "matrix"'):
        Study("matrx", "t", "n", {})
    with pytest.raises(RequestError, match='"t" has no values'):
        Study("per_client", "t", "n", {"quantity": "lam"})


def test_large_matrices_are_cut_to_what_a_page_can_show_and_say_so():
    clients = [f"c{i:03}" for i in range(100)]
    frames = ((f"round {r}", np.full((100, 100), r)) for r in range(1, 51))
    study = studies.matrix("t", "n.", quantity="q", clients=clients, frames=frames)
    assert len(study.data["names"]) == MOST_NAMES == len(study.data["frames"][0]["values"])
    assert len(study.data["frames"]) == MOST_FRAMES
    assert study.data["names"][0] == "c000"
    assert study.data["names"][-1] == "c099"
    assert study.data["frames"][-1]["label"] == "round 50"
    assert study.note == "n. Shown are 20 of 50 rounds and 60 of 100 clients, evenly chosen."


def test_what_is_not_a_number_is_shown_as_nothing():
    study = studies.lines("t", "n", x="x", y="y", series={"a": [(1, math.nan), (2, 0.5)]})
    assert study.data["series"] == {"a": [[1, None], [2, 0.5]]}


def test_items_are_chosen_evenly_with_both_ends():
    assert evenly(range(5), 9) == [0, 1, 2, 3, 4]
    assert evenly(range(101), 3) == [0, 50, 100]
