"""Stores of private states: in memory or on disk."""
