"""Execution plans of a backend, chosen by rule or by measurement."""
