"""Networks that choose, instance by instance, between two sets of parameters.

A routed layer has its parameters twice, shared and local. A policy network says how much of each
output counts: per instance and layer or, in a recurrent layer, per instance and time step.
"""

from __future__ import annotations

from motet.routing.network import RoutedNetwork, draw_policy, routed_state, routed_task
from motet.routing.places import places
from motet.routing.recurrent import routed_steps
from motet.routing.rules import Routing, mix, regulariser, route_weights
from motet.routing.shares import RouteShare, RoutingShares, routing_shares, share_harmed

__all__ = [
    "RouteShare",
    "RoutedNetwork",
    "Routing",
    "RoutingShares",
    "draw_policy",
    "mix",
    "places",
    "regulariser",
    "route_weights",
    "routed_state",
    "routed_steps",
    "routed_task",
    "routing_shares",
    "share_harmed",
]
