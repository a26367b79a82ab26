"""Base classes and helpers that several methods share."""
