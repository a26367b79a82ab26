"""A client's model as files: the same predictions without the run, the data or Motet itself."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.testing import assert_close
from toys import ToyAMP

import motet
from motet._export import onnx_graphs
from motet._export.export import export
from motet._export.model_card import card_text
from motet._export.predictors import load_predictor, read_file
from motet._export.structure import describe, rebuild
from motet.data._raw import Normalize
from motet.errors import CapabilityError, RequestError, StateError, WireError
from motet.methods._catalog import method_class, method_names
from motet.testing._worlds import CLASSES, FEATURES, TinyNet, batch_norm, quadratic, ragged

# Those whose predictor is more than a state of the task's network. The others' graphs are that of
# the network, whichever method trained it.
UNLIKE = [name for name in method_names() if not method_class(name)().one_network]
MODEL = {"name": "mlp", "loss": "cross_entropy", "hidden": [6]}


def world_of(name):
    world = batch_norm() if name == "fedbn" else ragged()
    task = motet.Task(lambda: nn.Linear(FEATURES, CLASSES)) if name == "mocha" else world.task
    return task, world.data


def finished(name, **settings):
    task, data = world_of(name)
    return motet.run(method_class(name)(), task, data, rounds=2, **settings)


def inputs(examples=150):
    rng = motet.Key(0).fold("inputs").numpy()
    return torch.from_numpy(2 * rng.normal(size=(examples, FEATURES)).astype(np.float32))


def answers(graph, x):
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def named_run(name="fedper"):
    """A run of a reference network, which a file can name."""
    task = motet.Task(lambda: motet.models.build("mlp", shape=(4,), classes=3, hidden=[6]))
    return motet.run(method_class(name)(), task, ragged().data, rounds=2)


# ---- Every method ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", method_names())
def test_a_loaded_predictor_predicts_as_the_run_does(name, tmp_path):
    run = finished(name)
    exported = export(run, "few", tmp_path / "few", onnx=False)
    loaded = load_predictor(exported.tensors, task=world_of(name)[0])
    assert loaded.method == run.setting.method
    expected = run.predict("few", inputs())
    assert_close(loaded.predict(inputs()), expected, rtol=0, atol=1e-6)
    if run.setting.method.one_network:  # into a plain module, by name
        network = world_of(name)[0].build()
        network.load_state_dict(safetensors.torch.load_file(exported.tensors))
        assert_close(network.eval()(inputs()).softmax(-1), expected, rtol=0, atol=1e-6)


def check_graph(name, tmp_path):
    run = finished(name)
    exported = export(run, "few", tmp_path / "few", onnx=True)
    onnx.checker.check_model(exported.graph)
    for examples in (1, 2, 150):
        x = inputs(examples)
        assert_close(answers(exported.graph, x), run.predict("few", x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*UNLIKE, "fedper", "fedbn"])
def test_the_onnx_graph_predicts_as_the_run_does(name, tmp_path):
    check_graph(name, tmp_path)


# ---- Prediction without the run ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedper", "knn-per", "flow", "ifca"])
def test_a_file_that_names_its_network_needs_nothing_else(name, tmp_path):
    run = named_run(name)
    exported = export(run, "one", tmp_path / "one", onnx=False, model=MODEL)
    loaded = load_predictor(str(exported.tensors))
    assert_close(loaded.predict(inputs().numpy()), run.predict("one", inputs()))
    assert loaded.about["client"] == "one"


def test_a_loaded_predictor_is_a_plain_network_where_it_is_one(tmp_path):
    run = named_run()
    loaded = load_predictor(export(run, "few", tmp_path / "f", onnx=False, model=MODEL).tensors)
    module = loaded.model()
    assert not module.training
    assert_close(module(inputs()).softmax(-1), run.predict("few", inputs()))
    mixed = export(named_run("knn-per"), "few", tmp_path / "k", onnx=False, model=MODEL)
    with pytest.raises(CapabilityError, match="knn-per is more than one network; use predict"):
        load_predictor(mixed.tensors).model()


def test_inputs_of_another_shape_are_refused(tmp_path):
    loaded = load_predictor(
        export(named_run(), "few", tmp_path / "f", onnx=False, model=MODEL).tensors
    )
    with pytest.raises(RequestError, match=r"x must have shape \[examples, 4\]; got \(3, 5\)"):
        loaded.predict(torch.zeros(3, 5))


def test_a_regression_exports_its_values(tmp_path):
    task = motet.Task(lambda: nn.Linear(1, 1), loss="mse")
    run = motet.run(motet.Local(), task, quadratic({"a": [1.0, 3.0], "b": [5.0]}).data, rounds=3)
    exported = export(run, "a", tmp_path / "a", onnx=True)
    x = torch.tensor([[0.0], [1.0], [-2.0]])
    assert_close(answers(exported.graph, x), run.predict("a", x))
    assert exported.about["output"] == "values"
    assert "Output: values" in exported.card.read_text()


def test_a_network_that_fixes_the_number_of_examples_has_no_graph(tmp_path):
    world = quadratic({"a": [1.0, 3.0], "b": [5.0]})  # its network calls len(x)
    run = motet.run(motet.Local(), world.task, world.data, rounds=1)
    exported = export(run, "a", tmp_path / "a")
    assert exported.graph is None
    assert "use `x.shape[0]` instead" in exported.without_graph


@pytest.mark.slow
def test_tokens_stay_integers_through_a_recurrent_network(tmp_path):
    def draw(split):
        rng = motet.Key(0).fold("tokens", split).numpy()
        return {c: (rng.integers(0, 9, (8, 3)), rng.integers(0, 9, 8)) for c in "ab"}

    splits = {split: draw(split) for split in ("train", "val", "test")}
    data = motet.data.from_arrays(**splits, classes=9)
    task = motet.Task(
        lambda: motet.models.build("char-lstm", shape=(3,), classes=9, predict="last", hidden=8)
    )
    run = motet.run(motet.Flow(), task, data, rounds=1)
    exported = export(run, "a", tmp_path / "a", onnx=True)
    x = data.examples("a", "test").x
    assert exported.about["input"] == {"shape": [3], "dtype": "int64"}
    assert_close(answers(exported.graph, x), run.predict("a", x), rtol=0, atol=1e-6)
    assert_close(load_predictor(exported.tensors, task=task).predict(x), run.predict("a", x))


# ---- What the files say ------------------------------------------------------------------------


def test_the_card_says_what_it_is_how_good_it_is_and_how_to_load_it(tmp_path):
    run = named_run()
    exported = export(run, "few", tmp_path / "few.safetensors", onnx=False, model=MODEL)
    card = exported.card.read_text()
    scored = run.evaluate(split="test", clients=["few"])["few"]
    assert f"| test | accuracy | {scored.value:.4f} | {scored.loss:.4f} | 4 |" in card
    assert "FedPer: the model of client `few`" in card
    assert run.setting.federation.hash in card
    assert "2 of 2" in card
    assert "motet.load_predictor('few.safetensors')" in card
    assert "There is no ONNX file: it was not requested." in card
    assert motet.FedPer.card.private in card


@pytest.fixture(scope="module")
def fedper(tmp_path_factory):
    """A run, and the export of one of its clients with everything there is."""
    run = named_run()
    return run, export(run, "few", tmp_path_factory.mktemp("few") / "few", onnx=True, model=MODEL)


def test_the_code_on_the_card_runs(fedper, monkeypatch):
    run, exported = fedper
    monkeypatch.chdir(exported.card.parent)
    card = exported.card.read_text()
    x = inputs(3)
    network = motet.models.build("mlp", shape=(4,), classes=3, hidden=[6])
    names = {
        "motet": motet,
        "onnxruntime": onnxruntime,
        "safetensors": safetensors,
        "network": network,
    }
    for block in card.split("```python\n")[1:]:
        as_tensor = "onnxruntime" not in block
        code = block.partition("```")[0].replace("motet.load_predictor", "load_predictor")
        names |= {"x": x if as_tensor else x.numpy(), "load_predictor": load_predictor}
        exec(code, names)
    assert_close(names["predictor"].predict(x), run.predict("few", x))
    assert_close(torch.from_numpy(names["answer"]), run.predict("few", x))
    assert_close(network(x).softmax(-1), run.predict("few", x))


def test_names_that_others_have_chosen_cannot_become_markup_on_a_card(tmp_path):
    run = finished("fedper")
    about = dict(export(run, "few", tmp_path / "few", onnx=False).about)
    card = card_text(about | {"client": "a`b|\n# c"}, "few", without_graph="no.")
    assert "client `a'b\\| # c`" in card.splitlines()[0]


def test_normalisation_is_written_down(tmp_path):
    normalize = Normalize(mean=(0.5,), std=(0.25,))
    data = replace(ragged().data, normalize=normalize)
    run = motet.run(motet.FedAvg(), motet.Task(TinyNet), data, rounds=0)
    exported = export(run, "few", tmp_path / "few", onnx=False)
    assert exported.about["normalize"] == {"mean": (0.5,), "std": (0.25,)}
    assert "`(x - mean) / std`, mean [0.5], std [0.25]" in exported.card.read_text()


def test_the_onnx_file_says_what_it_is_as_well(fedper):
    _, exported = fedper
    assert exported.raw_graph is None  # its data are not a table
    (said,) = [p.value for p in onnx.load(exported.graph).metadata_props if p.key == "motet"]
    assert json.loads(said)["client"] == "few"
    assert json.loads(said)["method"]["name"] == "fedper"


def test_a_suffix_says_nothing_about_which_files_are_written(tmp_path):
    run = finished("fedper")
    for path in ("a.onnx", "a.safetensors", "a"):
        assert export(run, "few", tmp_path / path, onnx=False).tensors == tmp_path / "a.safetensors"
    dotted = export(run, "few", tmp_path / "v1.2", onnx=False)
    assert dotted.tensors.name == "v1.2.safetensors"


def test_exporting_twice_gives_the_same_bytes(fedper, tmp_path):
    run, one = fedper
    other = export(run, "few", tmp_path / "few", onnx=True, model=MODEL)
    for kind in ("tensors", "card", "graph"):
        assert getattr(one, kind).read_bytes() == getattr(other, kind).read_bytes()


# ---- What is refused ---------------------------------------------------------------------------


def test_an_unknown_client_is_refused_with_the_nearest_names(tmp_path):
    with pytest.raises(RequestError, match='no client is called "fwe"; did you mean "few"'):
        export(finished("fedper"), "fwe", tmp_path / "x")
    assert not list(tmp_path.iterdir())


class Grown(nn.Module):
    """A network whose output depends on values in a way that no graph can express."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.head(x) * (2.0 if float(x.sum()) > 0 else 1.0)


