"""Checks that every client gets a predictor: the smallest, a new one, one whose reply was lost."""

from __future__ import annotations

from motet._core import tree
from motet._engine.federation import Run
from motet.method import AnyMethod
from motet.testing._comparing import require, require_finite, require_same
from motet.testing._driving import (
    next_work,
    predictions,
    some_inputs,
    started,
    states,
    trained,
    work_on,
)
from motet.testing._promises import presupposes
from motet.testing._purity import runs_are_repeatable
from motet.testing._worlds import World


@presupposes(runs_are_repeatable)
def one_example_is_enough(method: AnyMethod, world: World) -> None:
    """One client with one example makes a federation, and everything stays finite."""
    data = world.data
    smallest = min(sorted(data.clients), key=lambda client: data.size(client, "train"))
    federated = trained(method, World(world.name, world.task, data.select([smallest])))
    require_finite(states(federated), "the states")
    require(not federated.divergence.clients, "its training is not finite")
    require_finite(predictions(federated), "the predictions")


@presupposes(one_example_is_enough)
def predictions_are_probabilities(method: AnyMethod, world: World) -> None:
    """Predictions are finite; those of classes are not negative and sum to 1."""
    federated = trained(method, world, cohort=0.5)
    for client, predicted in predictions(federated).items():
        require_finite(predicted, f"the prediction of {client}")
        if world.task.criterion.kind != "values":
            least, sums = float(predicted.min()), predicted.sum(-1)
            off = float((sums - 1).abs().max())
            require(
                least >= 0 and off < 1e-4,
                f"expected probabilities from {client}, but the least is {least:.3g} and the sums "
                f"are off by {off:.3g}; `predict` returns probabilities, not scores.",
            )


@presupposes(one_example_is_enough)
def a_new_client_is_served(method: AnyMethod, world: World) -> None:
    """`run.adapt` serves a new client, always the same way, and changes no other client."""
    federated = trained(method, world)
    before = tree.clone(states(federated))
    support = world.data.examples(sorted(world.data.clients)[0], "train")
    inputs = some_inputs(federated)
    first, second = (federated.adapt(*support).predict(inputs) for _ in range(2))
    require_finite(first, "the prediction for a new client")
    require_same(first, second, "two predictions for a new client")
    require_same(before, states(federated), "the states before and after a new client was served")


@presupposes(one_example_is_enough)
def a_client_outside_the_cohort_keeps_its_state(method: AnyMethod, world: World) -> None:
    """Only those who take part in a round keep anything new."""
    federated = trained(method, world, rounds=1)
    before = tree.clone(dict(federated.clients))
    cohort = _advance_with(federated, 2)
    for client in before.keys() - set(cohort):
        require_same(before[client], federated.clients[client], f"what {client} keeps")


@presupposes(one_example_is_enough)
def a_lost_reply_leaves_a_usable_state(method: AnyMethod, world: World) -> None:
    """If an upload is lost, its client goes on from what it kept."""
    federated = started(method, world, rounds=3, backend="serial")
    federated.advance()
    lost, work = next(next_work(federated))
    _, kept = work_on(federated, work)
    federated.setting.store.put(lost, kept)
    federated.advance()
    require_finite(states(federated), f"the states after the reply of {lost} was lost")
    require_finite(predictions(federated), f"the predictions after the reply of {lost} was lost")


def _advance_with(federated: Run, cohort: int) -> tuple[str, ...]:
    federated.cohort = cohort
    return federated.advance().cohort


CHECKS = (
    one_example_is_enough,
    predictions_are_probabilities,
    a_new_client_is_served,
    a_client_outside_the_cohort_keeps_its_state,
    a_lost_reply_leaves_a_usable_state,
)
