"""Privacy accounting of a run: what is guaranteed, what was spent, and what is protected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from motet._core.sampling import cohort_size
from motet._training.batching import Plan
from motet.errors import CapabilityError, RequestError
from motet.method import AnyMethod
from motet.methods import _catalog as catalog
from motet.privacy._accounting import Charge, client_epsilon, epsilon, require_accountant
from motet.privacy._guarantees import OF_METHODS, Guarantee, NoPromise, Promise
from motet.privacy._optimizer import Private, private_optimizer
from motet.privacy._uploads import PrivateMean, objection
from motet.task import Task

EXTRAS = "privacy"  # whose the counts in `Run.extras` are
HERE = ("serial", "vectorized", "ray")  # backends whose noise only this process knows
ADJACENCY = (
    "of a client's training data, one more or less; how many a client has, and what evaluations "
    "show, is not protected"
)


class AccountedRun(Protocol):
    """What the account reads; `motet.Run` provides it."""

    setting: Any
    backend: Any
    cohort: float | int
    rounds_done: int
    present: tuple[str, ...] | None
    extras: dict[str, dict[str, Tensor]]


def is_private(method: AnyMethod) -> bool:
    """Tell whether a method adds noise anywhere, whatever that guarantees.

    Args:
        method: A method.

    Returns:
        Whether its optimizer or its reduction adds noise.

    Example:
        >>> import motet
        >>> is_private(motet.FedAvg())
        False
    """
    return private_optimizer(method) is not None or isinstance(method.reduce, PrivateMean)


def guarantee_of(method: AnyMethod) -> Guarantee:
    """Say what a method with a private optimizer guarantees, as it is set up.

    Args:
        method: A method.

    Returns:
        A `Promise`, or a `NoPromise` with the reason.

    Example:
        >>> import motet
        >>> guarantee_of(motet.FedAvg(optimizer=motet.Private()))
        Promise(leaves='the trained model', phases=('train',), noisy=(), but='')
        >>> guarantee_of(motet.FedAvg()).because
        'optimizer= is not private'
    """
    optimizer = private_optimizer(method)
    if optimizer is None:
        return NoPromise("optimizer= is not private")
    known = OF_METHODS.get(method.name)
    if known is None or catalog.method_class(method.name) is not type(method):
        return NoPromise(f"the uploads of {type(method).__name__} have not been analysed")
    if isinstance(known, NoPromise):
        return known
    reason = _objection(method, optimizer, known) if known.phases else ""
    return NoPromise(reason) if reason else known


def training_plans(method: AnyMethod) -> dict[str, Plan]:
    """Return the phases of local training; those that a guarantee is about sample as it needs."""
    plans, optimizer = method.plans(), private_optimizer(method)
    if optimizer is None or optimizer.sampling == "shuffle":
        return plans
    known = OF_METHODS.get(method.name)
    charged = known.phases if isinstance(known, Promise) else ()
    return {
        name: replace(plan, sampling="poisson") if name in charged else plan
        for name, plan in plans.items()
    }


def check(method: AnyMethod, task: Task) -> list[str]:
    """Refuse a private run that cannot work; warn of one that promises nothing."""
    optimizer = private_optimizer(method)
    if isinstance(method.reduce, PrivateMean):
        _check_clients_are_private(method)
    if optimizer is None:
        return []
    if _has_running_statistics(task):
        raise CapabilityError(
            "a private optimizer takes every example by itself, but batch normalisation mixes the "
            "examples of a batch; use a network with GroupNorm or LayerNorm."
        )
    guarantee = guarantee_of(method)
    if isinstance(guarantee, Promise):
        require_accountant()
        _check_batch_sizes(method, optimizer, guarantee)
        return []
    if not guarantee.runs:
        raise CapabilityError(
            f"{method.name} cannot train with a private optimizer: {guarantee.because}."
        )
    return [f"{method.name} trains with noise, but without a guarantee: {guarantee.because}."]


def charge(extras: dict[str, dict[str, Tensor]], method: AnyMethod, cohort: Iterable[str]) -> None:
    """Record the clients that did local work in a round, even if their reply was lost."""
    if private_optimizer(method) is None:
        return
    counts = extras.setdefault(EXTRAS, {})
    for client in cohort:
        counts[client] = counts.get(client, torch.tensor(0)) + 1


def spending(run: AccountedRun) -> dict[str, Any]:
    """Say what a run has spent, as values for JSON; {} if it is not private.

    `epsilon` by client and `delta` are there only where the guarantee holds; `protects` says what
    they are about, or why there is no guarantee.

    Args:
        run: A run.

    Returns:
        Epsilon by client, delta, and what they are about.

    Raises:
        CapabilityError: The accountant is not installed (`motet[dp]`).

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> spending(run)
        {}
    """
    method = run.setting.method
    optimizer = private_optimizer(method)
    if isinstance(method.reduce, PrivateMean):
        return _spent_on_clients(run, method.reduce)
    if optimizer is None:
        return {}
    guarantee = guarantee_of(method)
    if run.backend.name not in HERE:
        guarantee = NoPromise("the noise comes from the run's seed, which the server knows")
    if isinstance(guarantee, NoPromise):
        return _nothing(guarantee.because)
    took_part = run.extras.get(EXTRAS, {})
    return {
        "epsilon": {c: _spent(run, optimizer, guarantee, c, int(n)) for c, n in took_part.items()},
        "delta": optimizer.delta,
        "protects": _protects(guarantee),
    }


def _spent_on_clients(run: AccountedRun, mean: PrivateMean) -> dict[str, Any]:
    clients = run.setting.federation.clients
    faults = run.setting.faults
    if mean.noise == 0:
        return _nothing("noise=0")
    if run.present is not None or faults.unavailable or faults.late:
        return _nothing("cohorts were not drawn from all clients")
    cohort = cohort_size(run.cohort, len(clients))
    spent = client_epsilon(
        len(clients), cohort, run.rounds_done, noise=mean.noise, delta=mean.delta
    )
    return {
        "epsilon": dict.fromkeys(clients, spent),
        "delta": mean.delta,
        "protects": "whole clients, one exchanged for another, in what the server sends on and "
        "keeps; the server itself sees single uploads",
    }


def _nothing(because: str) -> dict[str, Any]:
    return {"protects": f"nothing: no guarantee, because {because}"}


def _check_clients_are_private(method: AnyMethod) -> None:
    reason = objection(method)
    if not reason and private_optimizer(method) is not None:
        reason = "a run keeps one account, and optimizer= is private, too; choose one of them"
    if reason:
        raise CapabilityError(f"{method.name} cannot take a PrivateMean: {reason}.")
    require_accountant()


def _spent(
    run: AccountedRun, optimizer: Private, promise: Promise, client: str, rounds: int
) -> float:
    size = run.setting.federation.size(client, "train")
    plans = training_plans(run.setting.method)
    charges = [
        Charge(plan.chance(size), rounds * plan.length(size))
        for name, plan in plans.items()
        if name in promise.phases
    ]
    return epsilon(charges, noise=optimizer.noise, delta=optimizer.delta)


def _protects(promise: Promise) -> str:
    if not promise.phases:
        return "every example: nothing leaves a client"
    but = f". {promise.but}" if promise.but else ""
    return f"each example {ADJACENCY}. What leaves: {promise.leaves}{but}"


def _objection(method: AnyMethod, optimizer: Private, promise: Promise) -> str:
    """Say why a method that could promise something does not, as it is set up."""
    plans = {name: plan for name, plan in method.plans().items() if name in promise.phases}
    streams = [plan.stream for plan in plans.values()]
    without_noise = [name for name in promise.noisy if getattr(method, name) is not None]
    if optimizer.noise == 0:
        return "noise=0"
    if optimizer.sampling != "poisson":
        return 'batches have a fixed size; use sampling="poisson"'
    if without_noise:
        return f"{without_noise[0]}= trains what the upload depends on; leave it None"
    if any(plan.fixed for plan in plans.values()):
        return "every round walks the same batches"
    if len(set(streams)) < len(streams):
        return "phases share their batches, and a sample must be drawn for every step"
    return ""


def _check_batch_sizes(method: AnyMethod, optimizer: Private, promise: Promise) -> None:
    for name, plan in training_plans(method).items():
        if name in promise.phases and plan.batch_size != optimizer.batch_size:
            raise RequestError(
                f"{method.name} takes batches of {plan.batch_size} in its phase {name}, but "
                f"Private(batch_size={optimizer.batch_size}) divides by that; make them equal."
            )


def _has_running_statistics(task: Task) -> bool:
    layers = (m for m in task.skeleton.modules() if isinstance(m, nn.modules.batchnorm._NormBase))
    return task.has_batch_statistics or any(layer.track_running_stats for layer in layers)
