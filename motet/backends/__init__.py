"""How client work is carried out: one process, or many."""
