"""Loaders: one module per data set reads its public files into a `Raw`. None uses the network."""
