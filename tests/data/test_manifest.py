"""The same split again, or a refusal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motet import data
from motet.errors import DataError, StateError


def digits(**options):
    return data.load("digits", data.Dirichlet(clients=12, alpha=0.3), seed=4, **options)


def test_a_saved_manifest_rebuilds_the_same_federation(tmp_path):
    federation = digits(val=0.1, test=0.25)
    federation.save_manifest(tmp_path / "split.json")
    again = data.rebuild(tmp_path / "split.json")
    assert again.hash == federation.hash
    assert again.manifest() == federation.manifest()


def test_a_manifest_remembers_selecting_and_retargeting():
    federation = digits().select(["03", "07", "11"]).retarget(seed=2)
    manifest = json.loads(json.dumps(federation.manifest()))
    assert [list(step) for step in manifest["steps"]] == [["select"], ["retarget"]]
    assert data.rebuild(manifest).hash == federation.hash


def test_the_hash_sees_seed_partition_split_and_retarget():
    base = digits()
    others = [
        data.load("digits", data.Dirichlet(clients=12, alpha=0.3), seed=5),
        data.load("digits", data.Dirichlet(clients=12, alpha=0.31), seed=4),
        digits(val=0.1),
        base.retarget(seed=0),
    ]
    assert len({base.hash, *(other.hash for other in others)}) == 5


def test_a_changed_manifest_is_refused():
    manifest = digits().manifest() | {"seed": 5}
    with pytest.raises(DataError, match="its clients or splits differ"):
        data.rebuild(manifest)


def test_changed_targets_are_seen():
    x, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    manifest = data.from_arrays(train={"a": (x, y)}).manifest()
    with pytest.raises(DataError, match="its targets differ"):
        data.from_arrays(train={"a": (x, 1 - y)}).verify(manifest)


def test_own_data_are_verified_instead_of_rebuilt():
    x, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    manifest = data.from_arrays(train={"a": (x, y)}).manifest()
    with pytest.raises(StateError, match=r"federation\.verify\(manifest\)"):
        data.rebuild(manifest)
    assert data.from_arrays(train={"a": (x, y.astype(np.int32))}).verify(manifest).clients == ("a",)


def first_pixels(x):
    return x.reshape(len(x), -1)[:, :8]


def test_a_partition_with_code_in_it_must_be_handed_over():
    partition = data.Latent(clients=4, groups=2, embed=first_pixels)
    federation = data.load("digits", partition)
    with pytest.raises(StateError, match=r"rebuild\(manifest, partition=\.\.\.\)"):
        data.rebuild(federation.manifest())
    assert data.rebuild(federation.manifest(), partition=partition).hash == federation.hash


class ByParity(data.Partition):
    def assign(self, labels, key, coarse=None):
        return [np.flatnonzero(labels % 2 == parity) for parity in (0, 1)]


def test_a_partition_of_ones_own_is_written_down_by_name():
    federation = data.load("digits", ByParity())
    assert federation.manifest()["partition"] == {"name": "ByParity"}
    with pytest.raises(StateError, match='partition "ByParity" of the manifest contains code'):
        data.rebuild(federation.manifest())
    assert data.rebuild(federation.manifest(), partition=ByParity()).hash == federation.hash


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not a manifest"),
        ("[]", "JSON object"),
        ('{"format": 99}', "reads manifests of format 1, got 99"),
    ],
)
def test_a_file_that_is_not_a_manifest_is_refused(tmp_path, text, sentence):
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(StateError, match=sentence):
        data.rebuild(path)


def test_a_missing_manifest_is_refused(tmp_path):
    with pytest.raises(StateError, match="there is no manifest"):
        data.rebuild(tmp_path / "nowhere.json")
