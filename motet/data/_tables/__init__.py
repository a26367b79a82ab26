"""Tables: cells, columns, statistics and files, from raw text to the inputs of a network."""