def test_a_predictor_that_onnx_cannot_express_is_refused_or_left_out(tmp_path):
    run = motet.run(motet.FedAvg(), motet.Task(Grown), ragged().data, rounds=1, backend="serial")
    with pytest.raises(CapabilityError, match="predictor of fedavg was not exported: it cannot be"):
        export(run, "few", tmp_path / "x", onnx=True)
    assert not list(tmp_path.iterdir())
    (tmp_path / "x.onnx").write_text("of an earlier export")
    exported = export(run, "few", tmp_path / "x")
    assert exported.graph is None
    assert not (tmp_path / "x.onnx").exists()
    assert exported.without_graph.startswith("it cannot be written as ONNX: ")
    assert exported.without_graph in exported.card.read_text()
    loaded = load_predictor(exported.tensors, task=motet.Task(Grown))
    assert_close(loaded.predict(inputs()), run.predict("few", inputs()))


def test_a_graph_that_answers_otherwise_is_refused(fedper):
    _, exported = fedper
    other = motet.models.build("mlp", shape=(4,), classes=3, hidden=[6])
    with pytest.raises(CapabilityError, match="differs from the predictor's by up to"):
        onnx_graphs._check_agrees(exported.graph.read_bytes(), other, inputs(3))


def test_missing_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(onnx_graphs, "find_spec", lambda name: None if name == "onnx" else 1)
    exported = export(finished("fedper"), "few", tmp_path / "x")
    assert exported.without_graph == "ONNX needs the package onnx; install motet[onnx]."


