"""Lost, late, second and spoilt replies cost a client its round, and nobody else anything."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from staging import Array, Error, Message, Stage

from motet import Ditto, FedAvg, FedPer
from motet._engine.federation import Run
from motet.errors import CohortError, RequestError
from motet.testing._comparing import require_close, require_same


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, "motet.deploy._runtime")
    return caplog


def in_round(number, client, change):
    """A fault in one client's reply to one round (from 1)."""

    def fault(who, reply):
        hit = who == client and reply.metadata.group_id == str(number - 1)
        return change(reply) if hit and reply.metadata.message_type == "train" else [reply]

    return fault


def changed(edit):
    """A fault that edits the arrays of a reply."""

    def change(reply):
        record = reply.content["arrays"]
        name = sorted(record)[0]
        edit(record, name)
        return [reply]

    return change


def without(stage: Stage, client: str, number: int) -> Run:
    """The same run in one process, where the client's upload of one round is lost."""
    run = stage.oracle(rounds=0)
    for done in range(stage.run.rounds):
        run.server = advanced_without(run, client) if done == number - 1 else advanced(run)
    return run


def advanced(run: Run):
    run.advance()
    return run.server


def advanced_without(run: Run, client: str):
    """Let everybody work, and combine all uploads but one."""
    setting, method = run.setting, run.setting.method
    everybody = tuple(sorted(setting.federation.clients))
    info = setting.info(run.rounds_done, everybody)
    down = method.broadcast(run.server, info)
    run.backend.train(down, info._replace(cohort=(client,)))
    others = tuple(c for c in everybody if c != client)
    outcome = run.backend.train(down, info._replace(cohort=others))
    run.rounds_done += 1
    combined = method.reduce.finish(outcome.partial, down)
    return method.server_update(run.server, combined, info._replace(cohort=others), setting.task)


def set_array(array):
    return lambda record, name: record.__setitem__(name, Array(array))


def poisoned(record, name):
    array = record[name].numpy().copy()
    array.flat[0] = np.nan
    record[name] = Array(array)


def larger(record, name):
    record[name] = Array(np.repeat(record[name].numpy(), 100, axis=0))


def lying(record, name):
    """Claims more bytes than there are."""
    array = record[name]
    data = array.data.replace(b"(5,)", b"(9,)").replace(b"(5, 4)", b"(9, 4)")
    record[name] = Array(array.dtype, array.shape, array.stype, data)


SPOILT = {
    "NaN": (poisoned, "holds a NaN or an infinity"),
    "another shape": (set_array(np.zeros(3, np.float32)), "should be torch.float32 of shape"),
    "another type": (
        lambda r, n: r.__setitem__(n, Array(r[n].numpy().astype(np.float16))),
        "should be torch.float32",
    ),
    "a hundred times the size": (larger, "expected at most"),
    "a size that is not true": (lying, "is not an array of numbers"),
    "text": (set_array(np.array(["a"])), "not tensors"),
    "an unknown name": (lambda r, n: r.__setitem__("extra", r.pop(n)), "unexpected"),
    "a missing name": (lambda r, n: r.pop(n), "missing"),
}


