"""Runs on disk: directories, checkpoints, resuming."""
