"""Networks made from other networks."""
