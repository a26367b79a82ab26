"""One module per data set: reads the public files, returns a `Raw`. Nothing touches the network."""
