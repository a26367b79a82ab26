"""FedFomo."""
