"""Experiments as TOML files: complete, checked key by key, and equal to the same run in Python."""

from __future__ import annotations

from motet.config._experiment import Experiment
from motet.config._files import experiment_from_dict, load_experiment, read_tables, write_tables
from motet.config._methods import method_from_dict, method_to_dict
from motet.config._overrides import overridden, parse_assignment
from motet.config._run_section import RunChoice
from motet.config._sections import FolderData, ModelChoice, NamedData, TableData

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
