"""Clients that work elsewhere: everything about them but the transport."""
