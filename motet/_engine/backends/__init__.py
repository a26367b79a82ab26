"""Backends: serial, vectorized and Ray."""
