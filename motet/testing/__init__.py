"""Public: the conformance suite, and tiny worlds to run it in."""
