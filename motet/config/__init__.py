"""Experiments as TOML files: complete, checked key by key, and equal to the same run in Python."""

from __future__ import annotations

from motet.config.experiment import Experiment
from motet.config.files import (
    experiment_from_dict,
    load_experiment,
    read_tables,
    write_tables,
)
from motet.config.methods import method_from_dict, method_to_dict
from motet.config.overrides import overridden, parse_assignment
from motet.config.sections import FolderData, ModelChoice, NamedData, RunChoice, TableData

__all__ = [
    "Experiment",
    "FolderData",
    "ModelChoice",
    "NamedData",
    "RunChoice",
    "TableData",
    "experiment_from_dict",
    "load_experiment",
    "method_from_dict",
    "method_to_dict",
    "overridden",
    "parse_assignment",
    "read_tables",
    "write_tables",
]
