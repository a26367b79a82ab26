"""Comparisons: several methods run under the same conditions."""
