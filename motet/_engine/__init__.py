"""The engine of a federation: rounds, backends, scores."""
