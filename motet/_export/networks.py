"""The network of a task as an entry of a config, if it is a reference network."""

from __future__ import annotations

from typing import Any

from motet._core.criteria import CRITERIA, DiscreteHazard
from motet.config._sections import ModelChoice
from motet.config._values import to_plain
from motet.errors import MotetError
from motet.models._registry import RECIPE
from motet.task import Task


def recognized(
    task: Task, shape: tuple[int, ...], classes: int | None, target: tuple[int, ...] = ()
) -> dict[str, Any] | None:
    """Return the reference network and its loss as in a config; None if it is neither.

    The network is built again and compared, since it may have been changed after it was built.
    """
    recipe, loss = vars(task.skeleton).get(RECIPE), task.criterion.name
    times = task.criterion.times or None
    is_hazard = isinstance(task.criterion.example_loss, DiscreteHazard)
    if recipe is None or not (is_hazard or CRITERIA.get(loss) == task.criterion):
        return None
    options = {key: value for key, value in recipe.items() if key != "name"}
    try:
        plain = to_plain(options, "model")
        choice = ModelChoice(name=recipe["name"], loss=loss, times=times, options=plain)
        again = choice.task_for(shape, classes, target)
    except MotetError:
        return None
    if repr(again.skeleton) != repr(task.skeleton) or again.names != task.names:
        return None
    bins = {} if times is None else {"times": list(times)}
    return {"name": recipe["name"], "loss": loss, **bins, **plain}
