"""Pure functions and small types under everything else: named trees, keys, selectors, files."""
