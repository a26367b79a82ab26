"""Networks that choose, instance by instance, between two sets of parameters.

A routed layer has its parameters twice, shared and local. A policy network says how much of each
output counts: per instance and layer or, in a recurrent layer, per instance and time step.
"""

from __future__ import annotations

from motet.methods._flow.routing.network import (
    RoutedNetwork,
    draw_policy,
    routed_state,
    routed_task,
)
from motet.methods._flow.routing.places import places
from motet.methods._flow.routing.recurrent import routed_steps
from motet.methods._flow.routing.rules import Routing, mix, regulariser, route_weights

__all__ = [
    "RoutedNetwork",
    "Routing",
    "draw_policy",
    "mix",
    "places",
    "regulariser",
    "route_weights",
    "routed_state",
    "routed_steps",
    "routed_task",
]
