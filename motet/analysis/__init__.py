"""Analyses of finished runs: gradient noise, kNN-Per's datastores, Flow's routes."""

from __future__ import annotations

from motet.analysis._diagnostics import Noise, noise
from motet.analysis._knn_studies import (
    chosen_lambdas,
    evaluate_with_capacities,
    follow_stream,
    knn_per_from,
    lambda_capacity_table,
    weak_and_strong,
)
from motet.analysis._routing_shares import RouteShare, RoutingShares, routing_shares, share_harmed
from motet.methods._knn_per.capacity import CapacityTable

__all__ = [
    "CapacityTable",
    "Noise",
    "RouteShare",
    "RoutingShares",
    "chosen_lambdas",
    "evaluate_with_capacities",
    "follow_stream",
    "knn_per_from",
    "lambda_capacity_table",
    "noise",
    "routing_shares",
    "share_harmed",
    "weak_and_strong",
]
