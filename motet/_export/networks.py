"""The network of a task as an entry of a config, if it is a reference network."""

from __future__ import annotations

from typing import Any

from motet._core.criteria import CRITERIA
from motet.config._sections import ModelChoice
from motet.config._values import to_plain
from motet.errors import MotetError
from motet.models._registry import RECIPE
from motet.task import Task


def recognized(task: Task, shape: tuple[int, ...], classes: int | None) -> dict[str, Any] | None:
    """Return the reference network and its loss as in a config; None if it is neither.

    The network is built again and compared, since it may have been changed after it was built.
    """
    recipe, loss = vars(task.skeleton).get(RECIPE), task.criterion.name
    if recipe is None or CRITERIA.get(loss) != task.criterion:
        return None
    options = {key: value for key, value in recipe.items() if key != "name"}
    try:
        plain = to_plain(options, "model")
        choice = ModelChoice(name=recipe["name"], loss=loss, options=plain)
        again = choice.task_for(shape, classes)
    except MotetError:
        return None
    if repr(again.skeleton) != repr(task.skeleton) or again.names != task.names:
        return None
    return {"name": recipe["name"], "loss": loss, **plain}
