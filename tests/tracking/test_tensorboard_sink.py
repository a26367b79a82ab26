"""TensorBoard's event files, read back by TensorBoard itself."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from watched import a_look, a_round, a_row, world

import motet
from motet.tracking import TensorBoardSink, sinks

EventAccumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
).EventAccumulator


def read(directory):
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return accumulator


def curve(accumulator, name):
    return [(point.step, point.value) for point in accumulator.Scalars(name)]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison, and the directory it was written to."""
    place = tmp_path_factory.mktemp("logs")
    methods = [motet.FedPer(personal=("0",)), motet.Local(), motet.FedAvg(), motet.FedAvgFT()]
    task, data = world(deep=True)
    sink = TensorBoardSink(place)
    table = motet.compare(methods, task, data, rounds=3, seeds=[0, 7], watcher=sink)
    return table, place


def test_curves_are_those_of_the_comparison(compared):
    table, place = compared
    for row in table.rows:
        written = read(place / row.label / f"seed-{row.seed}")
        for name in ("mean", "decile", "worst", "loss"):
            expected = [(look.round, pytest.approx(getattr(look, name))) for look in row.curve]
            assert curve(written, f"val/{name}") == expected
        up = curve(written, "round/bytes_up")
        assert [step for step, _ in up] == [1, 2, 3]
        assert sum(value for _, value in up) == row.cost.bytes_up
        assert sum(value for _, value in curve(written, "round/seconds")) == pytest.approx(
            row.cost.seconds, rel=1e-4
        )


def test_test_scores_and_shares_of_harmed_clients_are_those_of_the_comparison(compared):
    table, place = compared
    for row in table.rows:
        written = read(place / row.label / f"seed-{row.seed}")
        for name in ("mean", "decile", "worst"):
            expected = [(3, pytest.approx(getattr(row.evaluation, name)))]
            assert curve(written, f"test/{name}") == expected
        for reference in ("local", "fedavg-ft"):
            name = f"test/harmed_vs_{reference.replace('-', '_')}"
            if row.label == reference:
                assert name not in written.Tags()["scalars"]
                continue
            other = next(r for r in table.rows if (r.label, r.seed) == (reference, row.seed))
            harmed = row.evaluation.harmed(other.evaluation)
            assert curve(written, name) == [(3, pytest.approx(harmed))]


def test_hyperparameters_and_tags_are_those_of_the_method_even_where_training_was_shared(compared):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    table, place = compared
    for label, method in (("fedper", "fedper"), ("fedavg-ft", "fedavg-ft")):
        content = read(place / label / "seed-7").summary_metadata
        start = content["_hparams_/session_start_info"].plugin_data.content
        values = HParamsPluginData.FromString(start).session_start_info.hparams
        assert values["method"].string_value == method
        assert values["method.optimizer.lr"].number_value == pytest.approx(0.1)
        assert values["seed"].string_value == "7"
        assert values["split_hash"].string_value == table.split
        assert values["run.rounds"].number_value == 3
        assert "_hparams_/session_end_info" in content


def test_a_run_that_goes_on_voids_what_was_written_after_the_checkpoint(tmp_path):
    for first, rounds in ((0.1, (1, 2, 3)), (0.5, (3, 4))):
        sink = TensorBoardSink(tmp_path)
        sink.began("fedavg", 0, 4)
        for number in rounds:
            sink.round_done("fedavg", 0, a_round(number), a_look(number, first))
        sink.close()
    expected = [(1, 0.1), (2, 0.1), (3, 0.5), (4, 0.5)]
    written = curve(read(tmp_path / "fedavg" / "seed-0"), "val/mean")
    assert written == [(step, pytest.approx(value)) for step, value in expected]


def test_what_was_told_is_on_disk_before_anything_is_closed(tmp_path):
    sink = TensorBoardSink(tmp_path)
    sink.round_done("fedavg", 0, a_round(1), a_look(1, math.nan))
    (point,) = curve(read(tmp_path / "fedavg" / "seed-0"), "val/mean")
    assert math.isnan(point[1])
    sink.close()


def test_a_failed_run_says_why_and_odd_labels_stay_below_the_directory(tmp_path):
    sink = TensorBoardSink(tmp_path)
    sink.failed("../fed per (2)", 0, "training diverged")
    assert [path.name for path in tmp_path.iterdir()] == ["..-fed-per-(2)"]
    written = read(tmp_path / "..-fed-per-(2)" / "seed-0")
    assert b"training diverged" in written.Tensors("failed/text_summary")[0].tensor_proto.string_val


def test_shares_are_known_for_references_that_had_finished_before(tmp_path):
    before = a_row("local", 0, (0.9, 0.5), method="local")
    sink = TensorBoardSink(tmp_path, before=[before])
    sink.round_done("fedavg", 0, a_round(1), None)
    sink.finished("fedavg", 0, a_row("fedavg", 0, (0.5, 0.75)))
    written = read(tmp_path / "fedavg" / "seed-0")
    assert curve(written, "test/harmed_vs_local") == [(2, 0.5)]


FULL_DISK = """
import resource, sys
from watched import a_look, a_round, a_row
from motet.tracking import sinks

said = []
(sink,) = sinks(tensorboard=sys.argv[1], warn=said.append)
a_round(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
for number in range(1, 100):
    sink.round_done("fedavg", 0, a_round(number), a_look(number, 0.5))
sink.finished("fedavg", 0, a_row("fedavg", 0))
sink.close()
assert len(said) == 1, said
print(said[0])
"""


def test_a_full_disk_is_one_warning_and_then_silence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,  # where `watched` is
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("TensorBoard could not be written and is disabled: ")
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1


def test_without_the_package_one_sentence_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(motet.errors.CapabilityError, match=r"pip install \"motet\[tracking\]\""):
        sinks(tensorboard=tmp_path)
