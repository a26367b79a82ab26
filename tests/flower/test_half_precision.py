"""Uploads in half precision: half the bytes, and the same result as in a simulation."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import torch
from staging import Array, Stage, client_app

import motet
from motet import FedAvg, FedFomo, FedPer
from motet._core import tree
from motet._core.half_precision import packed, rounded, unpacked
from motet.deploy._wire_manifest import wire_manifest
from motet.errors import RequestError
from motet.testing import batch_norm, ragged
from motet.testing._comparing import require_close, require_same

HALVES = ("float16", "bfloat16")


def staged(method, folder, precision, **more):
    stage = Stage.set(method, folder, **more)
    stage.run = replace(stage.run, uploads=precision)
    stage.grid.app = client_app(agreement=stage.agreement)  # with the changed one
    return stage


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("method", [FedAvg(), FedPer(), FedFomo()], ids=lambda m: m.name)
def test_a_deployment_with_half_uploads_agrees_with_the_simulation(method, precision, tmp_path):
    stage = staged(method, tmp_path, precision, rounds=2)
    served = stage.play()
    world = stage.world
    oracle = motet.run(
        method, world.task, world.data, rounds=2, seed=5, backend="serial", uploads=precision
    )
    require_close(oracle.server, served.server, "the server's state", 1e-6)
    full = motet.run(method, world.task, world.data, rounds=2, seed=5, backend="serial")
    with pytest.raises(AssertionError):
        require_same(full.server, served.server, "the server's state")
    require_close(full.server, served.server, "the server's state", 0.05)


@pytest.mark.parametrize("precision", HALVES)
def test_half_uploads_have_half_the_bytes_on_the_wire_and_on_the_page(precision, tmp_path):
    stage = staged(FedAvg(), tmp_path / "half", precision, rounds=1)
    stage.play()
    full = Stage.set(FedAvg(), tmp_path / "full", rounds=1)
    full.play()
    up = [
        json.loads((s.folder / "out/rounds.jsonl").read_text())["bytes_up"] for s in (stage, full)
    ]
    assert up[0] * 2 == up[1]
    manifest = wire_manifest(stage.agreement, ("a", "b"))
    assert {line.kind for line in manifest.up} == {precision}
    assert 6 * sum(line.size for line in manifest.up) == up[0]
    assert {line.kind for line in manifest.down} == {"float32"}


def test_whole_numbers_and_batch_statistics_survive(tmp_path):
    world = batch_norm()
    run = motet.run(FedAvg(), world.task, world.data, rounds=2, uploads="bfloat16")
    counters = [leaf for leaf in tree.leaves(run.server) if not leaf.is_floating_point()]
    assert counters
    full = motet.run(FedAvg(), world.task, world.data, rounds=2)
    same = [leaf for leaf in tree.leaves(full.server) if not leaf.is_floating_point()]
    assert all(torch.equal(a, b) for a, b in zip(counters, same, strict=True))


def test_packing_is_undone_and_rounds_to_the_nearest():
    value = {"w": torch.randn(50), "n": torch.arange(3), "d": torch.randn(2).double()}
    for precision, digits in (("float16", 11), ("bfloat16", 8)):
        again = unpacked(packed(value, precision), value, precision)
        require_same(rounded(value, precision), again, precision)
        assert torch.equal(again["n"], value["n"])
        assert torch.equal(again["d"], value["d"])
        assert ((again["w"] - value["w"]).abs() <= value["w"].abs() * 2.0**-digits).all()
    assert packed(value, "float32") is value


def test_numbers_that_float16_cannot_hold_cost_the_site_its_round(tmp_path, caplog):
    def large(who, reply):
        if who == "few" and reply.metadata.message_type == "train":
            arrays = reply.content["arrays"]
            name = sorted(arrays)[0]
            arrays[name] = Array(arrays[name].numpy() + float("inf"))
        return [reply]

    stage = staged(FedAvg(), tmp_path, "float16", rounds=1, fault=large)
    with caplog.at_level(logging.INFO, "motet"):
        assert tree.is_finite(stage.play().server)
    assert "few rejected" in caplog.text


def test_bits_of_bfloat16_that_are_no_number_are_refused(tmp_path, caplog):
    def nan(who, reply):
        if who == "few" and reply.metadata.message_type == "train":
            arrays = reply.content["arrays"]
            name = sorted(arrays)[0]
            bits = arrays[name].numpy().copy()
            bits[...] = 0x7FC0  # NaN
            arrays[name] = Array(bits)
        return [reply]

    stage = staged(FedAvg(), tmp_path, "bfloat16", rounds=1, fault=nan)
    with caplog.at_level(logging.INFO, "motet"):
        assert tree.is_finite(stage.play().server)
    assert "few rejected" in caplog.text


def test_another_precision_is_refused():
    world = ragged()
    with pytest.raises(RequestError, match='no precision of uploads is called "int8"'):
        motet.run(FedAvg(), world.task, world.data, rounds=1, uploads="int8")
