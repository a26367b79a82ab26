"""The server and the sites of a deployment."""
