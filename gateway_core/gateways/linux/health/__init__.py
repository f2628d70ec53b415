"""The dependencies of the gateway on Linux: whether each does its work."""
