"""Federations from arrays, rows, folders and torch data sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from motet.data import Dirichlet, Split, from_arrays, from_dataset, from_folder, from_rows
from motet.errors import DataError, RequestError

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


def test_numpy_and_torch_give_the_same_federation():
    arrays = from_arrays(train={"a": (X, Y)}, test={"a": (X, Y)})
    tensors = from_arrays(
        train={"a": (torch.from_numpy(X), torch.from_numpy(Y))},
        test={"a": (torch.from_numpy(X), torch.from_numpy(Y))},
    )
    assert arrays.hash == tensors.hash
    assert torch.equal(arrays.examples("a", "train").x, tensors.examples("a", "train").x)


def test_arrays_are_not_copied():
    data = from_arrays(train={"a": (X, Y), "b": (torch.from_numpy(X), Y)})
    assert all(np.shares_memory(block, X) for block in data.x.blocks)


def test_training_arrays_can_be_cut_into_splits():
    data = from_arrays(train={"a": (X, Y), "b": (X[:5], Y[:5])}, split=Split(val=0.1, test=0.2))
    assert [data.size("a", split) for split in ("train", "val", "test")] == [14, 2, 4]
    seen = torch.cat([data.examples("a", split).x for split in ("train", "val", "test")])
    assert sorted(seen[:, 0].tolist()) == X[:, 0].tolist()


def test_the_cut_of_a_client_does_not_depend_on_the_others():
    alone = from_arrays(train={"b": (X, Y)}, split=Split())
    together = from_arrays(train={"a": (X[:3], Y[:3]), "b": (X, Y)}, split=Split())
    assert torch.equal(alone.examples("b", "test").x, together.examples("b", "test").x)


def test_class_names_fix_the_number_of_classes():
    data = from_arrays(train={"a": (X, Y)}, labels=["cat", "dog", "owl"])
    assert (data.classes, data.labels) == (3, ("cat", "dog", "owl"))


def test_rows_with_client_ids_become_clients():
    ids = np.array(["north", "south"] * 10)
    data = from_rows(X, Y, ids, split=Split(val=0.0, test=0.2))
    assert data.clients == ("north", "south")
    assert set(data.examples("north", "train").y.tolist()) == {0}


def test_rows_can_be_divided_by_a_partition():
    data = from_rows(X, Y, Dirichlet(clients=3, alpha=0.5, minimum=4), seed=1)
    assert data.manifest()["partition"]["name"] == "dirichlet"
    assert sum(sum(data.sizes(split).values()) for split in ("train", "val", "test")) == 20


def test_rows_can_say_their_own_split():
    split = ["train"] * 14 + ["validation"] * 2 + ["test"] * 4
    data = from_rows(X, Y, ["a"] * 20, split=split)
    assert data.examples("a", "val").x[:, 0].tolist() == [28.0, 30.0]
    assert data.sizes("test") == {"a": 4}


def test_an_unknown_split_is_named_with_its_row():
    with pytest.raises(DataError, match='row 1 has "holdout"'):
        from_rows(X, Y, ["a"] * 20, split=["train", "holdout"] * 10)


def test_a_column_of_the_wrong_length_is_refused():
    with pytest.raises(
        DataError, match=r"clients must have one entry per row, 20 in all; got shape \(3,\)"
    ):
        from_rows(X, Y, ["a", "b", "c"])


def write_client(root, client, split, rows, packed):
    folder = root / client
    if packed:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{split}.npz", x=X[rows], y=Y[rows])
    else:
        (folder / split).mkdir(parents=True)
        np.save(folder / split / "x.npy", X[rows])
        np.save(folder / split / "y.npy", Y[rows])


@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_per_client_is_read_in_either_layout(tmp_path, packed):
    root = tmp_path / "sensors"
    write_client(root, "b", "train", slice(0, 8), packed)
    write_client(root, "a", "train", slice(8, 14), packed)
    write_client(root, "a", "test", slice(14, 20), packed)
    data = from_folder(root)
    assert (data.name, data.clients) == ("sensors", ("a", "b"))
    assert data.examples("a", "test").x.tolist() == X[14:20].tolist()
    assert data.sizes("test") == {"a": 6, "b": 0}
    expected = from_arrays(
        train={"a": (X[8:14], Y[8:14]), "b": (X[:8], Y[:8])}, test={"a": (X[14:], Y[14:])}
    )
    assert data.hash == expected.hash


def test_a_folder_can_be_cut_into_splits(tmp_path):
    write_client(tmp_path, "a", "train", slice(None), packed=False)
    assert from_folder(tmp_path, split=Split()).sizes("test") == {"a": 4}


def test_many_npy_clients_keep_no_file_open(tmp_path):
    for number in range(30):
        write_client(tmp_path, f"{number:02d}", "train", slice(0, 3), packed=False)
    data = from_folder(tmp_path)
    assert not any(isinstance(block, np.memmap) for block in (*data.x.blocks, *data.y.blocks))


def test_folders_that_are_not_laid_out_as_expected_are_refused(tmp_path):
    with pytest.raises(RequestError, match="is not a folder"):
        from_folder(tmp_path / "nowhere")
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="no clients with data"):
        from_folder(tmp_path)
    np.savez(tmp_path / "a" / "train.npz", inputs=X, y=Y)
    with pytest.raises(DataError, match="must hold the arrays x and y; it holds inputs, y"):
        from_folder(tmp_path)


@pytest.mark.parametrize("name", ["train.npz", "train/x.npy"])
def test_a_file_that_is_not_numpys_is_refused(tmp_path, name):
    write_client(tmp_path, "a", "train", slice(0, 3), packed=name.endswith("npz"))
    (tmp_path / "a" / name).write_bytes(b"hello")
    with pytest.raises(DataError, match="cannot be read as"):
        from_folder(tmp_path)


def test_half_a_pair_of_files_is_refused(tmp_path):
    write_client(tmp_path, "a", "train", slice(0, 3), packed=False)
    (tmp_path / "a" / "train" / "y.npy").unlink()
    with pytest.raises(DataError, match=r"y\.npy is missing"):
        from_folder(tmp_path)


def test_both_layouts_for_one_split_are_refused(tmp_path):
    for packed in (True, False):
        write_client(tmp_path, "a", "train", slice(0, 3), packed)
    with pytest.raises(DataError, match="both hold train data"):
        from_folder(tmp_path)


def test_a_torch_data_set_is_divided_by_ids():
    dataset = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    ids = ["a"] * 10 + ["b"] * 10
    data = from_dataset(dataset, ids, split=Split(val=0.0, test=0.0))
    assert torch.equal(data.examples("b", "train").x, torch.from_numpy(X[10:]))
    assert data.classes == 2


def test_a_torch_data_set_with_plain_number_targets_is_read():
    dataset = [(torch.zeros(3), 1), (torch.ones(3), 0)]
    data = from_dataset(dataset, ["a", "b"], split=Split(val=0.0, test=0.0))
    assert data.examples("a", "train").y.tolist() == [1]


def test_items_of_different_shapes_are_refused():
    with pytest.raises(DataError, match=r"item 0 has \(3,\), item 1 has \(2,\)"):
        from_dataset([(torch.zeros(3), 1), (torch.zeros(2), 0)], ["a", "b"])


def test_an_empty_data_set_is_refused():
    with pytest.raises(DataError, match="is empty"):
        from_dataset([], [])