def test_a_network_of_ones_own_must_be_handed_over(tmp_path):
    exported = export(finished("fedper"), "few", tmp_path / "x", onnx=False)
    with pytest.raises(RequestError, match=r"built in Python.*load_predictor\(path, task="):
        load_predictor(exported.tensors)
    model = {"name": "os:system", "loss": "cross_entropy"}
    exported = export(finished("fedper"), "few", tmp_path / "y", onnx=False, model=model)
    with pytest.raises(RequestError, match="for safety, code named in a file is never run"):
        load_predictor(exported.tensors)


@pytest.mark.parametrize(
    "change",
    [{"name": "os:system"}, {"optimizer": {"kind": "subprocess:Popen"}}],
    ids=["method", "optimizer"],
)
def test_no_class_is_imported_on_a_files_word(change, tmp_path):
    exported = export(finished("fedper"), "few", tmp_path / "x", onnx=False)
    named, about = read_file(exported.tensors)
    about["method"] |= change
    safetensors.torch.save_file(named, exported.tensors, {"motet": json.dumps(about)})
    task = motet.Task(TinyNet)
    with pytest.raises(RequestError, match=r"code named in a file is never run\. Pass the method"):
        load_predictor(exported.tensors, task=task)
    loaded = load_predictor(exported.tensors, task=task, method=motet.FedPer())
    assert len(loaded.predict(inputs(2))) == 2


