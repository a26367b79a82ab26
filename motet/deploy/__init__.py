"""From a run to a federation of real processes: Flower's SuperLink and SuperNodes, over TLS."""
