"""kNN-Per."""
