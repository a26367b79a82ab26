"""Flow and dynamic routing."""
