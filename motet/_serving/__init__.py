"""Prediction from raw rows over HTTP."""