@pytest.mark.parametrize(("edit", "reason"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_reply_is_refused_and_its_client_named(edit, reason, tmp_path, heard):
    stage = Stage.set(Ditto(), tmp_path, fault=in_round(2, "few", changed(edit)))
    served = stage.play()
    assert "round 2: few rejected: " in heard.text
    assert reason in heard.text
    oracle = without(stage, "few", 2)
    require_close(oracle.server, served.server, "the server without that upload", 1e-6)
    require_close(oracle.clients["few"], stage.kept("few"), "what the client keeps", 1e-6)


def test_a_lost_reply_costs_the_client_its_round_and_keeps_its_state(tmp_path, heard):
    stage = Stage.set(Ditto(), tmp_path, fault=in_round(2, "few", lambda _: []), deadline_s=0.5)
    served = stage.play()
    assert "round 2: few lost: no reply within 0.5 s" in heard.text
    oracle = without(stage, "few", 2)
    require_close(oracle.server, served.server, "the server without that upload", 1e-6)
    require_close(oracle.clients["few"], stage.kept("few"), "what the client keeps", 1e-6)


def test_a_client_that_fails_is_named_with_the_reason(tmp_path, heard):
    def crashed(reply):
        instead = Message(Error(8, ""), reply_to=reply)
        instead.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        return [instead]

    stage = Stage.set(FedPer(), tmp_path, fault=in_round(2, "few", crashed))
    stage.play()
    assert "round 2: few lost: its site stopped in the middle of the work" in heard.text


def test_a_late_reply_is_ignored_and_named(tmp_path, heard):
    held = []

    def fault(who, reply):
        number = int(reply.metadata.group_id)
        if reply.metadata.message_type != "train" or number > 1:
            return [reply]
        if (who, number) == ("few", 0):
            held.append(reply)
            return []
        return [reply, held.pop()] if number == 1 and held else [reply]

    stage = Stage.set(FedAvg(), tmp_path, fault=fault, deadline_s=3.0)
    served = stage.play()
    assert "round 2: few's reply of round 1 arrived late and is ignored" in heard.text
    require_close(without(stage, "few", 1).server, served.server, "the server", 1e-6)


def test_a_second_reply_counts_once(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, fault=in_round(2, "few", lambda reply: [reply, reply]))
    served = stage.play()
    assert "round 2: few replied twice; once is enough" in heard.text
    require_close(stage.oracle().server, served.server, "the server", 1e-6)


def test_a_reply_of_an_earlier_round_is_refused(tmp_path, heard):
    def older(reply):
        reply.content["header"]["round"] = 0
        return [reply]

    stage = Stage.set(FedAvg(), tmp_path, fault=in_round(2, "few", older))
    served = stage.play()
    assert "round 2: few rejected: got a reply of round 1 in round 2." in heard.text
    require_close(without(stage, "few", 2).server, served.server, "the server", 1e-6)


def test_a_weight_that_is_no_weight_is_refused(tmp_path, heard):
    def heavy(reply):
        reply.content["header"]["weight"] = float("inf")
        return [reply]

    stage = Stage.set(FedAvg(), tmp_path, fault=in_round(2, "few", heavy))
    stage.play()
    assert (
        "round 2: few rejected: a weight is a number of examples or batches from 1 to "
        in heard.text
    )


def test_a_round_that_too_few_answer_is_run_again_and_ends_as_if_nothing_had_happened(
    tmp_path, heard
):
    lost = []

    def fault(who, reply):
        first = reply.metadata.group_id == "1" and len(lost) < 4
        if first and reply.metadata.message_type == "train":
            lost.append(who)
            return []
        return [reply]

    stage = Stage.set(Ditto(), tmp_path, fault=fault, min_clients=6, deadline_s=0.5)
    served = stage.play()
    assert "round 2: 2 usable replies, at least 6 needed (attempt 1 of 3)" in heard.text
    oracle = stage.oracle()
    require_same(oracle.server, served.server, "the server")
    for client in oracle.clients:
        require_same(oracle.clients[client], stage.kept(client), f"what {client} keeps")


def test_a_run_that_nobody_answers_stops_with_a_sentence(tmp_path, heard):
    stage = Stage.set(FedAvg(), tmp_path, fault=lambda *_: [], deadline_s=0.05, attempts=2)
    with pytest.raises(CohortError, match="round 1 was tried 2 times, and fewer than 1 clients"):
        stage.play()


def test_a_minimum_that_the_cohort_can_never_reach_is_refused_before_the_run(tmp_path):
    with pytest.raises(RequestError, match="min-clients=4 can never reply"):
        Stage.set(FedAvg(), tmp_path, cohort=2, min_clients=4).play()
