"""Aggregation: the uploads of a cohort, combined."""
