"""What leaves a site, who receives it and what stays there, from audited traffic.

A few rounds are played with three made-up sites, whose examples are random numbers of the agreed
schema. Tensors are then compared by value, whatever they are called: a tensor of the private state
that is also in a message has left the site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet._core import tree
from motet._core.keys import Key
from motet._engine.run_spec import RunSpec, down_for
from motet.data._federation import Examples
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.data_schema import blank
from motet.deploy._runtime.rehearsal import first_server
from motet.method import ClientData

SITES = ("a", "b", "c")
ROUNDS, EXAMPLES, STEPS = 3, 8, 2
COMMON = {0.0, 0.5, 1.0}  # numbers that any tensor may hold by chance


class Traffic(NamedTuple):
    """Names of tensors, by what happens to them.

    Attributes:
        stays: Of the private state: in no message.
        leaves: Of the private state: also sent as they are, in the same round or another.
        passed_on: Of an upload: sent to other sites as they are.
    """

    stays: tuple[str, ...]
    leaves: tuple[str, ...]
    passed_on: tuple[str, ...]


def audit_traffic(agreement: Agreement) -> Traffic:
    """Play a few rounds of an experiment with made-up sites, and compare what they send."""
    setting = agreement.setting(agreement.empty_federation(SITES))
    method, server = setting.method, first_server(setting)
    kept = {site: setting.fresh_client(site) for site in SITES}
    sent, passed_on = set[bytes](), set[str]()
    ups: dict[str, Any] = {}
    downs: dict[str, Any] = {}
    for number in range(ROUNDS + 1):
        info = setting.info(number, SITES)
        down = method.broadcast(server, info)
        before, downs = downs, {site: down_for(down, site) for site in SITES}
        passed_on |= _passed_on(before, ups, downs)
        if number == ROUNDS:  # only to see what is sent after the last round
            break
        for site in SITES:
            data = _data(setting, site, number)
            ups[site], kept[site] = method.client_update(
                downs[site], kept[site], data, setting.task
            )
            sent |= set(telling_bytes(ups[site]).values())
        uploads = tree.stack([ups[site] for site in SITES])
        partial = method.reduce.lift(SITES, uploads, torch.ones(len(SITES)))
        combined = method.reduce.finish(partial, down)
        server = method.server_update(server, combined, info, setting.task)
    names = [tree.readable(name) for name, _ in tree.flatten(kept[SITES[0]])]
    leaves = {name for site in SITES for name in _also_sent(kept[site], ups[site], sent)}
    return Traffic(
        tuple(name for name in names if name not in leaves),
        tuple(name for name in names if name in leaves),
        tuple(sorted(passed_on)),
    )


def telling_bytes(message: Any) -> dict[str, bytes]:
    """Return the bytes of every tensor by name, except of those that any message may contain."""
    return {
        tree.readable(name): leaf.detach().contiguous().numpy().tobytes()
        for name, leaf in tree.flatten(message)
        if set(leaf.flatten().tolist()) - COMMON and leaf.is_floating_point()
    }


def traffic_sentences(traffic: Traffic) -> tuple[str, ...]:
    """Say what stays, what leaves and who receives it, in plain words.

    >>> for line in traffic_sentences(Traffic(("head.bias",), (), ())): print(line)
    These tensors stay in `state/`, on your disk, and are in no message: `head.bias`.
    The server receives what your site sends. Other sites never receive your upload as it is.
    """
    sentences = []
    if traffic.stays:
        listed = _listed(traffic.stays)
        sentences.append(
            f"These tensors stay in `state/`, on your disk, and are in no message: {listed}."
        )
    if traffic.leaves:
        listed = _listed(traffic.leaves)
        sentences.append(
            "These tensors are kept in `state/`, and are also sent as they are, in some round: "
            f"{listed}."
        )
    if not traffic.stays and not traffic.leaves:
        sentences.append("Your site keeps no tensors between rounds.")
    if traffic.passed_on:
        sentences.append(
            "The server receives what your site sends, and **can pass a part of it on to other "
            f"sites as it is**: {_listed(traffic.passed_on)}."
        )
    else:
        sentences.append(
            "The server receives what your site sends. Other sites never receive your upload as "
            "it is."
        )
    return tuple(sentences)


def _also_sent(kept: Any, up: Any, sent: set[bytes]) -> set[str]:
    """Name the private tensors that were sent: by value, or by name where a value says nothing."""
    telling, uploaded = telling_bytes(kept), {tree.readable(name) for name, _ in tree.flatten(up)}
    names = {tree.readable(name) for name, _ in tree.flatten(kept)}
    by_value = {name for name, written in telling.items() if written in sent}
    return by_value | ((names & uploaded) - telling.keys())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _passed_on(
    before: Mapping[str, Any], ups: Mapping[str, Any], after: Mapping[str, Any]
) -> set[str]:
    """Name the parts of any site's upload that are in what another site is sent next.

    What a site sends back as it received it is not its own.
    """
    return {
        name
        for sender, up in ups.items()
        for name, written in telling_bytes(up).items()
        if not _contains(before[sender], written)
        and any(_contains(after[receiver], written) for receiver in SITES if receiver != sender)
    }


def _contains(message: Any, written: bytes) -> bool:
    return any(written in other for other in telling_bytes(message).values())


def _data(setting: RunSpec, site: str, number: int) -> ClientData:
    """Make up a site's examples: random, so that no two sites train alike."""
    example, rng = blank(setting.federation), Key(0).fold("made-up examples", site).numpy()
    x = torch.from_numpy(rng.normal(size=(EXAMPLES, *example.x.shape[1:]))).to(example.x.dtype)
    if not example.x.is_floating_point():
        x = torch.zeros_like(x)  # tokens: every vocabulary has the first one
    made = Examples(x, _targets(example.y, setting.federation.classes, rng))
    plans = {
        name: replace(plan, epochs=None, steps=STEPS)
        for name, plan in setting.method.plans().items()
    }
    return setting.data_from({"train": made, "val": made}, site, plans, number)


def _targets(like: Tensor, classes: int | None, rng: np.random.Generator) -> Tensor:
    shape = (EXAMPLES, *like.shape[1:])
    return torch.from_numpy(rng.integers(classes or 2, size=shape)).to(like.dtype)
