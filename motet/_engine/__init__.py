"""What runs a federation: rounds, backends, scores."""
