"""Local training: batches, the one training loop, and its stacked form."""