def test_a_method_of_ones_own_is_handed_over(tmp_path):
    world = ragged()
    run = motet.run(ToyAMP(), world.task, world.data, rounds=1)
    exported = export(run, "few", tmp_path / "x", onnx=False)
    with pytest.raises(RequestError, match='this predictor needs "toys:ToyAMP"'):
        load_predictor(exported.tensors, task=world.task)
    loaded = load_predictor(exported.tensors, task=world.task, method=ToyAMP())
    assert_close(loaded.predict(inputs()), run.predict("few", inputs()))


def test_files_that_are_no_exports_are_refused(tmp_path):
    with pytest.raises(StateError, match="does not exist; create it"):
        load_predictor(tmp_path / "nothing.safetensors")
    (tmp_path / "text").write_text("text")
    with pytest.raises(StateError, match="is not a complete safetensors file"):
        load_predictor(tmp_path / "text")
    safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(StateError, match="was not written by `motet export`"):
        load_predictor(tmp_path / "other")
    newer = {"motet": json.dumps({"format": 99})}
    safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "newer", newer)
    with pytest.raises(StateError, match=r"reads exports of format 1; .* has 99"):
        load_predictor(tmp_path / "newer")


# ---- Structure ---------------------------------------------------------------------------------


def test_the_structure_of_a_tree_comes_back():
    from motet._core.neighbours import Datastore
    from motet.methods._knn_per.method import Served

    store = Datastore(torch.ones(2, 3), torch.zeros(2), torch.ones(2, dtype=torch.bool))
    value = (
        Served({"a/b": torch.ones(1), "c%": torch.zeros(0)}, store, torch.tensor(0.5)),
        {},
        (torch.ones(1), ()),
        {"x": {"y": torch.zeros(1)}},
    )
    back = rebuild(dict(motet._core.tree.flatten(value)), describe(value))
    assert describe(back) == describe(value)
    assert type(back[0]) is Served
    assert type(back[0].memory) is Datastore
    assert back[1] == {}
    assert back[2][1] == ()
    assert_close(back[0].model, value[0].model)


@pytest.mark.parametrize(
    "kind",
    [
        "os:stat_result",
        "motet._core.tree:flatten",
        "nowhere:Thing",
        "motet._core.neighbours:Datastore",
    ],
)
def test_a_structure_that_is_not_known_is_refused(kind):
    with pytest.raises(WireError, match="which is unknown here"):
        rebuild({"a": torch.ones(1)}, {"": kind})
